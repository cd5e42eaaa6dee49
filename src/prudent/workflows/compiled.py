"""Numba's compiler as typed decorators, so that strict type checks see through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile to machine code at the first call and keep it on disk for the next process."""
    return cast(Function, njit(cache=True)(function))


def bare(function: Function) -> Function:
    """As `compiled`, but without reference counts, and so without making arrays.

    Counting who holds which array at every step made the simulator three times slower.
    """
    return cast(Function, njit(cache=True, _nrt=False)(function))


def inlined(function: Function) -> Function:
    """As `bare`, and put into the caller: for small steps of a hot loop."""
    return cast(Function, njit(cache=True, _nrt=False, forceinline=True)(function))
