"""What the runs of a study taught, as a model that can be asked about any configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from prudent.core.parameters import Ordinal, Parameter
from prudent.core.ranges import Integer, Real
from prudent.core.seeds import rng_for
from prudent.tuning.goal import COST, TIME
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.trial import CUT, Configuration

if TYPE_CHECKING:  # a compiler comes with them, and a report of a few runs does without
    from prudent.tuning.strategies.beliefs import SurrogateFitter
    from prudent.tuning.surrogates.gp import GaussianProcess

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Item = TypeVar("Item")

FEWEST = 3
"""Runs that a model must have seen; fewer are told better by themselves."""
MOST = 300
"""Runs that a model learns from: its work grows with their cube, and the 301st hardly changes a picture."""
Z80 = 1.2815515655446004
"""Eight in ten outcomes of a Gaussian lie within so many deviations of its mean."""


@dataclass(frozen=True, eq=False)
class MeasureForecast:
    """The belief of one measure at m candidates: the process plus `offset` (m,), exp of it if `log`.

    Cost and time are believed in logarithms, and time is cost without the price: one process tells both.
    """

    process: GaussianProcess
    offset: Array
    log: bool
    floor: Array

    @property
    def mean(self) -> Array:
        return self.process.mean + self.offset

    @property
    def std(self) -> Array:
        return self.process.std

    def natural(self, values: Array) -> Array:
        """Values of the process in the measure's own unit; a bill never falls below the billing minimum."""
        return np.maximum(np.exp(np.clip(values, -300.0, 300.0)), self.floor) if self.log else values

    def quantile(self, z: float) -> Array:
        return self.natural(self.mean + z * self.std)

    def average(self, rows: Rows) -> tuple[float, float]:
        """Mean and deviation of the average over candidates: errors that they share do not average out."""
        from prudent.tuning.surrogates.kernels import matern52

        process = self.process
        features = process.candidates[rows]
        means, variances, weights = [], [], []
        for part in process.components:
            reach = part.reach[:, rows].mean(axis=1)
            prior = float(matern52(features, features, part.scales).mean())
            means.append(float(part.white @ reach))
            variances.append(part.variance * max(prior - float(reach @ reach), 1e-12))
            weights.append(part.weight)
        share = np.array(weights) / sum(weights)
        mean = float(share @ means)
        variance = float(share @ (np.array(variances) + np.array(means) ** 2)) - mean**2
        scale = process.scale
        middle = mean * scale.deviation + scale.mean + float(self.offset[rows].mean())
        return middle, float(np.sqrt(max(variance, 1e-12))) * scale.deviation

    def draws(self, rows: Rows, count: int, rng: np.random.Generator) -> Array:
        """Joint samples (count, rows) in the measure's own unit: what they may all be together."""
        from prudent.tuning.surrogates.kernels import matern52

        process = self.process
        weights = np.array([part.weight for part in process.components])
        counts = rng.multinomial(count, weights / weights.sum())
        features = process.candidates[rows]
        drawn = []
        for part, share in zip(process.components, counts, strict=True):
            reach = part.reach[:, rows]
            covariance = matern52(features, features, part.scales) - reach.T @ reach
            root = np.sqrt(part.variance) * _root(covariance)
            drawn.append(part.white @ reach + rng.standard_normal((share, len(rows))) @ root.T)
        scale = process.scale
        natural = np.concatenate(drawn) * scale.deviation + scale.mean + self.offset[rows]
        picked = MeasureForecast(process, self.offset[rows], self.log, self.floor[rows])
        return picked.natural(natural[rng.permutation(count)])


