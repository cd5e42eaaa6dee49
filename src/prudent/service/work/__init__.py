"""How each kind of request is done, in a process of its own."""
