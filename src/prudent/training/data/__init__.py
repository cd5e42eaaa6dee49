"""Data sets as people have them: where they lie, how they are written, what their columns mean."""

from prudent.training.data.fetch import UNRESTRICTED, AccessPolicy
from prudent.training.data.reading import read_dataset

__all__ = ["UNRESTRICTED", "AccessPolicy", "read_dataset"]
