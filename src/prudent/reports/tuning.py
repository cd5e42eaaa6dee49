"""The report of a tuning run: the answer, the money, every trial, what was learned, how to repeat it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.ledger import LedgerEntry
from prudent.core.parameters import is_number
from prudent.core.processes import one_thread
from prudent.reports import formatting, page, tuning_charts
from prudent.reports.expectations import Expectation, expectations_of, hit_rate, remaining_potential
from prudent.reports.figure import Figure
from prudent.reports.full_data import full_data
from prudent.reports.study_model import TELLING, Effect, StudyModel, effects
from prudent.tuning.confirm import Confirmation
from prudent.tuning.goal import COST, TIME, Constraint
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.result import Result
from prudent.tuning.study.settlement import INTERRUPTED
from prudent.tuning.trial import CUT, FAILED, FINISHED


def write_tuning_report(
    result: Result,
    problem: Problem,
    path: Path,
    *,
    options: Mapping[str, Any] | None = None,
    beside: Sequence[Result] = (),
    note: str = "",
    confirmation: Confirmation | None = None,
) -> Path:
    """Write a self-contained HTML page about a tuning run; answers where it is.

    `options` are those given to the strategy. `beside` are results of other strategies for the same goal, to
    compare with. `note` is a remark for the top, such as where the prices come from. `confirmation` is the
    run that turned the recommendation's prediction into a measurement.
    """
    written = tuning_report(
        result, problem, options=options, beside=beside, note=note, confirmation=confirmation
    )
    return page.write(written, path)


def tuning_report(
    result: Result,
    problem: Problem,
    *,
    options: Mapping[str, Any] | None = None,
    beside: Sequence[Result] = (),
    note: str = "",
    confirmation: Confirmation | None = None,
) -> str:
    """The page itself, as text.

    Most of its time goes into the model: about the cube of the number of trials up to `model.MOST` of them,
    and no more beyond, because the model then learns from an even sample; the rest grows with the trials.
    """
    result, beside = formatting.counted_trials(result), [formatting.counted_trials(other) for other in beside]
    with one_thread():
        learned = _learned(result, problem)
        full = full_data(result, problem, options or {}, confirmation)
    progress = tuning_charts.progress(result, beside)
    figures = [figure for figure in (progress, *full.figures, *learned.figures) if figure is not None]
    return page.render(
        "tuning.html.j2",
        figures,
        title=f"Tuning {result.job}" if result.job else "Tuning report",
        note=note,
        result=result,
        goal=result.goal,
        answer=result.best or result.nearest,
        checks=_checks(result),
        comparison=_comparison(result),
        money=_money(result),
        progress=progress,
        beside=[result, *beside] if beside else [],
        reach=_reach(result, beside),
        names=problem.space.names,
        numeric=_numeric(result, problem),
        measures=_measures(result),
        readings=_readings(result),
        learned=learned,
        full=full,
        entries=result.entries,
        rate=_rate,
        options=dict(options or {}),
        problem=problem,
        call=_call(result, problem, dict(options or {})),
        kind_of=tuning_charts.kind_of,
    )


# The answer


@dataclass(frozen=True)
class ConstraintCheck:
    """A constraint and how the answer keeps it; `margin` is the distance to the bound, relative to it."""

    constraint: Constraint
    value: float | None
    holds: bool
    margin: float


def _checks(result: Result) -> list[ConstraintCheck]:
    answer = result.best or result.nearest
    if answer is None:
        return []
    checks = []
    for constraint in result.goal.constraints:
        value = answer.values.get(constraint.measure)
        distance = math.inf if value is None else abs(value - constraint.bound)
        margin = distance / max(abs(constraint.bound), 1e-12)
        checks.append(ConstraintCheck(constraint, value, constraint.holds(value), margin))
    return checks


def _comparison(result: Result) -> str:
    """The answer beside the other runs that keep the goal, in a sentence."""
    goal, best = result.goal, result.best
    others = [trial.values[goal.measure] for trial in result.trials if trial.feasible]
    if best is None or len(others) < 2 or goal.measure not in (COST, TIME) or not goal.minimise:
        return ""
    least = best.values[goal.measure]
    if least <= 0 or max(others) / least < 1.05:
        return ""
    what, most = "dearest" if goal.measure == COST else "slowest", formatting.times(max(others) / least)
    return f"Of the {len(others)} runs that keep the goal, the {what} takes {most} as much."


# The money


@dataclass(frozen=True)
class TrialGroupShare:
    """What went into trials that ended in one way."""

    status: str
    trials: int
    usd: float
    part: float


@dataclass(frozen=True)
class StudyMoney:
    """Where the budget went; parts are shares of the budget, or of what was spent where there is none."""

    budget_usd: float | None
    spent_usd: float
    left_usd: float | None
    shares: tuple[TrialGroupShare, ...]
    left_part: float
    stopped: str
    """Why money was left on purpose; empty where it was not."""


def _money(result: Result) -> StudyMoney:
    budget, spent = result.budget_usd, result.spent_usd
    whole = max(budget or 0.0, spent) or 1.0
    shares = []
    for status in (FINISHED, CUT, FAILED):
        found = [trial for trial in result.trials if trial.status == status]
        usd = math.fsum(trial.spent_usd for trial in found)
        shares.append(TrialGroupShare(status, len(found), usd, usd / whole))
    interrupted = sum(entry.note == INTERRUPTED for entry in result.entries)
    if interrupted:
        usd = result.interrupted_usd
        shares.append(TrialGroupShare(INTERRUPTED, interrupted, usd, usd / whole))
    left = result.left_usd
    return StudyMoney(budget, spent, left, tuple(shares), (left or 0.0) / whole, result.stopped)


def _reach(result: Result, beside: Sequence[Result]) -> dict[str, float | None]:
    """For each strategy, what it had spent when it had reached the best value of the worst of them."""
    everyone = [result, *beside]
    if not beside or any(other.best is None for other in everyone):
        return {}
    goal = result.goal
    bar = max(goal.loss(other.best.values[goal.measure]) for other in everyone if other.best)
    found: dict[str, float | None] = {}
    for other in everyone:
        path = tuning_charts.best_so_far(other)
        found[other.strategy] = next((usd for usd, y in path if goal.loss(y) <= bar), None)
    return found


def _measures(result: Result) -> list[str]:
    """Every measure that a trial reported, those of the goal first, without cost and time."""
    named = [*result.goal.measures, *(name for trial in result.trials for name in trial.measures)]
    return [name for name in dict.fromkeys(named) if name not in (COST, TIME)]


def _readings(result: Result) -> dict[str, float]:
    """Every reading that a trial has, and how much of it fills a bar: a whole of a share, else the most."""
    told = [trial.readings.to_dict() for trial in result.trials if trial.readings is not None]
    names = dict.fromkeys(name for one in told for name in one)
    most = {name: max(abs(one.get(name, 0.0)) for one in told) for name in names}
    return {name: max(usual, 1.0) if name.endswith("_share") else usual for name, usual in most.items()}


def _numeric(result: Result, problem: Problem) -> set[str]:
    """The parameters whose every value is a number."""
    return {
        name
        for name in problem.space.names
        if all(is_number(trial.configuration[name]) for trial in result.trials)
    }


# What was learned


@dataclass(frozen=True)
class ParameterEffect:
    """The figures of one parameter, and in words how much it matters to the objective."""

    parameter: str
    says: str
    figures: tuple[tuple[str, Figure], ...]


@dataclass(frozen=True)
class ExpectationFigure:
    """How good the model's expectations of a measure were."""

    measure: str
    figure: Figure
    runs: int
    hits: float


