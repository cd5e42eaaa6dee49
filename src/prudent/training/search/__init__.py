"""The search of a request: who proposes trials, which method is next, what trials cost, when they end."""
