"""Measurements. Each is run as ``python -m benchmarks.NAME``."""
