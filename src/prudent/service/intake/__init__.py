"""How requests come in: one door, several fronts."""
