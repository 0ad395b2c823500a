"""Simulations of UME and FSSD: bias, variance, level and power, and the page about them."""
