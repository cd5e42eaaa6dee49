"""The money of an execution over time, beside its forecast and its limits."""

from __future__ import annotations

from collections.abc import Sequence

from prudent.reports import words
from prudent.reports.plots import Figure, Trace, axis, dotted, lines, marks
from prudent.reports.workflow_charts import time_axis
from prudent.workflows.execute.record import Run
from prudent.workflows.rent import Rent

_FAR = 3.0
"""A limit that is so many times further away than all else is not drawn."""


def money(run: Run, rented: Sequence[Rent]) -> Figure | None:
    """What was paid until each moment; a star with its intervals where the end was forecast."""
    if not rented or run.cost_usd <= 0:
        return None
    points = paid(rented)
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "paid",
            "x": [at_s for at_s, _ in points],
            "y": [usd for _, usd in points],
            "text": [
                lines(words.amount("time_s", at_s), words.amount("cost_usd", usd)) for at_s, usd in points
            ],
            "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": "--best", "width": 2.5},
        }
    ]
    xs, ys = [points[-1][0]], [0.0, points[-1][1]]
    ahead = run.forecast
    if ahead is not None:
        cost, time = ahead.cost_usd, ahead.makespan_s
        told = lines("forecast of the end", ahead.cost_text, ahead.makespan_text)
        traces.append(
            {
                **marks("best", "forecast, with 90 % intervals", [(time.expected, cost.expected, told)]),
                "error_x": _bars(time.low, time.expected, time.high),
                "error_y": _bars(cost.low, cost.expected, cost.high),
            }
        )
        xs.append(time.high)
        ys.append(cost.high)
    shapes, notes = [], []
    if run.budget_usd is not None and run.budget_usd < _FAR * max(ys):
        ys.append(run.budget_usd)
        shapes.append(dotted(y=run.budget_usd))
        notes.append(_note("budget", x=0.0, y=run.budget_usd))
    if run.deadline_s is not None and run.deadline_s < _FAR * max(xs):
        xs.append(run.deadline_s)
        shapes.append(dotted(x=run.deadline_s))
        notes.append({**_note("deadline ", x=run.deadline_s, y=0.0), "xanchor": "right"})
    layout = {
        "xaxis": time_axis(max(xs), title="time since the machines were ordered"),
        "yaxis": axis("cost_usd", ys, log=False, title="paid"),
        "shapes": shapes,
        "annotations": notes,
    }
    alt = f"{words.amount('cost_usd', run.cost_usd)} paid over {words.amount('time_s', points[-1][0])}"
    return Figure("money", alt, traces, layout, height_px=320)


def paid(rented: Sequence[Rent]) -> list[tuple[float, float]]:
    """(moment, dollars until then): each machine's cost grows evenly while it is rented.

    >>> paid([Rent("a", "m", 1.0, 0.0, 10.0, 0.0, 0, 2.0), Rent("b", "m", 1.0, 5.0, 10.0, 0.0, 0, 1.0)])
    [(0.0, 0.0), (5.0, 1.0), (10.0, 3.0)]
    """
    moments = sorted({rent.from_s for rent in rented} | {rent.until_s for rent in rented})
    return [(at_s, sum(_until(rent, at_s) for rent in rented)) for at_s in moments]


def _until(rent: Rent, at_s: float) -> float:
    if rent.rented_s <= 0:
        return rent.cost_usd if at_s >= rent.until_s else 0.0
    return rent.cost_usd * min(max((at_s - rent.from_s) / rent.rented_s, 0.0), 1.0)


def _bars(low: float, middle: float, high: float) -> Trace:
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(high - middle, 0.0)],
        "arrayminus": [max(middle - low, 0.0)],
        "color": "--accent",
        "thickness": 1.5,
    }


def _note(text: str, x: float, y: float) -> Trace:
    return {
        "text": text,
        "x": x,
        "y": y,
        "showarrow": False,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"color": "--muted", "size": 11},
    }
