"""How well a constraint on a measure is kept: trials as samples of a margin that must be at least 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.goal import Constraint
from prudent.tuning.trial import FAILED, Trial

Array = NDArray[np.float64]

LEAST_SHARE = 0.01
"""Shares below this and above one minus this are alike: a logarithm would make too much of them."""

SHARE, POSITIVE, PLAIN = "share", "positive", "plain"
_USUAL = {SHARE: 1.5, POSITIVE: 0.7}
"""How much a measure usually differs within a space, in its scale: shares in log-odds, others in logs."""


@dataclass(frozen=True)
class MeasureScale:
    """The scale in which a measure is modelled.

    Accuracies are crowded below 1: the step from 0.97 to 0.98 is as large as that from 0.6 to 0.7. In
    log-odds a Gaussian belief fits both; positive measures (sizes, latencies) are modelled in logs.

    >>> [MeasureScale.of(*measured).kind for measured in (([0.2, 0.9], 0.85), ([120.0], 4000), ([-3], 2))]
    ['share', 'positive', 'plain']
    """

    kind: str
    usual: float

    @classmethod
    def of(cls, values: Sequence[float] | Array, bound: float, kind: str = "") -> MeasureScale:
        """The scale for what was measured and what is asked, or of the kind that is asked for."""
        known = np.append(np.asarray(values, dtype=np.float64), bound)
        if not kind:
            shares = 0 < bound < 1 and known.min() >= 0 and known.max() <= 1
            kind = SHARE if shares else POSITIVE if known.min() > 0 else PLAIN
        return cls(kind, _USUAL.get(kind, max(float(np.ptp(known)) / 2.0, 1e-6)))

    def of_values(self, values: Array | float) -> Array:
        values = np.asarray(values, dtype=np.float64)
        if self.kind == SHARE:
            inside = np.clip(values, LEAST_SHARE, 1.0 - LEAST_SHARE)
            return np.asarray(np.log(inside / (1.0 - inside)))
        return np.asarray(np.log(values)) if self.kind == POSITIVE else values


@dataclass(frozen=True, eq=False)
class ConstraintMargins:
    """Samples of a margin: trials, values (n,), and which of them are lower bounds of the true value."""

    trials: Sequence[Trial]
    values: Array
    is_bound: NDArray[np.bool_]
    scaling: MeasureScale


def margins_of(constraint: Constraint, trials: Sequence[Trial], kind: str = "") -> ConstraintMargins | None:
    """What trials tell about a constraint; None while none tells anything.

    A run that was cut has reported values up to then. Where more is better its last value is a lower bound:
    it would have come at least as far. Where less is better it tells nothing: a loss would have fallen
    further, memory would have grown.
    """
    told = [
        trial
        for trial in trials
        if constraint.measure in trial.measures
        and (trial.finished or (trial.status != FAILED and not constraint.is_upper))
    ]
    if not told:
        return None
    measured = np.array([trial.measures[constraint.measure] for trial in told], dtype=np.float64)
    scaling = MeasureScale.of(measured, constraint.bound, kind)
    margin = scaling.of_values(measured) - scaling.of_values(constraint.bound)
    is_bound = np.array([not trial.finished for trial in told], dtype=np.bool_)
    return ConstraintMargins(told, -margin if constraint.is_upper else margin, is_bound, scaling)
