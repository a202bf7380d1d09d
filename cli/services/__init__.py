"""The processes of a single machine, one file each: how it is started, and when it is ready."""
