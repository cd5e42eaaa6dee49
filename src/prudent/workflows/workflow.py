"""A workflow: activations and what must run before what; checked when it is built."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from prudent.core.errors import BadInput, did_you_mean
from prudent.workflows.activation import Activation

if TYPE_CHECKING:
    from prudent.workflows.simulation.graph import WorkflowGraph


@dataclass(frozen=True, eq=False)
class Workflow:
    """A directed acyclic graph of activations.

    `edges` are pairs (parent id, child id); the edges that files imply (who reads a file runs after its
    writer) are added. A file has one writer, unless it is named in `gathered`: then every writer keeps a copy
    of its own under that name, and a reader takes one. `notes` say what a reader of a trace had to mend.

    >>> from prudent.workflows.activation import File
    >>> workflow = Workflow("pair", (Activation("a", runtime_s=3, outputs=(File("x", 10),)),
    ...                              Activation("b", runtime_s=4, inputs=(File("x", 10),))))
    >>> workflow.edges
    (('a', 'b'),)
    """

    name: str
    activations: tuple[Activation, ...]
    edges: tuple[tuple[str, str], ...] = ()
    gathered: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "activations", tuple(self.activations))
        object.__setattr__(self, "gathered", frozenset(self.gathered))
        if not self.activations:
            raise BadInput(f'Workflow "{self.name}" has no activations; add at least one.')
        index = self.index
        writers = _writers(self.activations, self.gathered)
        edges = dict.fromkeys((str(parent), str(child)) for parent, child in self.edges)
        for parent, child in edges:
            for word in (parent, child):
                if word not in index:
                    raise BadInput(
                        f'Edge "{parent}" -> "{child}" names activation "{word}", which is not in workflow '
                        f'"{self.name}".{did_you_mean(word, index)} Add it, or remove the edge.'
                    )
        for activation in self.activations:
            for name in activation.staged():
                writer = writers.get(name)
                if writer is not None:
                    edges[writer, activation.id] = None
        object.__setattr__(self, "edges", tuple(edges))
        self.order  # noqa: B018  a cycle is an error now, not when it is first run

    @classmethod
    def read(cls, path: str | Path, dag: str | Path | None = None) -> Workflow:
        """Read Pegasus (YAML or DAX), WfFormat, a Nextflow trace, or the folder where Snakemake ran.

        They are told apart by what is in the file. A Nextflow trace needs the DAG that Nextflow drew: `dag`.
        """
        from prudent.workflows.formats.reading import read

        return read(Path(path), Path(dag) if dag is not None else None)

    def write(self, path: str | Path) -> None:
        """Write it as Pegasus 5 if the name ends in .yml or .yaml, else as WfFormat JSON."""
        from prudent.workflows.formats import pegasus, wfformat

        chosen = pegasus if Path(path).suffix.lower() in {".yml", ".yaml"} else wfformat
        Path(path).write_text(chosen.render(self), encoding="utf-8")

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of every activation by id."""
        index = {activation.id: position for position, activation in enumerate(self.activations)}
        if len(index) < len(self.activations):
            seen: set[str] = set()
            for activation in self.activations:
                if activation.id in seen:
                    raise BadInput(f'Two activations have the id "{activation.id}"; give each its own.')
                seen.add(activation.id)
        return index

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """Ids of the parents of every activation."""
        parents: dict[str, list[str]] = {activation.id: [] for activation in self.activations}
        for parent, child in self.edges:
            parents[child].append(parent)
        return parents

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Ids of the children of every activation."""
        children: dict[str, list[str]] = {activation.id: [] for activation in self.activations}
        for parent, child in self.edges:
            children[parent].append(child)
        return children

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Ids such that parents come first, otherwise as given (Kahn's algorithm, level by level)."""
        left = {child: len(parents) for child, parents in self.parents.items()}
        order = [name for name, count in left.items() if count == 0]
        for name in order:
            for child in self.children[name]:
                left[child] -= 1
                if left[child] == 0:
                    order.append(child)
        if len(order) < len(self.activations):
            raise BadInput(
                f'Workflow "{self.name}" has a cycle: {" -> ".join(self._cycle(left))}. '
                "Remove one of the edges."
            )
        return tuple(order)

    @cached_property
    def levels(self) -> dict[str, int]:
        """Depth of every activation: 0 for those without parents, else one more than the deepest parent."""
        levels: dict[str, int] = {}
        for name in self.order:
            levels[name] = 1 + max((levels[parent] for parent in self.parents[name]), default=-1)
        return levels

    @cached_property
    def graph(self) -> WorkflowGraph:
        """The same as flat arrays, for compiled code."""
        from prudent.workflows.simulation.graph import flatten

        return flatten(self)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what is run and in which order; a plan is checked against it.

        Run times are left out: better estimates make a better plan for the same workflow.
        """
        digest = hashlib.sha256()
        for activation in sorted(self.activations, key=lambda activation: activation.id):
            files = [sorted(file.name for file in files) for files in (activation.inputs, activation.outputs)]
            digest.update(repr((activation.id, activation.program, files)).encode())
        digest.update(repr(sorted(self.edges)).encode())
        return digest.hexdigest()[:16]

    def part(self, activations: Iterable[Activation]) -> Workflow:
        """The workflow of these activations (with other run times, say), with the edges among them."""
        kept = tuple(activations)
        names = {activation.id for activation in kept}
        edges = tuple(edge for edge in self.edges if edge[0] in names and edge[1] in names)
        return Workflow(self.name, kept, edges, self.gathered)

    def with_runtimes(self, runtimes_s: dict[str, dict[str, float]]) -> Workflow:
        """The same workflow with run times known for machines: activation id -> machine -> seconds."""
        known = {
            name: replace(self[name], runtimes_s={**self[name].runtimes_s, **times})
            for name, times in runtimes_s.items()
        }
        activations = tuple(known.get(activation.id, activation) for activation in self.activations)
        return replace(self, activations=activations)

    def __getitem__(self, name: str) -> Activation:
        if name not in self.index:
            raise BadInput(
                f'Workflow "{self.name}" has no activation "{name}".{did_you_mean(name, self.index)} '
                "Give the id of one it has."
            )
        return self.activations[self.index[name]]

    def __len__(self) -> int:
        return len(self.activations)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Workflow):
            return NotImplemented
        return (self.name, self.activations, set(self.edges), self.gathered) == (
            other.name,
            other.activations,
            set(other.edges),
            other.gathered,
        )

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _cycle(self, left: dict[str, int]) -> list[str]:
        """One cycle among the activations that never became ready: walk up until one comes back."""
        stuck = {name for name, count in left.items() if count > 0}
        path = [min(stuck)]
        while True:
            parent = next(parent for parent in self.parents[path[-1]] if parent in stuck)
            if parent in path:
                return [parent, *reversed(path[path.index(parent) :])]
            path.append(parent)


def _writers(activations: Iterable[Activation], gathered: frozenset[str]) -> dict[str, str]:
    """Who writes each file; two writers are an error unless the file is gathered."""
    writers: dict[str, str] = {}
    for activation in activations:
        for file in activation.outputs:
            other = writers.setdefault(file.name, activation.id)
            if other != activation.id and file.name not in gathered:
                raise BadInput(
                    f'File "{file.name}" is written by both "{other}" and "{activation.id}"; '
                    "give each its own file name."
                )
    return {name: writer for name, writer in writers.items() if name not in gathered}


def file_writers(workflow: Workflow) -> dict[str, list[str]]:
    """All writers of every file, gathered ones included."""
    writers: defaultdict[str, list[str]] = defaultdict(list)
    for activation in workflow.activations:
        for name in dict.fromkeys(file.name for file in activation.outputs):
            writers[name].append(activation.id)
    return dict(writers)
