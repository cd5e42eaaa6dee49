"""The DAG that Nextflow draws (Graphviz or Mermaid), reduced to its processes: which feeds which."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from prudent.core.errors import BadInput

_DOT_NODE = re.compile(r'^\s*(\w+)\s*\[(.*label="[^"]*".*)\]\s*;?\s*$')
_DOT_LABEL = re.compile(r'(?<!x)label="([^"]*)"')
_DOT_EDGE = re.compile(r"^\s*(\w+)\s*->\s*(\w+)")
_MERMAID_GROUP = re.compile(r'^\s*subgraph\s+"?([^"\[]*?)"?\s*(?:\[([^\]]*)\])?\s*$')
_MERMAID_PROCESS = re.compile(r"^\s*(\w+)\(\[\s*\"?(.*?)\"?\s*\]\)\s*$")
_MERMAID_EDGE = re.compile(r"^\s*(\w+)\s*-->\s*(?:\|[^|]*\|)?\s*(\w+)\s*$")


def process_edges(text: str, processes: tuple[str, ...], name: str) -> list[tuple[str, str]]:
    """Pairs of processes of which the first feeds the second, directly or through operators."""
    labels, edges = _dot(text) if text.lstrip().startswith("digraph") else _mermaid(text)
    if not edges:
        raise BadInput(
            f'The DAG beside the trace "{name}" has no arrows; give what Nextflow writes with '
            "`-with-dag dag.dot` or `-with-dag dag.mmd`."
        )
    named = {node: process for node, label in labels.items() if (process := _match(label, processes))}
    missing = sorted(set(processes) - set(named.values()))
    if missing:
        raise BadInput(
            f'The DAG has no process "{missing[0]}", which the trace "{name}" has; give the DAG of the '
            "same run."
        )
    return list(dict.fromkeys(_contracted(named, edges)))


def _match(label: str, processes: Iterable[str]) -> str | None:
    """The process of the trace with this full name, or the only one whose last part it is."""
    if label in processes:
        return label
    ends = [process for process in processes if process.endswith(f":{label}")]
    return ends[0] if len(ends) == 1 else None


def _contracted(named: dict[str, str], edges: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    children: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        children[source].append(target)
    for start, process in named.items():
        seen, stack = {start}, [start]
        while stack:
            for target in children[stack.pop()]:
                if target in seen:
                    continue
                seen.add(target)
                if target in named:
                    yield process, named[target]
                else:
                    stack.append(target)


def _dot(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Processes are the vertices with a label of their own; channels and operators have an empty one."""
    labels: dict[str, str] = {}
    edges = []
    for line in text.splitlines():
        if found := _DOT_EDGE.match(line):
            edges.append((found[1], found[2]))
        elif (node := _DOT_NODE.match(line)) and (label := _DOT_LABEL.search(node[2])) and label[1]:
            labels[node[1]] = label[1]
    return labels, edges


def _mermaid(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Processes are drawn as `v1([NAME])`, inside the boxes of the workflows that call them."""
    labels: dict[str, str] = {}
    edges = []
    groups: list[str] = []
    for line in text.splitlines():
        if found := _MERMAID_EDGE.match(line):
            edges.append((found[1], found[2]))
        elif found := _MERMAID_GROUP.match(line):
            groups.append((found[2] or found[1]).strip().strip('"'))
        elif line.strip() == "end" and groups:
            groups.pop()
        elif found := _MERMAID_PROCESS.match(line):
            labels[found[1]] = ":".join([*(group for group in groups if group.strip()), found[2]])
    return labels, edges
