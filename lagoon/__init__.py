"""The core: configuration, methods, staleness, evolution, metrics, events. No I/O, no clock."""

__version__ = "0.1.0"
