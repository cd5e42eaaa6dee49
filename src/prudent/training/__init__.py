"""Training requests: data, algorithms and searches in, ranked and exported models out."""
