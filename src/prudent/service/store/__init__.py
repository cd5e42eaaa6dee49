"""What the service remembers: our own tables, on SQLite or PostgreSQL."""
