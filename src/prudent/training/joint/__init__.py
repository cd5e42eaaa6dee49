"""Requests that leave their machines open: machines, models and the share of the data in one search."""
