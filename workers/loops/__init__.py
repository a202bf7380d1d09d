"""The two training loops, one per family of methods."""
