"""Follow a plan with real commands on Dask workers, keep a journal, learn from what was measured."""
