"""Search for better placements: fast times of a plan, small moves, and simulated annealing."""
