"""Experiments: titled collections of runs."""
