"""What runs on a part of the data tell about all of it: curves, the frontier, and the money that it saved.

Every number at a fraction that was not run is a prediction, by the model with which Fabulinus extrapolates,
whichever strategy searched: reports of different strategies compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.reports.study_model import FEWEST, sample
from prudent.tuning.confirm import Confirmation
from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.result import Result
from prudent.tuning.strategies.candidates import FractionCandidates, FractionGrid
from prudent.tuning.strategies.extrapolation import LOG, CurveBelief, Extrapolator, GPCurve, Warp
from prudent.tuning.strategies.goal_posterior import INTERVAL_Z
from prudent.tuning.trial import CUT, FAILED, Configuration, Trial

Array = NDArray[np.float64]

LEADERS = 3
"""Configurations whose curves are drawn: more would not be read."""
STEPS = 25
"""Fractions at which a curve is asked for."""


@dataclass(frozen=True, eq=False)
class PredictedRange:
    """What is believed of a measure at p places: the median and a 95 % interval, each (p,)."""

    middle: Array
    low: Array
    high: Array


class FractionModel:
    """The extrapolating model, asked about any configuration on any share of the data."""

    def __init__(self, problem: Problem, options: Mapping[str, Any], seed: int) -> None:
        self.problem, self.grid = problem, FractionGrid(problem, seed)
        surrogate = "trees" if options.get("surrogate") == "trees" else "gp"
        usual = "code" if options.get("as") == "published" else "power"
        self._extrapolator = Extrapolator(self.grid, surrogate, str(options.get("curves", usual)), seed)

    @property
    def measures(self) -> tuple[str, ...]:
        """What the goal speaks of, and the cost."""
        return tuple(dict.fromkeys([*self.problem.goal.measures, COST]))

    def knows(self, history: History) -> bool:
        """Whether enough runs told about cost and every measure of the goal."""
        timed = sum(trial.time_s > 0 for trial in history.working)
        ended = [trial for trial in history if trial.finished]
        reported = [name for name in self.measures if name not in (COST, TIME)]
        return timed >= FEWEST and all(sum(n in t.measures for t in ended) >= FEWEST for n in reported)

    def at(self, history: History, candidates: Candidates, fractions: Array) -> dict[str, PredictedRange]:
        """Every measure of the candidates (p), each on its own share of the data (p,)."""
        places = np.arange(len(fractions))
        field = FractionCandidates(candidates, self.grid.features(candidates), fractions, places, places[:0])
        cost = self._extrapolator.log_cost(history, field)
        told = {}
        for name in self.measures:
            if name == COST:
                told[name] = _spread(cost, LOG, 0.0)
            elif name == TIME:
                told[name] = _spread(cost, LOG, -field.log_price)
            else:
                told[name] = _spread(*self._extrapolator.measure(name, history, field), 0.0)
        return told


def _spread(curve: CurveBelief, warp: Warp, offset: Array | float) -> PredictedRange:
    noise = curve.process.noise_std if isinstance(curve, GPCurve) else 0.0
    centre, spread = curve.mean + offset, np.hypot(curve.std, noise)
    return PredictedRange(*(warp.back(centre + z * spread) for z in (0.0, -INTERVAL_Z, INTERVAL_Z)))


@dataclass(frozen=True, eq=False)
class FractionCurve:
    """One measure of one configuration against the fraction: curve, and the runs that were measured."""

    measure: str
    fractions: Array
    spread: PredictedRange
    runs: tuple[tuple[float, Trial], ...]


@dataclass(frozen=True, eq=False)
class LeadingConfiguration:
    """A configuration worth looking at; `answer` is its share of the data, where it is the study's answer."""

    configuration: Configuration
    answer: float | None
    growths: tuple[FractionCurve, ...]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Configurations on the full data: quality against cost, and which of them nothing else beats in both.

    measured[i] is the run where there is one; then its values stand at i, else the predicted ones.
    """

    quality: str
    configurations: Sequence[Configuration]
    values: PredictedRange
    cost: PredictedRange
    measured: Sequence[Trial | None]
    best: Sequence[int]


@dataclass(frozen=True)
class FractionSaving:
    """What the configurations that were tried would have cost on the full data, once each, by the model."""

    spent_usd: float
    configurations: int
    full_usd: float
    low_usd: float
    high_usd: float

    @property
    def times(self) -> float:
        return self.full_usd / self.spent_usd if self.spent_usd > 0 else math.inf


@dataclass(frozen=True, eq=False)
class FractionAnalysis:
    """Everything that the section shows."""

    leaders: tuple[LeadingConfiguration, ...]
    frontier: Frontier | None
    saving: FractionSaving
    recommended: Configuration | None


def fractions(
    result: Result, problem: Problem, options: Mapping[str, Any], confirmation: Confirmation | None = None
) -> FractionAnalysis | None:
    """What a study of a job with a fraction tells about the full data; None where there is too little."""
    if problem.fraction is None:
        return None
    try:
        beliefs = FractionModel(problem, options, result.seed)
    except BadInput:  # the full data is all there is
        return None
    # As the strategy saw it: what a confirming run measured is shown, not learned from.
    history = sample(History(result.goal, (*result.known, *result.trials)))
    if not beliefs.knows(history):
        return None
    extra = [confirmation.trial] if confirmation is not None and confirmation.charge is not None else []
    runs = [trial for trial in (*result.known, *result.trials, *extra) if trial.status != FAILED]
    return FractionAnalysis(
        _leaders(beliefs, history, result, runs),
        _frontier(beliefs, history, runs),
        _saving(beliefs, history, result),
        result.recommended,
    )


# Configurations without their fraction


def _key(problem: Problem, configuration: Configuration) -> str:
    assert problem.fraction is not None
    return problem.space.key(problem.with_fraction(configuration, 1.0))


def _distinct(problem: Problem, trials: Sequence[Trial]) -> list[Configuration]:
    """The configurations of trials, each once, on as much data as it was seen on."""
    found: dict[str, Configuration] = {}
    for trial in trials:
        key = _key(problem, trial.configuration)
        if key not in found or _share(problem, trial.configuration) > _share(problem, found[key]):
            found[key] = dict(trial.configuration)
    return list(found.values())


def _share(problem: Problem, configuration: Configuration) -> float:
    return float(configuration[str(problem.fraction)])


# Accuracy and cost against the fraction


def _leaders(
    beliefs: FractionModel, history: History, result: Result, runs: Sequence[Trial]
) -> tuple[LeadingConfiguration, ...]:
    problem = beliefs.problem
    tried = _distinct(problem, [trial for trial in history if trial.status != FAILED])
    ordered = _by_promise(beliefs, history, tried)
    answer = result.recommended or (result.best.configuration if result.best else None)
    if answer is not None:
        key = _key(problem, answer)
        ordered = [dict(answer), *(c for c in ordered if _key(problem, c) != key)]
    shown = ordered[:LEADERS]
    steps = np.exp(np.linspace(math.log(beliefs.grid.ladder[0]), 0.0, STEPS))
    candidates = problem.candidates(shown)
    places = np.repeat(np.arange(len(shown)), STEPS)
    told = beliefs.at(history, candidates.subset(places), np.tile(steps, len(shown)))
    leaders = []
    for place, configuration in enumerate(shown):
        own = [t for t in runs if _key(problem, t.configuration) == _key(problem, configuration)]
        rows = slice(place * STEPS, (place + 1) * STEPS)
        growths = tuple(
            FractionCurve(
                name,
                steps,
                PredictedRange(spread.middle[rows], spread.low[rows], spread.high[rows]),
                tuple((_share(problem, t.configuration), t) for t in own if _tells(t, name)),
            )
            for name, spread in told.items()
        )
        is_answer = answer is not None and place == 0
        leaders.append(
            LeadingConfiguration(
                configuration, _share(problem, configuration) if is_answer else None, growths
            )
        )
    return tuple(leaders)


def _tells(trial: Trial, measure: str) -> bool:
    """Whether a run showed a measure; a cut one tells what it had cost until then."""
    return measure in trial.values and (trial.finished or (trial.status == CUT and measure in (COST, TIME)))


def _by_promise(
    beliefs: FractionModel, history: History, tried: Sequence[Configuration]
) -> list[Configuration]:
    """Configurations, the most promising first: by prediction where the goal is about the full data."""
    goal, problem = beliefs.problem.goal, beliefs.problem
    if not tried:
        return []
    if goal.speaks_of_full_data:
        told = beliefs.at(history, problem.candidates(tried), np.ones(len(tried)))
        values = [{n: float(s.middle[i]) for n, s in told.items()} for i in range(len(tried))]
        order = sorted(
            range(len(tried)), key=lambda i: (goal.excess(values[i]), goal.loss(values[i][goal.measure]))
        )
        return [tried[i] for i in order]
    best = {_key(problem, c): (math.inf, math.inf) for c in tried}
    for trial in history:
        if trial.finished and goal.measure in trial.values:
            rank = (goal.excess(trial.values), goal.loss(trial.values[goal.measure]))
            key = _key(problem, trial.configuration)
            best[key] = min(best.get(key, rank), rank)
    return sorted(tried, key=lambda c: best[_key(problem, c)])


# The full data: what can be had for which money


def _quality(goal: Goal) -> tuple[str, bool] | None:
    """The measure that money buys, and whether less of it is better; None where the goal names none."""
    if goal.measure not in (COST, TIME):
        return goal.measure, goal.minimise
    bound = next((c for c in goal.constraints if c.measure not in (COST, TIME)), None)
    return None if bound is None else (bound.measure, bound.is_upper)


def _frontier(beliefs: FractionModel, history: History, runs: Sequence[Trial]) -> Frontier | None:
    problem, quality = beliefs.problem, _quality(beliefs.problem.goal)
    if quality is None:
        return None
    looked = beliefs.grid.pool_for(history)
    candidates = looked.candidates.subset(looked.full)
    told = beliefs.at(history, candidates, np.ones(len(candidates)))
    ran = {
        problem.space.key(t.configuration): t for t in runs if t.finished and problem.is_full(t.configuration)
    }
    measured = [ran.get(problem.space.key(c)) for c in candidates.configurations]
    measure, less = quality
    values, cost = _with_runs(told[measure], measure, measured), _with_runs(told[COST], COST, measured)
    best = _undominated(cost.middle, values.middle if less else -values.middle)
    return Frontier(measure, candidates.configurations, values, cost, measured, best)


def _with_runs(spread: PredictedRange, measure: str, measured: Sequence[Trial | None]) -> PredictedRange:
    """What was measured stands for itself, without an interval."""
    known = np.array([math.nan if t is None else t.values.get(measure, math.nan) for t in measured])
    sure = np.isfinite(known)
    return PredictedRange(*(np.where(sure, known, part) for part in (spread.middle, spread.low, spread.high)))


def _undominated(cost: Array, loss: Array) -> list[int]:
    """The places that no other place beats in both, cheapest first.

    >>> _undominated(np.array([3.0, 1.0, 2.0, 2.5]), np.array([0.1, 0.5, 0.2, 0.3]))
    [1, 2, 0]
    """
    found, least = [], math.inf
    for place in np.lexsort((loss, cost)):
        if loss[place] < least:
            found.append(int(place))
            least = float(loss[place])
    return found


# The money


def _saving(beliefs: FractionModel, history: History, result: Result) -> FractionSaving:
    """The bill of the same configurations on the full data; the ends take the model to err one way always."""
    problem = beliefs.problem
    ran = [trial for trial in result.trials if trial.spent_usd > 0]
    tried = _distinct(problem, ran)
    full = {_key(problem, t.configuration): t for t in ran if problem.is_full(t.configuration)}
    known = math.fsum(trial.spent_usd for trial in full.values())
    rest = [c for c in tried if _key(problem, c) not in full]
    sums = [known] * 3
    if rest:
        cost = beliefs.at(history, problem.candidates(rest), np.ones(len(rest)))[COST]
        sums = [known + math.fsum(part) for part in (cost.middle, cost.low, cost.high)]
    return FractionSaving(result.spent_usd, len(tried), *sums)
