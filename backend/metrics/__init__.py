"""Reads of what a run reported: series, points, histograms, trajectories."""
