"""Random numbers inside compiled code: a generator whose state is an array, so that runs do not share it."""

from __future__ import annotations

from typing import Any

import numpy as np

from prudent.workflows.compiled import inlined


@inlined
def uniform(state: Any) -> float:
    """The next number in [0, 1) of splitmix64; `state` is an array of one unsigned integer."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)
