"""Machines on this computer: to rehearse, for small jobs and for tests."""
