"""Hosts that one can log in to by SSH, and the way into any machine by SSH."""