@dataclass(frozen=True)
class StudyInsights:
    """What the model can tell; empty where too few runs told it anything."""

    effects: tuple[ParameterEffect, ...] = ()
    expectations: tuple[ExpectationFigure, ...] = ()
    prospects: Any = None

    @property
    def figures(self) -> list[Figure]:
        small = [figure for effect in self.effects for _, figure in effect.figures]
        return [*small, *(expectation.figure for expectation in self.expectations)]


def _learned(result: Result, problem: Problem) -> StudyInsights:
    history = History(result.goal, (*result.known, *result.trials))
    model = StudyModel(problem, result.seed)
    if not model.knows(COST, history):
        return StudyInsights()
    return StudyInsights(
        _effects(model, history, result),
        _expectations(model, history),
        remaining_potential(model, history, result.best, result.seed),
    )


def _effects(model: StudyModel, history: History, result: Result) -> tuple[ParameterEffect, ...]:
    found = effects(model, history, result.seed)
    answer = result.best.configuration if result.best else None
    by_measure: dict[str, list[Effect]] = {}
    for shown in (shown for group in found.values() for shown in group):
        by_measure.setdefault(shown.measure, []).append(shown)
    bounds = {m: [c.bound for c in result.goal.constraints if c.measure == m] for m in by_measure}
    spans = {measure: _axis_values(group, bounds[measure]) for measure, group in by_measure.items()}
    described = []
    for place, (parameter, group) in enumerate(found.items()):
        pictures = tuple(
            (
                s.measure,
                tuning_charts.effect(
                    s, answer, bounds[s.measure], spans[s.measure], f"effect-{place}-{number}"
                ),
            )
            for number, s in enumerate(group)
        )
        described.append(ParameterEffect(parameter, _says(group), pictures))
    return tuple(described)


