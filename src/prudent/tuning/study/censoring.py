"""How long a run that was cut would have taken in full, estimated from the progress that it reported.

Figures: docs/explanation/censoring.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.trial import Progress

Array = NDArray[np.float64]
Points = list[tuple[float, float]]
"""(elapsed_s, value), in the order of time."""

MAX_STRETCH = 100.0
"""No estimate is longer than this many times the part that was seen."""
SLOPE = 1.5
"""How the log-odds of a measure grow with log time. Two of the three benchmark tables, whichever, choose
this for the third; any slope from 1.35 to 1.65 has at least a third less error there than `linear`."""
_TARGET_SHARE = 0.85
"""Where a measure has no known top, the target is taken to be this share of it."""
_FLOOR_SHARE = 0.02
"""A value below this share of the target says no more than this share does."""
_MAX_PAIRS = 64


def estimate_time_s(
    goal: Goal, progress: Sequence[Progress], elapsed_s: float, method: str = "curve"
) -> float | None:
    """How long a run that was cut at `elapsed_s` would have taken in full; None when nothing says so.

    A run that reports how far it is (`done`) is extended at its pace. Otherwise the run is taken to end
    at the first check that shows the goal's lower bound (accuracy >= 0.85), and the measure is extended
    to it. `linear` is the rule of the Lynceus paper (time x target / value), `curve` follows the bend of
    learning curves. Upper bounds are no targets: a run does not end because it still uses little memory.
    The answer is within `elapsed_s` and `MAX_STRETCH` times that.

    >>> goal = Goal.parse("minimise cost_usd subject to accuracy >= 0.85")
    >>> seen = [Progress(30, {"accuracy": 0.3}), Progress(60, {"accuracy": 0.5})]
    >>> round(estimate_time_s(goal, seen, 60, "linear")), round(estimate_time_s(goal, seen, 60))
    (102, 206)
    >>> estimate_time_s(goal, [Progress(60, done=0.25)], 60)
    240.0
    """
    if method not in _METHODS:
        raise unknown("method of extrapolation", method, _METHODS)
    if not math.isfinite(elapsed_s):
        raise BadInput(f"A run cannot be cut after {elapsed_s} s; give a finite time.")
    to_end, to_target = _METHODS[method]
    done = _points(progress, elapsed_s, lambda p: p.done)
    if any(share > 0 for _, share in done):
        return _bounded(to_end(done, elapsed_s), elapsed_s)
    estimates = []
    for measure, target in _targets(goal):
        points = _points(progress, elapsed_s, lambda p, m=measure: p.measures.get(m))  # type: ignore[misc]
        # A run that goes on past its target does not end there, so the target says nothing of its length.
        if points and max(value for _, value in points) < target:
            estimates.append(to_target(points, elapsed_s, target))
    return _bounded(max(estimates), elapsed_s) if estimates else None


def hindsight(goal: Goal, progress: Sequence[Progress], time_s: float, method: str = "curve") -> float | None:
    """log(estimate / truth) for a run that took `time_s`, had it been cut half-way; None without estimate.

    Why: whether a job really ends at its target, and how its curves bend, differs from job to job. The
    runs that finished show how much to trust the estimates of those that did not.
    """
    estimate = estimate_time_s(goal, progress, time_s / 2, method)
    return None if estimate is None else math.log(estimate / time_s)


def _bounded(estimate_s: float, elapsed_s: float) -> float:
    return min(max(estimate_s, elapsed_s), MAX_STRETCH * elapsed_s)


def _targets(goal: Goal) -> list[tuple[str, float]]:
    return [
        (c.measure, c.bound) for c in goal.constraints if not c.is_upper and c.measure not in (COST, TIME)
    ]


def _points(
    progress: Sequence[Progress], elapsed_s: float, read: Callable[[Progress], float | None]
) -> Points:
    """What was seen until the cut, unusable reports left out."""
    seen = [(p.elapsed_s, read(p)) for p in progress if 0 < p.elapsed_s <= elapsed_s * (1 + 1e-9)]
    return sorted((t, v) for t, v in seen if v is not None and math.isfinite(v))


def _done_linear(points: Points, elapsed_s: float) -> float:
    return elapsed_s / min(max(share for _, share in points), 1.0)


def _done_curve(points: Points, elapsed_s: float) -> float:
    """From the last report on at the median pace (Theil-Sen), start included: one odd report does no harm.

    Unlike elapsed / done it does not stretch the set-up time of a run with the rest.
    """
    last_s, share = points[-1]
    if share <= 0:
        return _done_linear(points, elapsed_s)
    rows = np.array([(0.0, 0.0), *points])
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MAX_PAIRS)).astype(int))]
    early, late = np.triu_indices(len(rows), 1)
    span = rows[late] - rows[early]
    paces = span[span[:, 0] > 1e-9]  # reports closer than that tell no pace
    pace = float(np.median(paces[:, 1] / paces[:, 0])) if len(paces) else 0.0
    if pace <= 0:
        return _done_linear(points, elapsed_s)
    return last_s + max(1.0 - share, 0.0) / pace


def _target_linear(points: Points, elapsed_s: float, target: float) -> float:
    value = points[-1][1]
    # Nothing achieved so far: a straight line never arrives.
    return elapsed_s * target / value if min(value, target) > 0 else math.inf


def _target_curve(points: Points, elapsed_s: float, target: float) -> float:
    """Log-odds of the best value so far, growing with log time at a fixed slope, to the next check.

    odds(v) = v / (top - v) and T = t·(odds(target) / odds(best))^(1 / SLOPE) + half a check. Best, not
    last: the run ends at the first check above the target, so a drop in between costs little. A slope
    fitted to the run itself is worse, since curves start flat and the start is what a cut run shows.
    """
    last_s, checks = points[-1][0], len(points)
    values = [value for _, value in points]
    start = min(0.0, *values)
    goal, best = target - start, max(values) - start
    top = max(1.0, goal / 0.99) if start == 0.0 and target <= 1.0 else goal / _TARGET_SHARE
    best = max(best, _FLOOR_SHARE * goal)
    ratio = goal / (top - goal) * (top - best) / best
    return float(last_s * ratio ** (1 / SLOPE) + last_s / checks / 2)


_METHODS: dict[str, tuple[Callable[[Points, float], float], Callable[[Points, float, float], float]]] = {
    "linear": (_done_linear, _target_linear),
    "curve": (_done_curve, _target_curve),
}
METHODS = tuple(_METHODS)
