"""Decisions from estimates and their covariance: tests, bounds, ranks, power."""
