"""Training on this machine, for data that fit in its memory."""

from prudent.training.engines.local.engine import LocalEngine, LocalSession

__all__ = ["LocalEngine", "LocalSession"]
