"""`prudent serve`: requests come in from several sources, survive crashes, and are done by workers."""
