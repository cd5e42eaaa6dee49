"""The modules of a script import each other by name: pytest is not to look for doctests in them."""

collect_ignore = ["copies.py", "covering.py", "fork_server.py", "mutants.py", "mutation.py"]
