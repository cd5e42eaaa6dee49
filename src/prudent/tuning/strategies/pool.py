"""Which configurations a decision looks at."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.strategy import untried
from prudent.tuning.trial import Configuration

SAMPLED = 1500
"""Candidates drawn for a decision where the space cannot be listed."""
NEIGHBOURS = 60
"""Small steps tried around each of the best trials, in such a space."""
LEADERS = 5


def candidate_pool(
    problem: Problem, history: History, seed: int, full_only: bool = False
) -> tuple[Candidates, NDArray[np.bool_]]:
    """Candidates for the next decision, and which of them are still untried.

    A listed space is looked at whole. In a larger or continuous one candidates are drawn anew each time:
    spread over the space, and close to the best trials so far (local improvement). With `full_only` those
    drawn use all the data (of a listed space the caller leaves out the others).
    """
    if problem.listed:
        return problem.everything, untried(problem, history)
    rng = rng_for(seed, "pool", len(history) + len(history.pending))
    drawn = problem.space.sample(SAMPLED, rng, "sobol" if len(history) % 2 else "latin")
    for configuration in _leaders(history):
        drawn += problem.space.neighbours(configuration, rng, NEIGHBOURS)
    if full_only:
        drawn = on_full_data(problem, drawn)
    tried = {problem.space.key(c) for c in history.configurations}
    distinct = {problem.space.key(c): c for c in drawn}
    fresh = [c for key, c in distinct.items() if key not in tried]
    return problem.candidates(fresh), np.ones(len(fresh), dtype=np.bool_)


def on_full_data(problem: Problem, configurations: Iterable[Configuration]) -> list[Configuration]:
    """The same configurations on all the data: each once, and only those that the space has."""
    full = (problem.with_fraction(c, 1.0) for c in configurations)
    return list({problem.space.key(c): problem.space.check(c) for c in full if c in problem.space}.values())


def _leaders(history: History) -> list[dict[str, object]]:
    ended = [t for t in history if t.finished and history.goal.measure in t.values]
    ended.sort(key=lambda t: (not t.feasible, history.goal.loss(t.values[history.goal.measure])))
    return [dict(trial.configuration) for trial in ended[:LEADERS]]
