"""The lagoon command: starts the processes of one machine and speaks HTTP."""
