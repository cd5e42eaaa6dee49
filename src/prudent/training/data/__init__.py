"""Data sets as people have them: where they lie, how they are written, what their columns mean."""
