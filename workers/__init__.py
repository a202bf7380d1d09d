"""Celery tasks, the Ray driver, its loops, actors, environments and models."""
