"""Things that can be run at a configuration; all alike to a study."""
