"""Models that predict, from a few runs, what a run would yield elsewhere, and how sure they are."""
