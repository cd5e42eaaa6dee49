"""Schedulers by name, one small module each."""
