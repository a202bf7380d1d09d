"""Keeping house: what runs take, how long it is kept, and what is missing."""
