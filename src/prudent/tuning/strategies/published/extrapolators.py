"""What a run that was cut is taken to cost in full, by name; your own can be added.

The Lynceus paper feeds its cost model the estimate of a straight line and leaves the choice of the line open
("arbitrary learners can be integrated"); here it is a registry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from prudent.core.errors import BadInput, unknown
from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.strategies.acquisition import normal_cdf, normal_pdf
from prudent.tuning.trial import Trial


@dataclass(frozen=True)
class CutRun:
    """A run that was cut: what it had cost and shown by then, and what other runs make us expect of it."""

    trial: Trial
    goal: Goal
    expected_usd: float | None = None
    deviation_usd: float = 0.0

    @property
    def progress(self) -> float | None:
        """How far the measure had come towards the goal's bound, in (0, 1]; the least of several."""
        shares = [
            self.trial.measures[constraint.measure] / constraint.bound
            for constraint in self.goal.constraints
            if not constraint.is_upper
            and constraint.measure not in (COST, TIME)
            and constraint.measure in self.trial.measures
            and constraint.bound > 0
        ]
        least = min(shares, default=0.0)
        return min(least, 1.0) if least > 0 else None


Extrapolator = Callable[[CutRun], float]
"""The dollars that the whole run is taken to cost."""


def linear(run: CutRun) -> float:
    """The paper's: accuracy grows in a straight line, so cost x target / accuracy; else what was paid.

    >>> from prudent.tuning.trial import CUT
    >>> goal = Goal.parse("minimise cost_usd subject to accuracy >= 0.8")
    >>> linear(CutRun(Trial(1, {}, CUT, 60.0, 0.02, 0.02, {"accuracy": 0.4}, False), goal))
    0.04
    """
    share = run.progress
    return run.trial.cost_usd if share is None else run.trial.cost_usd / share


def curve(run: CutRun) -> float:
    """By the bend of learning curves, as our own strategies estimate it (docs: Cutting runs short)."""
    time_s = run.trial.estimate.get("time_s")
    if time_s is None or run.trial.time_s <= 0:
        return run.trial.cost_usd
    return run.trial.cost_usd * max(time_s / run.trial.time_s, 1.0)


def truncated(run: CutRun) -> float:
    """The mean of what the other runs make us expect, given that it is more than was paid: E[C | C > paid].

    >>> from prudent.tuning.trial import CUT
    >>> goal = Goal.parse("minimise cost_usd")
    >>> round(truncated(CutRun(Trial(1, {}, CUT, 60.0, 1.0, 1.0, {}, False), goal, 1.0, 1.0)), 3)
    1.798
    """
    paid = run.trial.cost_usd
    if run.expected_usd is None or run.deviation_usd <= 0:
        return max(paid, run.expected_usd or 0.0)
    z = np.array((paid - run.expected_usd) / run.deviation_usd)
    beyond = float(normal_cdf(-z))
    if beyond < 1e-12:
        return paid
    return max(run.expected_usd + run.deviation_usd * float(normal_pdf(z)) / beyond, paid)


_EXTRAPOLATORS: dict[str, Extrapolator] = {"linear": linear, "curve": curve, "truncated": truncated}


def extrapolators() -> list[str]:
    """The names that the option `extrapolation` takes."""
    return list(_EXTRAPOLATORS)


def register(name: str, extrapolator: Extrapolator) -> None:
    """Add one of your own."""
    if _EXTRAPOLATORS.setdefault(name, extrapolator) is not extrapolator:
        raise BadInput(f'There is an extrapolator "{name}" already; choose another name.')


def extrapolated_usd(name: str, run: CutRun) -> float:
    """The cost of the whole run by the extrapolator of that name; never less than what was paid."""
    if name not in _EXTRAPOLATORS:
        raise unknown("extrapolation", name, _EXTRAPOLATORS)
    usd = float(_EXTRAPOLATORS[name](run))
    return max(usd, run.trial.cost_usd) if math.isfinite(usd) else run.trial.cost_usd
