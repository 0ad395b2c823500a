"""Simulated error rates and power of every procedure, and the laws they must obey."""
