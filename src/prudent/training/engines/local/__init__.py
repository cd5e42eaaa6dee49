"""Training on this machine, for data that fit in its memory."""

from prudent.training.engines.local.engine import LocalEngine
from prudent.training.engines.local.session import LocalSession

__all__ = ["LocalEngine", "LocalSession"]
