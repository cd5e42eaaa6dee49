"""Machines that can be rented: their catalog and their prices."""
