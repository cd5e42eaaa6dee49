"""What a tuning report says of the full data: the recommendation, its confirmation, how it was foreseen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prudent.reports import words
from prudent.reports.plots import Figure
from prudent.tuning.confirm import Confirmation
from prudent.tuning.goal import Constraint
from prudent.tuning.problem import Problem
from prudent.tuning.recommendation import Recommendation, untested
from prudent.tuning.result import Result

if TYPE_CHECKING:  # a compiler comes with it, and most jobs have no fraction
    from prudent.reports.fractions import Leader, Saving


@dataclass(frozen=True)
class Line:
    """One measure of the recommendation: wanted, predicted, and (if it was run since) measured."""

    measure: str
    wanted: str
    predicted: float
    low: float
    high: float
    measured: float | None = None
    off: str = ""
    within: bool | None = None
    holds: bool | None = None


@dataclass(frozen=True, eq=False)
class FullData:
    """What the template shows; empty for a job without a fraction."""

    recommended: Recommendation | None = None
    lines: tuple[Line, ...] = ()
    confirmation: Confirmation | None = None
    rows: tuple[tuple[str, list[tuple[Leader, Figure]]], ...] = ()
    frontier: Figure | None = None
    saving: Saving | None = None
    differing: tuple[str, ...] = ()

    @property
    def figures(self) -> list[Figure]:
        small = [figure for _, group in self.rows for _, figure in group]
        return [*small, *([self.frontier] if self.frontier else [])]

    def caption(self, leader: Leader) -> str:
        """A configuration by what tells it from its neighbours in the row."""
        shown = {name: leader.configuration[name] for name in self.differing}
        return words.sentence(shown)


def full_data(
    result: Result, problem: Problem, options: Mapping[str, Any], confirmation: Confirmation | None = None
) -> FullData:
    """Everything about the full data that a result tells."""
    recommended = untested(result)
    paid = confirmation if confirmation is not None and confirmation.charge is not None else None
    lines = _lines(recommended, result, paid) if recommended else ()
    if problem.fraction is None:
        return FullData(recommended, lines, paid)
    from prudent.reports.fraction_charts import frontier, growth_figures
    from prudent.reports.fractions import fractions

    told = fractions(result, problem, options, paid)
    if told is None:
        return FullData(recommended, lines, paid)
    rows = tuple(growth_figures(told, result.goal))
    figure = frontier(told.frontier, result.goal, told.recommended) if told.frontier else None
    names = [name for name in problem.space.names if name != problem.fraction]
    differing = [n for n in names if len({str(leader.configuration[n]) for leader in told.leaders}) > 1]
    return FullData(recommended, lines, paid, rows, figure, told.saving, tuple(differing or names))


def _lines(
    recommended: Recommendation, result: Result, confirmation: Confirmation | None
) -> tuple[Line, ...]:
    measured = confirmation.trial.values if confirmation and confirmation.trial.finished else {}
    within = confirmation.within if confirmation else {}
    found = []
    for expected in recommended.expected:
        name, bounds = expected.measure, _bounds(expected.measure, result)
        value = measured.get(name)
        found.append(
            Line(
                name,
                " and ".join(f"{c.sign} {words.amount(name, c.bound)}" for c in bounds),
                expected.value,
                expected.low,
                expected.high,
                value,
                "" if value is None else words.off(name, value - expected.value, expected.value),
                within.get(name),
                all(c.holds(expected.value if value is None else value) for c in bounds) if bounds else None,
            )
        )
    return tuple(found)


def _bounds(measure: str, result: Result) -> list[Constraint]:
    return [c for c in result.goal.constraints if c.measure == measure]
