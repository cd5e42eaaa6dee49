"""How requests come in: their sources, and one admission for all."""