class StudyModel:
    """Asks the Gaussian process of the strategies about the measures of a goal, cost and time among them.

    Every strategy's runs are judged by the same model, so reports of different strategies compare.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self._seed = problem, seed

    @cached_property
    def _learner(self) -> SurrogateFitter:
        from prudent.tuning.strategies.beliefs import SurrogateFitter

        return SurrogateFitter(self.problem, "gp", self._seed)

    @property
    def measures(self) -> tuple[str, ...]:
        """The objective first, then what it costs, then what the constraints speak of."""
        goal = self.problem.goal
        return tuple(dict.fromkeys([goal.measure, COST, *goal.measures]))

    def knows(self, measure: str, history: History) -> bool:
        """Whether enough runs told about a measure."""
        if measure in (COST, TIME):
            return sum(trial.time_s > 0 for trial in history.working) >= FEWEST
        return sum(trial.finished and measure in trial.measures for trial in history) >= FEWEST

    def forecast(self, measure: str, history: History, pool: Candidates) -> MeasureForecast:
        """The belief of a measure at candidates."""
        from prudent.tuning.strategies.beliefs import CHEAPEST_USD_PER_S, ShiftedBelief

        history = sample(history)
        nothing = np.zeros(len(pool))
        if measure not in (COST, TIME):
            return MeasureForecast(
                _process(self._learner.measure(measure, history, pool)), nothing, False, nothing
            )
        belief = self._learner.log_cost(history, pool)
        assert isinstance(belief, ShiftedBelief)  # by what a dearer machine costs more, whatever runs on it
        process, shift = _process(belief.belief), belief.offset
        usd_per_s = np.maximum(pool.usd_per_s, CHEAPEST_USD_PER_S)
        if measure == TIME:
            return MeasureForecast(process, shift - np.log(usd_per_s), True, nothing)
        return MeasureForecast(process, shift, True, pool.minimum_s * pool.usd_per_s)

    def works(self, history: History, pool: Candidates) -> Array:
        """The probability that a candidate does not fail."""
        return self._learner.works(sample(history), pool)


def sample(history: History, most: int = MOST) -> History:
    """A history of at most so many runs; those that ended by themselves tell more than those that were cut.

    Both are thinned out evenly, so that early and late runs stay; the best one always does.
    """
    trials = history.trials
    if len(trials) <= most:
        return history
    cut = [trial for trial in trials if trial.status == CUT]
    ended = spread([t for t in trials if t.status != CUT], most - min(len(cut), most // 4))
    kept = {id(trial) for trial in (*ended, *spread(cut, most - len(ended)))}
    if history.best is not None and id(history.best) not in kept:
        kept.remove(id(ended[-1]))
        kept.add(id(history.best))
    return History(history.goal, tuple(trial for trial in trials if id(trial) in kept), history.pending)


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, evenly spaced, the first and the last among them.

    >>> spread(range(10), 4), spread("abc", 5)
    ([0, 3, 6, 9], ['a', 'b', 'c'])
    """
    if len(items) <= most:
        return list(items)
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, most).round()]


def _root(covariance: Array) -> Array:
    """A lower triangular root; near duplicates make a covariance singular, a little noise mends it."""
    try:
        return np.asarray(np.linalg.cholesky(covariance + 1e-6 * np.eye(len(covariance))), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.cholesky(covariance + 1e-3 * np.eye(len(covariance))), np.float64)


def _process(belief: object) -> GaussianProcess:
    from prudent.tuning.surrogates.gp import GaussianProcess

    assert isinstance(belief, GaussianProcess)
    return belief


VALUES = 16
"""Values of a parameter that are asked about; a longer list is thinned out."""
BACKGROUND = 80
"""Configurations over which an answer is averaged, at each value."""
TELLING = 0.5
"""The strength from which an effect is more than doubt."""


@dataclass(frozen=True, eq=False)
class Effect:
    """A measure by the value of one parameter, in the measure's own unit: middle and bounds (v,).

    The bounds hold the mean (eight times in ten), not single runs. `span` is how much the middle varies:
    largest / smallest where the measure is believed in logarithms, else the difference.
    """

    parameter: str
    measure: str
    values: tuple[Any, ...]
    middle: Array
    low: Array
    high: Array
    numeric: bool
    log_values: bool
    log_measure: bool

    @property
    def span(self) -> float:
        least, most = float(self.middle.min()), float(self.middle.max())
        return most / max(least, 1e-300) if self.log_measure else most - least

    @property
    def strength(self) -> float:
        """How far the middle moves, against how unsure it is: what orders parameters by importance."""
        middle, low, high = self.middle, self.low, self.high
        if self.log_measure:
            middle, low, high = np.log(middle), np.log(low), np.log(high)
        return float(np.ptp(middle) / max(float((high - low).mean()), 1e-12))


