"""The core: configuration, methods, staleness, evolution, metrics, events, and every decision.

No I/O and no clock, but for what several processes have to read alike: the files of a checkpoint
(``checkpoints.py``) and of a spool (``spools.py``), what the kernel says of processes
(``proc.py``), and folders of a home (``homes.py``).
"""

__version__ = "0.1.0"
