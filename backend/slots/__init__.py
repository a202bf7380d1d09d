"""Slots: what the nodes of the cluster have, which attempts hold leases on it, who waits for it."""