def effects(model: StudyModel, history: History, seed: int) -> dict[str, list[Effect]]:
    """The effects of every parameter that varies, on every measure known well enough; strongest first."""
    measures = [measure for measure in model.measures if model.knows(measure, history)]
    cases = {p.name: dict(_cases(model.problem, p, seed)) for p in model.problem.space.parameters}
    cases = {name: groups for name, groups in cases.items() if len(groups) > 1}
    # One pool for all: the model is asked once for each measure.
    rows, asked = _laid_out(cases)
    if not measures or not asked:
        return {}
    pool = model.problem.candidates(asked)
    found: dict[str, list[Effect]] = {name: [] for name in cases}
    for measure in measures:
        forecast = model.forecast(measure, history, pool)
        for name in cases:
            parameter = model.problem.space[name]
            found[name].append(_effect(parameter, measure, tuple(cases[name]), forecast, rows[name]))
    return dict(sorted(found.items(), key=lambda item: -max(effect.strength for effect in item[1])))


def _laid_out(
    cases: Mapping[str, Mapping[Any, Sequence[Configuration]]],
) -> tuple[dict[str, list[Rows]], list[Configuration]]:
    """All configurations in one list, and for each parameter's values their places in it."""
    asked: list[Configuration] = []
    rows: dict[str, list[Rows]] = {}
    for name, groups in cases.items():
        rows[name] = []
        for group in groups.values():
            rows[name].append(np.arange(len(asked), len(asked) + len(group)))
            asked.extend(group)
    return rows, asked


def _effect(
    parameter: Parameter,
    measure: str,
    values: tuple[Any, ...],
    forecast: MeasureForecast,
    groups: Sequence[Rows],
) -> Effect:
    averages = np.array([forecast.average(rows) for rows in groups])
    middle, deviation = averages[:, 0], averages[:, 1]
    natural = np.exp if forecast.log else np.asarray
    return Effect(
        parameter.name,
        measure,
        values,
        natural(middle),
        natural(middle - Z80 * deviation),
        natural(middle + Z80 * deviation),
        isinstance(parameter, (Integer, Real)) or (isinstance(parameter, Ordinal) and parameter.numeric),
        bool(getattr(parameter, "log", False)),
        forecast.log,
    )


def _cases(problem: Problem, parameter: Parameter, seed: int) -> Iterator[tuple[Any, list[Configuration]]]:
    """Each value with configurations that have it: possible ones only, for of others nothing is known.

    Where every combination is possible the same others stand at each value, so that nothing but the
    parameter differs. A table's rows, or what a rule allows, are grouped by the value that they have.
    """
    rng = rng_for(seed, "effects", parameter.name)
    space = problem.space
    if problem.listed and (space.points is not None or space.rule is not None):
        by_value: dict[Any, list[Configuration]] = {}
        for configuration in problem.everything.configurations:
            by_value.setdefault(configuration[parameter.name], []).append(configuration)
        ordered = [value for value in parameter.values if value in by_value]
        for value in _thinned(ordered):
            group = by_value[value]
            chosen = rng.permutation(len(group))[:BACKGROUND]
            yield value, [group[place] for place in np.sort(chosen)]
        return
    background = space.sample(BACKGROUND, rng, "latin")
    for value in _values(parameter):
        held = [{**configuration, parameter.name: value} for configuration in background]
        allowed = [configuration for configuration in held if space.allows(configuration)]
        if allowed:
            yield value, allowed


def _values(parameter: Parameter) -> list[Any]:
    if parameter.size is not None and parameter.size <= 10_000:
        return _thinned(list(parameter.values))
    spread = (parameter.from_unit(place / (VALUES - 1) * (1 - 1e-12)) for place in range(VALUES))
    return list(dict.fromkeys(spread))


def _thinned(values: list[Any]) -> list[Any]:
    if len(values) <= VALUES:
        return values
    places = np.linspace(0, len(values) - 1, VALUES).round().astype(int)
    return [values[place] for place in dict.fromkeys(places.tolist())]
