"""Search for better placements: a compiled walk over a plan, small changes to it, and annealing."""
