"""The figures of a tuning report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from prudent.reports import formatting
from prudent.reports.expectations import Expectation
from prudent.reports.figure import (
    Figure,
    Trace,
    axis,
    band,
    dotted,
    intervals,
    line,
    lines,
    marks,
    note,
    parameter_axis,
    plain,
    steps,
    wide,
)
from prudent.reports.study_model import Effect
from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.history import best_of
from prudent.tuning.result import Result
from prudent.tuning.trial import CUT, FAILED, Configuration, Trial

_KINDS = {
    "feasible": "finished, keeps the goal",
    "infeasible": "finished, breaks a constraint",
    "cut": "cut (would be more)",
    "failed": "failed",
}
_DASHES = ("dash", "dot", "dashdot")


def progress(result: Result, beside: Sequence[Result] = ()) -> Figure | None:
    """The best run so far over the money spent, with every run that cost something as a dot."""
    measure = result.goal.measure
    told = [(spent, trial) for spent, trial in _spending(result) if measure in trial.values]
    dots = [(spent, trial) for spent, trial in told if trial.status != FAILED or trial.spent_usd > 0]
    heights = [trial.values[measure] for _, trial in dots]
    paths = [best_so_far(result), *(best_so_far(other) for other in beside)]
    if not dots:
        return None
    traces: list[Trace] = []
    for kind, name in _KINDS.items():
        found = [(x, t.values[measure], _hover(t, result.goal)) for x, t in dots if kind_of(t) == kind]
        if found:
            in_part = kind == "infeasible" and result.goal.speaks_of_full_data
            traces.append(
                marks(kind, "finished, on a part of the data or not feasible" if in_part else name, found)
            )
    for path, other, dash in zip(paths[1:], beside, _DASHES * len(beside), strict=False):
        if path:
            traces.append(steps(f"best so far, {other.strategy}", path, "--muted", dash))
    if paths[0]:
        name = f"best so far, {result.strategy}" if beside else "best so far"
        traces.insert(0, steps(name, paths[0], "--best"))
    found = [(x, t.values[measure], _hover(t, result.goal)) for x, t in dots if t == result.best]
    if found:
        traces.append(marks("best", "the answer", found[:1]))
    everything = heights + [y for path in paths for _, y in path]
    ends = [0.0, result.budget_usd or 0.0, result.spent_usd, *(other.spent_usd for other in beside)]
    layout: dict[str, Any] = {
        "showlegend": True,
        "xaxis": axis(COST, ends, log=False, title="money spent"),
        "yaxis": axis(measure, everything, log=measure in (COST, TIME) and wide(everything)),
    }
    layout["xaxis"]["range"][0] = -0.015 * max(ends)
    if result.budget_usd:
        layout["shapes"] = [dotted(x=result.budget_usd)]
        layout["annotations"] = [note("budget", x=result.budget_usd, anchor="right")]
    what = formatting.label(measure)
    alt = f"{what} of the best run so far against the money spent, {len(dots)} runs as dots"
    return Figure("progress", alt, traces, layout, height_px=420)


def kind_of(trial: Trial) -> str:
    """How a trial is drawn and counted: feasible, infeasible, cut or failed."""
    if trial.status in (CUT, FAILED):
        return trial.status
    return "feasible" if trial.feasible else "infeasible"


def best_so_far(result: Result) -> list[tuple[float, float]]:
    """The steps of the best feasible value over the money spent, to the last dollar."""
    path: list[tuple[float, float]] = []
    seen: list[Trial] = list(result.known)
    for spent, trial in _spending(result):
        seen.append(trial)
        best = best_of(result.goal, seen)
        if best is not None and (not path or best.values[result.goal.measure] != path[-1][1]):
            path.append((spent, best.values[result.goal.measure]))
    if path and result.spent_usd > path[-1][0]:
        path.append((result.spent_usd, path[-1][1]))
    return path


def _spending(result: Result) -> Iterator[tuple[float, Trial]]:
    """Each trial with what had been spent when it ended."""
    return zip(accumulate(trial.spent_usd for trial in result.trials), result.trials, strict=True)


def _hover(trial: Trial, goal: Goal) -> str:
    at_least = "at least " if trial.status == CUT else ""
    ended = "finished" if trial.finished else f"{trial.status}: {trial.why}" if trial.why else trial.status
    numbers = [
        f"{formatting.label(name)} "
        f"{at_least if name in (COST, TIME) else ''}{formatting.amount(name, number)}"
        for name, number in trial.values.items()
        if name in goal.measures or name in (COST, TIME)
    ]
    settings = [f"{name} = {formatting.value(said)}" for name, said in trial.configuration.items()]
    return lines(f"trial {trial.number}, {ended}", *settings, *numbers)


def effect(
    shown: Effect, answer: Configuration | None, bounds: Sequence[float], span: Sequence[float], name: str
) -> Figure:
    """One parameter's effect on one measure; `span` are the values that the measure's axis must hold."""
    x = list(shown.values) if shown.numeric else [plain(formatting.value(value)) for value in shown.values]
    hover = [
        lines(
            f"{shown.parameter} = {formatting.value(value)}",
            f"{formatting.label(shown.measure)} {formatting.amount(shown.measure, middle)} on average",
            f"{formatting.amount(shown.measure, low)} to {formatting.amount(shown.measure, high)}",
        )
        for value, middle, low, high in zip(shown.values, shown.middle, shown.low, shown.high, strict=True)
    ]
    curve: Trace = {
        **line(x, shown.middle.tolist(), "--accent", hover=hover),
        "mode": "lines+markers" if shown.numeric else "markers",
        "marker": {"color": "--accent", "size": 5 if shown.numeric else 8},
    }
    traces = [curve]
    if shown.numeric:
        traces = [*band(x, shown.low.tolist(), shown.high.tolist()), curve]
    else:
        curve["error_y"] = intervals(shown.middle.tolist(), shown.low.tolist(), shown.high.tolist())
    if answer is not None and answer.get(shown.parameter) in shown.values:
        place = shown.values.index(answer[shown.parameter])
        star = marks("best", "the answer", [(x[place], float(shown.middle[place]), hover[place])])
        traces.append({**star, "showlegend": False})
    layout = {
        "xaxis": parameter_axis(x, shown.values, shown.numeric, shown.log_values),
        "yaxis": axis(shown.measure, span, shown.log_measure, title=""),
        "shapes": [dotted(y=bound) for bound in bounds if min(span) <= bound <= max(span)],
        "margin": {"l": 68, "r": 8, "t": 8, "b": 44},
    }
    what = formatting.label(shown.measure)
    alt = f"effect of {shown.parameter} on {what}, averaged over the other parameters"
    return Figure(name, alt, traces, layout, height_px=230)


def forecast(expectations: Sequence[Expectation], measure: str, name: str) -> Figure:
    """What the model expected of each run before it, against what was measured."""
    log = measure in (COST, TIME)
    numbers = [n for item in expectations for n in (item.low, item.high, item.measured)]
    if log:  # a bound that reaches a thousand times beyond everything measured says "no idea" already
        measured = [item.measured for item in expectations]
        numbers = [min(max(n, min(measured) / 30), max(measured) * 30) for n in numbers]
    ends = [min(numbers), max(numbers)]
    traces = [line(ends, ends, "--muted", "as expected", dash="dash", width=1.5)]
    for kind, title, cut in (("feasible", "finished", False), ("cut", "cut (would be more)", True)):
        found = [item for item in expectations if item.cut is cut]
        if found:
            points = [(item.measured, item.expected, _told(item, measure)) for item in found]
            bars = intervals(
                [item.expected for item in found], [item.low for item in found], [item.high for item in found]
            )
            traces.append({**marks(kind, title, points), "error_y": bars})
    layout = {
        "xaxis": axis(measure, ends, log, title=f"{formatting.label(measure)} measured"),
        "yaxis": axis(measure, ends, log, title=f"{formatting.label(measure)} expected before"),
    }
    alt = f"{formatting.label(measure)} that the model expected before each run, against what was measured"
    return Figure(name, alt, traces, layout, height_px=400)


def _told(item: Expectation, measure: str) -> str:
    came = "at least " if item.cut else ""
    return lines(
        f"trial {item.number}",
        f"expected {formatting.amount(measure, item.expected)}",
        f"({formatting.amount(measure, item.low)} to {formatting.amount(measure, item.high)})",
        f"measured {came}{formatting.amount(measure, item.measured)}",
        *(f"{name} = {formatting.value(said)}" for name, said in item.configuration.items()),
    )
