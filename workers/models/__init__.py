"""Policies that Lagoon builds by itself, and the checks that a model folder has to pass.

This file imports nothing: the command reads ``recipes`` without loading torch.
"""
