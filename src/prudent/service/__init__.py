"""`prudent serve`: requests come in by several doors, survive crashes, and are worked off by workers."""
