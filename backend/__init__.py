"""The API: the only package that touches the database."""
