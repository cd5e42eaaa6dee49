"""The figures of a training report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prudent.core.parameters import is_number
from prudent.reports import formatting
from prudent.reports.drawing import best_so_far
from prudent.reports.evaluation import Residuals, Silhouette
from prudent.reports.figure import (
    Figure,
    Trace,
    axis,
    dotted,
    line,
    lines,
    marks,
    parameter_axis,
    plain,
    steps,
    wide,
)
from prudent.training.algorithms.algorithm import LESS_IS_BETTER
from prudent.training.leaderboard import LeaderboardEntry

_MOST_POINTS = 1500
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "pentagon", "hexagon", "star-diamond")
_COLOURS = ("--finished", "--cut", "--failed", "--soft")
_NAMES = {"mcc": "MCC", "f1": "F1", "rmse": "RMSE", "mae": "MAE", "mse": "MSE", "r2": "R²"}


def metric_name(metric: str) -> str:
    """
    >>> metric_name("mcc"), metric_name("silhouette")
    ('MCC', 'silhouette')
    """
    return _NAMES.get(metric, metric)


def predictions(found: Residuals) -> Figure:
    """Predicted against actual; a perfect model has all on the line."""
    ends = [min(*found.predicted, *found.actual), max(*found.predicted, *found.actual)]
    exact = line(ends, ends, "--muted", dash="dash", width=1.5)
    layout = {
        "xaxis": axis("", ends, log=False, title="predicted"),
        "yaxis": axis("", ends, log=False, title="actual"),
    }
    dots = _dots(found.predicted, found.actual, found)
    alt = (
        f"actual against predicted values of {len(found.actual)} rows, with the line where both are the same"
    )
    return Figure("predictions", alt, [exact, dots], layout, height_px=360)


def residuals(found: Residuals) -> Figure:
    """What is left over against the prediction: a pattern here is something the model has not learned."""
    ends = [min(found.errors), max(found.errors), 0.0]
    layout = {
        "xaxis": axis("", found.predicted, log=False, title="predicted"),
        "yaxis": axis("", ends, log=False, title="actual minus predicted"),
        "shapes": [dotted(y=0.0)],
    }
    alt = f"residuals of {len(found.errors)} rows against their predictions"
    return Figure("residuals", alt, [_dots(found.predicted, found.errors, found)], layout, height_px=360)


def _dots(x: Sequence[float], y: Sequence[float], found: Residuals) -> Trace:
    hover = [
        lines(f"predicted {p:.4g}", f"actual {a:.4g}", f"off by {a - p:+.3g}")
        for p, a in zip(found.predicted, found.actual, strict=True)
    ]
    trace = marks("feasible", "rows", zip(x, y, hover, strict=True))
    return {**trace, "marker": {**trace["marker"], "size": 6, "opacity": 0.55}, "showlegend": False}


def silhouettes(found: Silhouette) -> Figure:
    """Every row's silhouette, cluster by cluster from high to low."""
    total = sum(len(cluster.values) for cluster in found.clusters)
    gap, place = max(total // 60, 1), 0
    traces: list[Trace] = []
    ticks: list[float] = []
    for number, cluster in enumerate(found.clusters):
        y = [place + each for each in range(len(cluster.values))]
        ticks.append(place + len(y) / 2)
        colour = _COLOURS[number % len(_COLOURS)]
        traces.append(
            {
                **line([0.0, *cluster.values, 0.0], [y[0], *y, y[-1] + 1], colour, width=1),
                "fill": "toself",
                "fillcolor": colour,
                "hoverinfo": "text",
                "text": lines(
                    f"cluster {cluster.number}, {formatting.share(cluster.part)}", f"mean {cluster.mean:.3f}"
                ),
            }
        )
        place += len(y) + gap
    low = min(min(cluster.values) for cluster in found.clusters)
    names = [f"cluster {c.number} · {formatting.share(c.part)} · {c.mean:.2f}" for c in found.clusters]
    layout = {
        "xaxis": axis("", [min(low, 0.0), 1.0], log=False, title="silhouette"),
        "yaxis": {"tickvals": ticks, "ticktext": names, "autorange": "reversed", "showgrid": False},
        "shapes": [dotted(x=0.0)],
    }
    alt = f"silhouettes of {total} rows in {len(found.clusters)} clusters"
    return Figure("silhouettes", alt, traces, layout, height_px=min(160 + 60 * len(found.clusters), 640))


def curve(said: Mapping[str, Any], metric: str, stopped: Mapping[str, Any] | None) -> Figure | None:
    """The metric by step, on the rows that train and those that judge."""
    sign = -1.0 if metric in LESS_IS_BETTER else 1.0
    traces: list[Trace] = []
    heights: list[float] = []
    for name, colour, dash in (("train", "--muted", "dash"), ("validation", "--accent", "solid")):
        points = [
            (float(x), sign * float(y))
            for x, y in zip(said["step"], said.get(name) or [None] * len(said["step"]), strict=True)
            if y is not None and math.isfinite(y)
        ]
        if not points:
            continue
        heights += [y for _, y in points]
        called = "rows it learns from" if name == "train" else "rows it is judged on"
        traces.append(
            {
                **line([x for x, _ in points], [y for _, y in points], colour, called, dash=dash, width=2.2),
                "mode": "lines+markers" if len(points) < 40 else "lines",
                "hoverinfo": "all",
                "marker": {"color": colour, "size": 5},
                "hovertemplate": f"step %{{x}}<br>{plain(metric_name(metric))} %{{y:.4g}}<extra></extra>",
            }
        )
    if not traces or max(len(trace["x"]) for trace in traces) < 2:
        return None
    xs = [x for trace in traces for x in trace["x"]]
    layout: dict[str, Any] = {
        "showlegend": True,
        "xaxis": axis("", xs, log=False, title="step"),
        "yaxis": axis("", heights, log=False, title=metric_name(metric)),
    }
    at = (stopped or {}).get("best")
    if at is not None and is_number(at) and min(xs) <= float(at) <= max(xs):
        layout["shapes"] = [dotted(x=float(at))]
    return Figure("curve", f"{metric_name(metric)} by training step", traces, layout, height_px=340)


def importance(said: Mapping[str, Any], most: int = 15) -> Figure | None:
    """The features that weigh most, as bars."""
    pairs = [
        (str(name), float(value))
        for name, value in zip(said["feature"], said["value"], strict=True)
        if value is not None and math.isfinite(value)
    ]
    pairs = sorted(pairs, key=lambda pair: -abs(pair[1]))[:most]
    if not pairs or not any(value for _, value in pairs):
        return None
    names = [name if len(name) <= 28 else name[:27] + "…" for name, _ in pairs]
    bars: Trace = {
        "type": "bar",
        "orientation": "h",
        "x": [value for _, value in pairs],
        "y": list(range(len(pairs))),
        "text": [lines(name, f"{value:.3g}") for name, value in pairs],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": "--accent"},
        "showlegend": False,
    }
    layout = {
        "xaxis": axis("", [0.0, *(value for _, value in pairs)], log=False, title="share of the weight"),
        "yaxis": {
            "tickvals": list(range(len(pairs))),
            "ticktext": [plain(name) for name in names],
            "autorange": "reversed",
            "showgrid": False,
        },
        "bargap": 0.35,
    }
    alt = "features that weigh most: " + ", ".join(names[:5])
    return Figure("importance", alt, [bars], layout, height_px=90 + 24 * len(pairs))


def quality(entries: Sequence[LeaderboardEntry], metric: str) -> Figure | None:
    """Every model by how long it trains and how good it is, by algorithm."""
    shown = thinned(entries)
    if len(shown) < 2:
        return None
    traces: list[Trace] = []
    kinds = list(dict.fromkeys(entry.algorithm for entry in shown))
    for number, kind in enumerate(kinds):
        own = [entry for entry in shown if entry.algorithm == kind]
        points = [(max(e.train_s, 1e-4), e.value, hover(e)) for e in own]
        trace = marks("feasible", kind, points)
        colour = _COLOURS[number % len(_COLOURS)]
        trace["marker"] = {
            "symbol": _SYMBOLS[number % len(_SYMBOLS)],
            "size": 8,
            "color": colour,
            "opacity": 0.75,
        }
        traces.append(trace)
    best = entries[0]
    traces.append(marks("best", "the best", [(max(best.train_s, 1e-4), best.value, hover(best))]))
    times = [max(entry.train_s, 1e-4) for entry in shown]
    layout = {
        "showlegend": True,
        "xaxis": axis("time_s", times, log=wide(times), title="time to train"),
        "yaxis": value_axis([entry.value for entry in shown], metric),
    }
    alt = f"{metric_name(metric)} of {len(shown)} models against their training time, by algorithm"
    return Figure("quality", alt, traces, layout, height_px=420)


def progress(entries: Sequence[LeaderboardEntry], metric: str) -> Figure | None:
    """The best so far, trial after trial."""
    ordered = sorted(entries, key=lambda entry: entry.trial)
    if len(ordered) < 3:
        return None
    path = best_so_far([(e.trial, e.value) for e in ordered], metric not in LESS_IS_BETTER)
    shown = thinned(ordered)
    dots = marks("feasible", "models", [(e.trial, e.value, hover(e)) for e in shown])
    dots["marker"] = {**dots["marker"], "size": 6, "opacity": 0.6}
    layout = {
        "showlegend": True,
        "xaxis": axis("", [ordered[0].trial, ordered[-1].trial], log=False, title="trial"),
        "yaxis": value_axis([entry.value for entry in shown] + [y for _, y in path], metric),
    }
    alt = f"{metric_name(metric)} of the best model so far, trial after trial"
    return Figure("progress", alt, [steps("best so far", path, "--best"), dots], layout, height_px=340)


def parameter(
    name: str,
    entries: Sequence[LeaderboardEntry],
    best: LeaderboardEntry,
    metric: str,
    span: Sequence[float],
    figure: str,
) -> Figure:
    """One parameter against the metric, a dot for each model of an algorithm."""
    shown = thinned(entries)
    said = [entry.hyperparameters[name] for entry in shown]
    numeric = all(is_number(value) for value in said)
    x = [float(v) for v in said] if numeric else [plain(formatting.value(v)) for v in said]
    points = [(where, entry.value, hover(entry)) for where, entry in zip(x, shown, strict=True)]
    dots = marks("feasible", "models", points)
    dots |= {"marker": {**dots["marker"], "size": 7, "opacity": 0.6}, "showlegend": False}
    traces = [dots]
    if name in best.hyperparameters:
        own = best.hyperparameters[name]
        where = float(own) if numeric and is_number(own) else plain(formatting.value(own))
        traces.append({**marks("best", "the best", [(where, best.value, hover(best))]), "showlegend": False})
    layout = {
        "xaxis": parameter_axis(x, said, numeric, log=numeric and wide([float(v) for v in said], 20.0)),
        "yaxis": value_axis(span, metric, title=""),
        "margin": {"l": 60, "r": 8, "t": 8, "b": 40},
    }
    return Figure(figure, f"{metric_name(metric)} against {name}", traces, layout, height_px=220)


def value_axis(values: Sequence[float], metric: str, title: str | None = None) -> dict[str, Any]:
    """An axis on which models that are no use do not press the others flat.

    >>> value_axis([0.9, 0.91, 0.92, 0.93, 0.94, -40.0], "r2")["range"][0] > 0
    True
    """
    return axis("", _of_use(values, metric), log=False, title=metric_name(metric) if title is None else title)


def beyond(entries: Sequence[LeaderboardEntry], metric: str) -> int:
    """How many of the models that are drawn lie beyond the edge of that axis."""
    values = [entry.value for entry in thinned(entries)]
    return len(values) - len(_of_use(values, metric))


def _of_use(values: Sequence[float], metric: str) -> list[float]:
    ordered = sorted(value for value in values if math.isfinite(value))
    if len(ordered) < 5:
        return ordered
    low, high = (ordered[round(part * (len(ordered) - 1))] for part in (0.25, 0.75))
    room = 4 * ((high - low) or abs(high) * 0.05 or 1.0)
    if metric in LESS_IS_BETTER:
        return [value for value in ordered if value <= high + room]
    return [value for value in ordered if value >= low - room]


def thinned(entries: Sequence[LeaderboardEntry]) -> list[LeaderboardEntry]:
    """At most as many as a page can draw, the best and an even choice of the others."""
    if len(entries) <= _MOST_POINTS:
        return list(entries)
    stride = len(entries) / _MOST_POINTS
    return [entries[int(place * stride)] for place in range(_MOST_POINTS)]


def hover(entry: LeaderboardEntry) -> str:
    """What a dot says of its model."""
    settings = [
        f"{name} = {formatting.value(value)}" for name, value in list(entry.hyperparameters.items())[:12]
    ]
    return lines(
        f"#{entry.rank} {entry.algorithm}",
        f"{metric_name(entry.metric)} {entry.value:.4g}",
        f"trained in {formatting.amount('time_s', entry.train_s)}",
        *settings,
    )
