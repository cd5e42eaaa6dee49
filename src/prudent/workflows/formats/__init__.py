"""Formats that workflows are read from and written in, and a generator of synthetic ones."""
