"""Prudent: think ahead before paying for it."""

from prudent._version import __version__

__all__ = ["__version__"]
