"""Hyperband's plan: how many configurations start on how little data, and how many go on to more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.trial import CUT, FINISHED, Trial


@dataclass(frozen=True)
class Rung:
    """So many configurations run on this share of the data."""

    fraction: float
    count: int


Bracket = tuple[Rung, ...]


def brackets(fractions: Sequence[float], eta: float, least: float) -> list[Bracket]:
    """Hyperband's brackets, one cycle of them: from many on the least data to a few on all of it.

    With s_max = ⌊log_η(1 / least)⌋, bracket b = s_max … 0 starts ⌈(s_max + 1) / (b + 1) · η^b⌉ configurations
    at the share η^-b; each rung keeps one in η and gives it η times the data. A share that the job does not
    offer becomes the nearest one it does (`fractions`; empty: any is offered); rungs that thereby fall
    together are one.

    >>> [(rung.fraction, rung.count) for rung in brackets([0.1, 0.25, 1.0], 3.0, 0.1)[0]]
    [(0.1, 9), (0.25, 3), (1.0, 1)]
    """
    deepest = math.floor(math.log(1.0 / least) / math.log(eta) + 1e-9)
    return [_bracket(fractions, eta, least, depth, deepest) for depth in range(deepest, -1, -1)]


def _bracket(fractions: Sequence[float], eta: float, least: float, depth: int, deepest: int) -> Bracket:
    start = math.ceil((deepest + 1) / (depth + 1) * eta**depth - 1e-9)
    rungs: dict[float, int] = {}
    for step in range(depth + 1):
        share = _nearest(fractions, max(eta ** (step - depth), least))
        rungs.setdefault(share, max(1, math.floor(start * eta**-step + 1e-9)))
    return tuple(Rung(share, count) for share, count in sorted(rungs.items()))


def _nearest(fractions: Sequence[float], share: float) -> float:
    return min(fractions, key=lambda f: abs(math.log(f / share)), default=share)


def time_exponent(trials: Sequence[tuple[object, float, Trial]]) -> float:
    """How time grows with the data: the β of time ∝ fraction^β, from runs of one configuration on two shares.

    `trials`: (configuration without its fraction, fraction, trial). The median over such pairs, within 0 and
    1; in proportion (1) while there are none.
    """
    seen: dict[object, list[tuple[float, float]]] = {}
    slopes = []
    for place, fraction, trial in trials:
        if trial.status != FINISHED or trial.time_s <= 0:
            continue
        for other, time_s in seen.setdefault(place, []):
            if not math.isclose(other, fraction):
                slopes.append(math.log(trial.time_s / time_s) / math.log(fraction / other))
        seen[place].append((fraction, trial.time_s))
    if not slopes:
        return 1.0
    slopes.sort()
    return min(max(slopes[len(slopes) // 2], 0.0), 1.0)


def rank_key(goal: Goal, trial: Trial, fraction: float, beta: float) -> tuple[float, float, float, int]:
    """A key by which the trials of one rung are ranked, the best first.

    Finished before cut before failed; then by how far constraints are missed, then by the objective. Where
    the goal speaks of the full data, time and cost are taken to grow as fraction^-β on the way there.
    """
    status = {FINISHED: 0.0, CUT: 1.0}.get(trial.status, 2.0)
    now, full = trial.values, dict(trial.values)
    for measure in (TIME, COST):
        full[measure] *= fraction**-beta
    misses = [c.excess((full if c.at_full_data else now).get(c.measure)) for c in goal.constraints]
    value = (full if goal.at_full_data else now).get(goal.measure)
    return status, math.fsum(misses), math.inf if value is None else goal.loss(value), trial.number
