"""The machinery of a study: ask and tell, limits, charges, and the runner that carries its trials out."""
