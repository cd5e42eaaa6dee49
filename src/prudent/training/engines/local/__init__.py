"""Training on this machine, for data that fit in its memory."""
