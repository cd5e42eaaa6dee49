"""How many threads linear algebra may use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """Linear algebra on one thread inside this block.

    Matrices of a few hundred rows are quicker on one core than shared out over many, and the order of
    additions, and so the last digit, no longer depends on how many cores a machine has.
    """
    with _controller("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=2)
def _controller(scipy_is_loaded: bool) -> Any:
    """Knows the libraries loaded when it is made; scipy brings one of its own later than numpy."""
    del scipy_is_loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
