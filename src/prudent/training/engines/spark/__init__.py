"""Training on Spark: one session, data cached once, trials side by side."""