def _axis_values(effects: Sequence[Effect], bounds: Sequence[float]) -> list[float]:
    """What the axis of a measure must hold: every effect, and a bound that lies near."""
    values = [float(number) for effect in effects for number in (*effect.low, *effect.high)]
    low, high = min(values), max(values)
    if effects[0].log_measure:
        near = [bound for bound in bounds if low / 2 <= bound <= high * 2]
    else:
        near = [bound for bound in bounds if low - (high - low) / 2 <= bound <= high + (high - low) / 2]
    return values + near


def _says(group: Sequence[Effect]) -> str:
    """What a parameter moves by more than the model is unsure of, in words."""
    said: list[str] = []
    for effect in group:
        if effect.strength < TELLING or (effect.measure == TIME and said):
            continue  # time follows cost, whose price is known
        what = formatting.label(effect.measure)
        if effect.log_measure:
            said.append(f"{what} varies {formatting.times(effect.span)}")
        else:
            said.append(f"{what} varies by {formatting.amount(effect.measure, effect.span)}")
    return ", ".join(said) or "no effect beyond what the model is unsure of"


def _expectations(model: StudyModel, history: History) -> tuple[ExpectationFigure, ...]:
    found: list[ExpectationFigure] = []
    for measure in model.measures:
        if measure == TIME and COST in model.measures:
            continue  # time is cost without its price: the same errors again
        told: list[Expectation] = expectations_of(model, measure, history)
        if told:
            figure = tuning_charts.forecast(told, measure, f"forecast-{len(found)}")
            found.append(ExpectationFigure(measure, figure, len(told), hit_rate(told)))
    return tuple(found)


# The ledger, and how to repeat it


def _rate(entry: LedgerEntry) -> str:
    """The hourly price of an entry, with all the digits that the bill was made with."""
    return f"${entry.price.usd_per_h:.10g}"


def _call(result: Result, problem: Problem, options: Mapping[str, Any]) -> str:
    """The Python call that repeats this study, given the job."""
    lines = [
        "prudent.tune(",
        "    job,",
        f"    {str(result.goal)!r},",
        f"    budget_usd={result.budget_usd!r},",
        f"    strategy={result.strategy!r},",
        *([f"    options={dict(options)!r},"] if options else []),
        f"    early_stop={problem.early_stop!r},",
        f"    seed={result.seed!r},",
        ")",
    ]
    return "\n".join(lines)
