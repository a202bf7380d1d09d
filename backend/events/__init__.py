"""Ingest: what a run's driver reports, stored exactly once."""
