"""The discrete-event simulator of workflows: compiled code that works on arrays of records."""
