"""Ways to choose the next configuration; two verbs: propose and recommend."""
