"""The picture of a workflow's graph: levels from left to right, what is behind what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from prudent.reports import formatting
from prudent.reports.figure import Figure, Trace, line, lines, plain
from prudent.reports.workflow_charts import MOST_NODES, palette
from prudent.workflows.workflow import Workflow

MOST_EDGES = 4000
_ARC = 16


@dataclass(frozen=True)
class Node:
    """One activation, or all of one program on one level."""

    level: int
    program: str
    members: tuple[str, ...]


def graph(workflow: Workflow, chain: Sequence[str] = ()) -> Figure:
    """Levels from left to right; `chain` is the path that decides the makespan, drawn stronger."""
    folded = len(workflow) > MOST_NODES
    nodes = _nodes(workflow, folded)
    of = {member: at for at, node in enumerate(nodes) for member in node.members}
    places = _places(workflow, nodes, of)
    edges = Counter((of[parent], of[child]) for parent, child in workflow.edges)
    links = ((of[one], of[two]) for one, two in pairwise(chain))
    strong = {link for link in links if link in edges}  # some wait for a machine, not for a parent
    traces = [*_edge_traces(places, edges, strong, folded), *_node_traces(workflow, nodes, places, folded)]
    tallest = max(Counter(node.level for node in nodes).values())
    depth = max(node.level for node in nodes)
    layout: dict[str, Any] = {
        "xaxis": {
            "title": {"text": "level"},
            "tickvals": list(range(depth + 1)),
            "range": [-0.5, depth + 0.5],
            "showgrid": False,
        },
        "yaxis": {"visible": False, "range": [-0.54 * max(tallest, 2), 0.54 * max(tallest, 2)]},
        "margin": {"l": 14, "r": 14, "t": 10, "b": 44},
    }
    alt = f"graph of {len(workflow)} activations on {depth + 1} levels with {len(workflow.edges)} edges"
    height = min(max(140 + 17 * tallest, 260), 620) if not folded else min(140 + 70 * tallest, 560)
    return Figure("graph", alt, traces, layout, height_px=height)


def _nodes(workflow: Workflow, folded: bool) -> list[Node]:
    levels = workflow.levels
    if not folded:
        return [Node(levels[name], workflow[name].program, (name,)) for name in workflow.order]
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for name in workflow.order:
        groups[levels[name], workflow[name].program].append(name)
    return [Node(level, program, tuple(members)) for (level, program), members in groups.items()]


def _places(workflow: Workflow, nodes: Sequence[Node], of: dict[str, int]) -> list[tuple[float, float]]:
    """Within a level, nodes stand near the middle of their parents, so that few edges cross."""
    by_level: dict[int, list[int]] = defaultdict(list)
    for at, node in enumerate(nodes):
        by_level[node.level].append(at)
    heights: dict[int, float] = {}
    for level in sorted(by_level):
        wanted = {}
        for rank, at in enumerate(by_level[level]):
            parents = {of[parent] for member in nodes[at].members for parent in workflow.parents[member]}
            near = [heights[parent] for parent in parents if parent in heights]
            wanted[at] = (sum(near) / len(near) if near else 0.0, rank)
        ranked = sorted(by_level[level], key=lambda at: (-wanted[at][0], wanted[at][1]))
        for rank, at in enumerate(ranked):
            heights[at] = (len(ranked) - 1) / 2 - rank
    return [(float(node.level), heights[at]) for at, node in enumerate(nodes)]


def _edge_traces(
    places: Sequence[tuple[float, float]],
    edges: Counter[tuple[int, int]],
    strong: set[tuple[int, int]],
    folded: bool,
) -> list[Trace]:
    """Thin lines for what must wait for what, thicker where many do, strong for the deciding path."""
    common = [edge for edge, _ in edges.most_common(MOST_EDGES)]
    traces = []
    for colour, width, some in (
        ("--muted" if folded else "--line", 1.2, [edge for edge in common if edge not in strong]),
        ("--accent", 2.6, sorted(strong)),
    ):
        x: list[float | None] = []
        y: list[float | None] = []
        for one, two in some:
            path = _path(places[one], places[two], folded)
            x += [*(at for at, _ in path), None]
            y += [*(height for _, height in path), None]
        if some:
            traces.append(
                line(x, y, colour, "decides the makespan" if colour == "--accent" else "", width=width)
            )
    return traces


def _path(one: tuple[float, float], two: tuple[float, float], folded: bool) -> list[tuple[float, float]]:
    """A straight line; an arc where a folded graph's edge would run through the nodes between."""
    span = two[0] - one[0]
    if not folded or span <= 1:
        return [one, two]
    points = []
    for step in range(_ARC + 1):
        part = step / _ARC
        bow = 4 * part * (1 - part) * 0.3 * min(span - 1, 2.5)
        points.append((one[0] + part * span, one[1] + part * (two[1] - one[1]) + bow))
    return points


def _node_traces(
    workflow: Workflow, nodes: Sequence[Node], places: Sequence[tuple[float, float]], folded: bool
) -> list[Trace]:
    colours = palette(workflow)
    traces = []
    for program, colour in colours.items():
        own = [(node, place) for node, place in zip(nodes, places, strict=True) if node.program == program]
        if not own:
            continue
        sizes = [min(10 + 7 * len(str(len(node.members))), 34) if folded else 10 for node, _ in own]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text" if folded else "markers",
                "name": plain(program or "no program named"),
                "x": [place[0] for _, place in own],
                "y": [place[1] for _, place in own],
                "text": [f"{plain(program)} × {len(node.members)}" for node, _ in own] if folded else None,
                "textposition": "bottom center",
                "textfont": {"color": "--soft", "size": 11},
                "customdata": [_told(workflow, node) for node, _ in own],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {
                    "color": colour,
                    "size": sizes,
                    "opacity": 1,
                    "line": {"color": "--paper", "width": 1},
                },
                "showlegend": not folded,
            }
        )
    return traces


def _told(workflow: Workflow, node: Node) -> str:
    work_s = sum(workflow[member].runtime_s for member in node.members)
    if len(node.members) > 1:
        return lines(
            f"{len(node.members)} × {node.program}", f"{formatting.amount('time_s', work_s)} of work in all"
        )
    activation = workflow[node.members[0]]
    parents, children = workflow.parents[activation.id], workflow.children[activation.id]
    return lines(
        f"{activation.id} ({activation.program})" if activation.program else activation.id,
        f"{formatting.amount('time_s', work_s)} at the reference speed",
        f"waits for {len(parents)}, {len(children)} wait for it",
        f"reads {len(activation.inputs)} files, writes {len(activation.outputs)}",
    )
