"""The page of a comparison: strategies beside each other by CNO, regret and money."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from prudent.reports import page
from prudent.reports.drawing import PROGRAM_COLOURS
from prudent.reports.figure import Figure, Trace, axis, line, lines, plain, steps, wide
from prudent.reports.formatting import amount
from prudent.tuning.comparison import Comparison
from prudent.tuning.goal import COST

_POINTS = 200
"""Amounts of money at which curves are drawn."""


def write_comparison_report(comparison: Comparison, path: Path) -> Path:
    """Write a self-contained HTML page about a comparison; answers where it is."""
    return page.write(comparison_report(comparison), path)


def comparison_report(comparison: Comparison) -> str:
    """The page itself, as text."""
    figures = [distance_by_money(comparison), found_by_money(comparison), regret_by_seed(comparison)]
    return page.render(
        "comparison.html.j2",
        figures,
        title=f"Strategies on {comparison.job}",
        comparison=comparison,
        seeds=len(next(iter(comparison.replays.values()))),
        pictures=dict(zip(("distance", "found", "regret"), figures, strict=True)),
        distance=lambda value: distance_text(comparison, value),
    )


def distance_text(comparison: Comparison, distance: float) -> str:
    """A CNO or a regret as a number; "none" where a seed has no answer."""
    if not math.isfinite(distance):
        return "none"
    if comparison.optimum.has_cno:
        return f"{distance:.3f}"
    return amount(comparison.goal.measure, distance)


def distance_by_money(comparison: Comparison) -> Figure:
    """The median distance of the answers from the optimum over the money spent, and its 90 % quantile."""
    moments = _moments(comparison)
    traces: list[Trace] = []
    heights: list[float] = []
    for place, name in enumerate(comparison.replays):
        by_moment = np.array([comparison.distances_at(name, usd) for usd in moments])
        for quantile, dash in ((0.5, "solid"), (0.9, "dot")):
            curve = np.quantile(by_moment, quantile, axis=1, method="higher")
            known = np.isfinite(curve)
            if known.any():
                points = list(zip(moments[known].tolist(), curve[known].tolist(), strict=True))
                label = name if quantile == 0.5 else f"{name}, 90 %"
                traces.append(steps(label, points, _colour(place), dash))
                heights += [height for _, height in points]
    measure = "" if comparison.optimum.has_cno else comparison.goal.measure
    layout = {
        "showlegend": True,
        "xaxis": axis(COST, [0.0, comparison.budget_usd], log=False, title="money spent"),
        "yaxis": axis(measure, heights, log=wide(heights), title=comparison.distance_name),
    }
    alt = f"median and 90 % quantile of the {comparison.distance_name} of the answers, by money spent"
    return Figure("distance", alt, traces, layout, height_px=420)


def found_by_money(comparison: Comparison) -> Figure:
    """The share of the seeds whose answer is the optimum, over the money spent."""
    moments = _moments(comparison)
    traces = []
    for place, (name, replays) in enumerate(comparison.replays.items()):
        shares = [
            float(np.mean([comparison.optimum.is_found(replay.value_at(usd)) for replay in replays]))
            for usd in moments
        ]
        traces.append(steps(name, list(zip(moments.tolist(), shares, strict=True)), _colour(place)))
    layout = {
        "showlegend": True,
        "xaxis": axis(COST, [0.0, comparison.budget_usd], log=False, title="money spent"),
        "yaxis": axis("", [0.0, 1.0], log=False, title="share of seeds with the optimum"),
    }
    return Figure("found", "share of the seeds that have the optimum, by money spent", traces, layout)


def regret_by_seed(comparison: Comparison) -> Figure:
    """The regret of each seed's final answer, sorted: the whole distribution, not only its middle."""
    measure = comparison.goal.measure
    traces: list[Trace] = []
    heights: list[float] = []
    for place, (name, replays) in enumerate(comparison.replays.items()):
        regrets = sorted((comparison.optimum.regret(replay.value), replay.seed) for replay in replays)
        known = [(regret, seed) for regret, seed in regrets if math.isfinite(regret)]
        shares = [(at + 1) / len(regrets) for at in range(len(known))]
        hover = [lines(name, f"seed {seed}", f"{amount(measure, regret)} worse") for regret, seed in known]
        curve = line(shares, [regret for regret, _ in known], _colour(place), plain(name), hover=hover)
        traces.append({**curve, "mode": "lines+markers"})
        heights += [regret for regret, _ in known]
    layout = {
        "showlegend": True,
        "xaxis": axis("", [0.0, 1.0], log=False, title="share of seeds with no more"),
        "yaxis": axis(measure, heights or [0.0, 1.0], log=False, title="regret of the answer"),
    }
    return Figure("regret", "regret of the final answers of all seeds, sorted", traces, layout)


def _moments(comparison: Comparison) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.linspace(0.0, comparison.budget_usd, _POINTS)[1:]


def _colour(place: int) -> str:
    return f"--p{place % PROGRAM_COLOURS}"
