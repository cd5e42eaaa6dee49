"""Schedulers: each turns a problem into a placement; `registry` knows them by name."""
