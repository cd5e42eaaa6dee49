"""Task clustering: merge small activations into larger ones, so that each overhead is paid once for many."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Literal

from prudent.core.errors import BadInput, unknown
from prudent.workflows.activation import Activation, File, Usage
from prudent.workflows.workflow import Workflow

Method = Literal["horizontal", "vertical", "balanced"]


def cluster(workflow: Workflow, method: Method, per_level: int = 8) -> Workflow:
    """The workflow with activations merged; each keeps the ids of its `members`, in the order to run them.

    `vertical`: chains of one parent and one child become one. `horizontal`: the activations of one level and
    program are dealt into at most `per_level` groups of equal number. `balanced`: the same, but with about
    equal run time (the longest first, always into the shortest group).

    >>> from prudent.workflows.formats.generate import generate
    >>> len(cluster(generate("montage", 50), "horizontal", per_level=4))
    18
    """
    if method == "vertical":
        return _merge(workflow, _chains(workflow))
    if method not in ("horizontal", "balanced"):
        raise unknown("kind of clustering", method, ("horizontal", "vertical", "balanced"))
    if per_level < 1:
        raise BadInput(f"There are {per_level} groups per level; give at least one.")
    alike: defaultdict[tuple[int, str], list[Activation]] = defaultdict(list)
    for activation in workflow.activations:
        alike[workflow.levels[activation.id], activation.program].append(activation)
    groups = [group for same in alike.values() for group in _deal(same, per_level, method == "balanced")]
    return _merge(workflow, groups)


def _deal(same: list[Activation], count: int, balanced: bool) -> list[list[str]]:
    count = min(count, len(same))
    if not balanced:
        cuts = [len(same) * at // count for at in range(count + 1)]
        return [[a.id for a in same[first:last]] for first, last in pairwise(cuts)]
    groups: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for activation in sorted(same, key=lambda activation: -activation.runtime_s):
        at = min(range(count), key=lambda at: (loads[at], len(groups[at])))
        groups[at].append(activation.id)
        loads[at] += activation.runtime_s
    return groups


def _chains(workflow: Workflow) -> list[list[str]]:
    """Maximal runs in which each has one child that has one parent."""
    chains: list[list[str]] = []
    head: dict[str, list[str]] = {}
    for name in workflow.order:
        parents = workflow.parents[name]
        if len(parents) == 1 and len(workflow.children[parents[0]]) == 1:
            chain = head[parents[0]]
        else:
            chain = []
            chains.append(chain)
        chain.append(name)
        head[name] = chain
    return chains


def _merge(workflow: Workflow, groups: Iterable[list[str]]) -> Workflow:
    names: dict[str, str] = {}
    merged = []
    for group in groups:
        name = group[0] if len(group) == 1 else f"{group[0]}+{len(group) - 1}"
        names.update(dict.fromkeys(group, name))
        merged.append(_merged(name, [workflow[member] for member in group]))
    edges = dict.fromkeys((names[parent], names[child]) for parent, child in workflow.edges)
    inside = tuple(edge for edge in edges if edge[0] != edge[1])
    return Workflow(workflow.name, tuple(merged), inside, workflow.gathered, workflow.notes)


def _merged(name: str, parts: list[Activation]) -> Activation:
    """One activation that does what all parts do, one after the other."""
    if len(parts) == 1:
        return parts[0]
    outputs = {file.name: file for part in parts for file in part.outputs}
    inputs: dict[str, File] = {}
    for part in parts:
        inputs.update({file.name: file for file in part.inputs if file.name not in outputs})
    programs = dict.fromkeys(part.program for part in parts)
    return Activation(
        name,
        "+".join(programs),
        sum(part.runtime_s for part in parts),
        tuple(inputs.values()),
        tuple(outputs.values()),
        _one_after_the_other([part.command for part in parts]),
        runtimes_s=_summed([part.runtimes_s for part in parts]),
        members=tuple(member for part in parts for member in (part.members or (part.id,))),
        cores=max(part.cores for part in parts),
        memory_bytes=max(part.memory_bytes for part in parts),
        usage=_used_together(parts),
    )


def _used_together(parts: list[Activation]) -> Usage:
    """One after the other: the highest peak of memory, the mean of busy cores, all that was moved."""
    run_s = sum(part.runtime_s for part in parts)
    busy_s = sum(part.usage.cores * part.runtime_s for part in parts)
    return Usage(
        busy_s / run_s if run_s else 0.0,
        max(part.usage.memory_bytes for part in parts),
        sum(part.usage.read_bytes for part in parts),
        sum(part.usage.written_bytes for part in parts),
    )


def _one_after_the_other(commands: list[tuple[str, ...]]) -> tuple[str, ...]:
    """One command for all parts, which ends at the first that fails; none if a part has none."""
    if not all(commands):
        return ()
    return ("sh", "-c", " && ".join(shlex.join(command) for command in commands))


def _summed(times: list[Mapping[str, float]]) -> dict[str, float]:
    """Run times for the machines on which every part's is known."""
    known = set(times[0]).intersection(*times[1:])
    return {machine: sum(each[machine] for each in times) for machine in sorted(known)}
