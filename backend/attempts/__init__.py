"""Attempts: what a driver reads, and what the workers report about its Ray job."""
