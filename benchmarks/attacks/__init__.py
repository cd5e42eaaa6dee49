"""Attacks that `benchmarks/service_attacks.py` plays, one module for each of its points."""
