"""Racing: a model that is clearly behind the best after some splits is not judged by the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

BEHIND = 1.0
"""Behind by so many deviations of the best model's own splits, over the root of how many were compared."""


def is_behind(bar: Sequence[float], scores: Sequence[float]) -> bool:
    """Whether a model with these scores in the first splits is clearly worse than that with those of `bar`.

    Both were judged by the same rows, so their difference varies less than either score does: the deviation
    of a score over the splits is a cautious measure for it.

    >>> is_behind((0.8, 0.7, 0.9), (0.5,)), is_behind((0.8, 0.7, 0.9), (0.75, 0.75)), is_behind((), (0.1,))
    (True, False, False)
    """
    if len(bar) <= max(len(scores), 1):
        return False
    lacking = float(np.mean(np.subtract(bar[: len(scores)], scores)))
    return lacking > BEHIND * float(np.std(bar, ddof=1)) / math.sqrt(len(scores))


def score_behind(bar: Sequence[float], scores: Sequence[float]) -> float:
    """The score over all splits of a model that was judged by the first ones only.

    >>> round(score_behind((0.8, 0.7, 0.9), (0.5,)), 6)
    0.5
    """
    return float(np.mean(bar) - np.mean(np.subtract(bar[: len(scores)], scores)))
