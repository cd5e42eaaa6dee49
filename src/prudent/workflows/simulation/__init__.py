"""The discrete-event simulator: compiled code on arrays of records."""
