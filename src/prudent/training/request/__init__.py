"""The request document: its model and JSON Schema, its checks and errors, its limits and resources."""
