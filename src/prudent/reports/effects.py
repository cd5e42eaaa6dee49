"""What each parameter does: the model's mean answer over the space when one parameter is held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prudent.core.parameters import Integer, Ordinal, Parameter, Real
from prudent.core.seeds import rng_for
from prudent.reports.model import Z80, Array, Forecast, Model, Rows
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.trial import Configuration

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


def effects(model: Model, history: History, seed: int) -> dict[str, list[Effect]]:
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
    parameter: Parameter, measure: str, values: tuple[Any, ...], forecast: Forecast, groups: Sequence[Rows]
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
