"""Runs: created, listed, read, stopped, deleted, and moved through their life."""
