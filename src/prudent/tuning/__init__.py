"""Find the cheapest way to run a job, within a budget."""
