"""How sure the model is: what it had expected of each run, and what is still to be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.reports.study_model import FEWEST, Z80, Array, MeasureForecast, Rows, StudyModel, sample, spread
from prudent.tuning.goal import COST, TIME, Constraint, Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates
from prudent.tuning.strategies.candidates import candidate_pool
from prudent.tuning.trial import CUT, FAILED, Configuration, Trial

ASKED = 30
"""Runs for which the model is asked again what it had expected; in a longer study evenly spaced ones."""
POOL = 4000
JOINT = 150
"""Candidates that are drawn together; the others have next to no chance."""
DRAWS = 1000
SHOWN = 5


@dataclass(frozen=True)
class Expectation:
    """What the model expected of a run, from the runs before it alone, and what came."""

    number: int
    configuration: Configuration
    expected: float
    low: float
    high: float
    measured: float
    cut: bool

    @property
    def right(self) -> bool:
        """Whether it came out within the bounds; of a cut run it is only known what it exceeds."""
        return self.measured <= self.high and (self.cut or self.low <= self.measured)


def expectations_of(model: StudyModel, measure: str, history: History) -> list[Expectation]:
    """For each run, the belief of a measure just before it: eight in ten should lie within the bounds."""
    trials = sample(history).trials
    open_places = [
        place
        for place in range(FEWEST, len(trials))
        if _tells(trials[place], measure) and model.knows(measure, History(history.goal, trials[:place]))
    ]
    found = []
    for place in spread(open_places, ASKED):
        trial, before = trials[place], History(history.goal, trials[:place])
        is_cut = trial.status == CUT
        forecast = model.forecast(measure, before, model.problem.candidates([trial.configuration]))
        low, middle, high = (float(forecast.quantile(z)[0]) for z in (-Z80, 0.0, Z80))
        found.append(
            Expectation(trial.number, trial.configuration, middle, low, high, trial.values[measure], is_cut)
        )
    return found


def _tells(trial: Trial, measure: str) -> bool:
    """Whether a run of this study showed a measure; a cut one tells cost and time only, and those in part."""
    if trial.known or trial.status == FAILED or measure not in trial.values:
        return False
    return trial.status != CUT or measure in (COST, TIME)


@dataclass(frozen=True)
class UntestedCandidate:
    """An untested configuration: how likely it is the better answer, and what it is expected to be."""

    configuration: Configuration
    chance: float
    expected: float
    low: float
    high: float
    bill_usd: float


@dataclass(frozen=True)
class RemainingPotential:
    """What is left to find: the chance that any untested configuration is better, and by how much on average.

    `gain` is the expected improvement of the objective if the best of all were known, 0 where no run was
    feasible (then `chance` is that of a feasible one).
    """

    untested: int
    chance: float
    gain: float
    likeliest: tuple[UntestedCandidate, ...]


def remaining_potential(
    model: StudyModel, history: History, best: Trial | None, seed: int
) -> RemainingPotential | None:
    """What the model believes of untested configurations; None where it knows too little."""
    if not all(model.knows(measure, history) for measure in model.measures):
        return None
    pool = _untested(model, history, seed)
    if not len(pool):
        return RemainingPotential(0, 0.0, 0.0, ())
    goal = model.problem.goal
    beliefs = {measure: model.forecast(measure, history, pool) for measure in (*model.measures, TIME)}
    works = model.works(history, pool)
    rows = _promising(goal, beliefs, works, best)
    rng = rng_for(seed, "prospects", len(history))
    drawn = _draw(beliefs, pool, rows, rng)
    feasible = rng.random((DRAWS, len(rows))) < works[rows]
    for constraint in goal.constraints:
        feasible &= _holds(constraint, drawn[constraint.measure])
    losses = np.where(feasible, drawn[goal.measure] * (1.0 if goal.minimise else -1.0), np.inf)
    bar = np.inf if best is None else goal.loss(best.values[goal.measure])
    better = losses < bar
    found = better.any(axis=1)
    gain = 0.0 if best is None else float(np.where(found, bar - losses.min(axis=1), 0.0).mean())
    likeliest = _likeliest(goal, beliefs, pool, rows, better.mean(axis=0))
    # Half a draw each way: none of a thousand draws is no proof of never.
    return RemainingPotential(len(pool), (float(found.sum()) + 0.5) / (DRAWS + 1.0), gain, likeliest)


def _untested(model: StudyModel, history: History, seed: int) -> Candidates:
    """Untried configurations that may be an answer; a part of them where there are very many."""
    pool, free = candidate_pool(model.problem, history, seed)
    answers = model.problem.answers
    open_rows = [row for row in map(int, np.flatnonzero(free)) if answers(pool.configurations[row])]
    rows = np.array(open_rows, dtype=np.int64)
    if len(rows) > POOL:
        rows = np.sort(rng_for(seed, "prospects", "pool").choice(rows, POOL, replace=False))
    return pool.subset(rows)


def _promising(goal: Goal, beliefs: Mapping[str, MeasureForecast], works: Array, best: Trial | None) -> Rows:
    """The candidates with the best chance when each is looked at alone."""
    from scipy.special import log_ndtr

    score = np.log(works)
    bounds = [*goal.constraints]
    if best is not None:
        bounds.append(Constraint(goal.measure, "<" if goal.minimise else ">", best.values[goal.measure]))
    for bound in bounds:
        forecast = beliefs[bound.measure]
        edge = np.log(max(bound.bound, 1e-300)) if forecast.log else bound.bound
        distance = (edge - forecast.mean) / forecast.std
        score = score + log_ndtr(distance if bound.is_upper else -distance)
    return np.sort(np.argsort(-score, kind="stable")[:JOINT])


def _draw(
    beliefs: Mapping[str, MeasureForecast], pool: Candidates, rows: Rows, rng: np.random.Generator
) -> dict[str, Array]:
    """Joint samples (DRAWS, rows) of each measure; time and cost come from the same draws."""
    drawn = {TIME: beliefs[TIME].draws(rows, DRAWS, rng)}
    drawn[COST] = np.maximum(drawn[TIME], pool.minimum_s[rows]) * pool.usd_per_s[rows]
    for measure, belief in beliefs.items():
        if measure not in drawn:
            drawn[measure] = belief.draws(rows, DRAWS, rng)
    return drawn


def _holds(constraint: Constraint, values: Array) -> NDArray[np.bool_]:
    return values <= constraint.bound if constraint.is_upper else values >= constraint.bound


def _likeliest(
    goal: Goal, beliefs: Mapping[str, MeasureForecast], pool: Candidates, rows: Rows, chance: Array
) -> tuple[UntestedCandidate, ...]:
    order = [int(place) for place in np.argsort(-chance, kind="stable")[:SHOWN] if chance[place] > 0]
    objective, bill = beliefs[goal.measure], beliefs[COST].quantile(0.0)
    low, middle, high = (objective.quantile(z) for z in (-Z80, 0.0, Z80))
    return tuple(
        UntestedCandidate(
            pool.configurations[row],
            float(chance[place]),
            float(middle[row]),
            float(low[row]),
            float(high[row]),
            float(bill[row]),
        )
        for place, row in ((place, int(rows[place])) for place in order)
    )


def hit_rate(expectations: Sequence[Expectation]) -> float:
    """The share of runs that came out within their bounds."""
    return sum(item.right for item in expectations) / len(expectations)
