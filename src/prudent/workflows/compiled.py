"""Numba's compiler as a typed decorator, so that strict type checks see through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile to machine code at the first call and keep it on disk for the next process."""
    return cast(Function, njit(cache=True)(function))


def inlined(function: Function) -> Function:
    """Compile into the caller: for steps of a hot loop where handing over arrays costs more than the step."""
    return cast(Function, njit(cache=True, forceinline=True)(function))
