"""Machines exist only under a lease with an end; what has lost its run is ended."""
