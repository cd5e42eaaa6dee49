"""What compiled code is made of: Numba's compiler as typed decorators, array types, random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile to machine code at the first call and keep it on disk for the next process."""
    return cast(Function, njit(cache=True)(function))


def allocation_free(function: Function) -> Function:
    """As `compiled`, but without reference counts; such a function cannot allocate arrays.

    Reference counts at every step made the simulator three times slower.
    """
    return cast(Function, njit(cache=True, _nrt=False)(function))


def inlined(function: Function) -> Function:
    """As `allocation_free`, and inlined into the caller: for small steps of a hot loop."""
    return cast(Function, njit(cache=True, _nrt=False, forceinline=True)(function))


Records: TypeAlias = Any
"""A NumPy array of records, or one record of it; the type checker cannot see their fields."""


Ints = NDArray[np.int64]


Floats = NDArray[np.float64]


@inlined
def uniform(state: Any) -> float:
    """The next number in [0, 1) of splitmix64; `state` is an array of one unsigned integer."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)
