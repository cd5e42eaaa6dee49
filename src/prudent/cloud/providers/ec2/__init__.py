"""Machines of Amazon EC2, on demand or spot."""
