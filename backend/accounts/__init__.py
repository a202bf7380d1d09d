"""People, their credentials, and who may do what."""
