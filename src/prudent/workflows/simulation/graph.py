"""A workflow as flat arrays, the only form in which compiled code reads it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from prudent.workflows.simulation.compiled import Floats, Ints
from prudent.workflows.workflow import Workflow, file_writers


class WorkflowGraph(NamedTuple):
    """n activations by position; lists of lists as (ptr, values): those of i are values[ptr[i]:ptr[i + 1]].

    `edge_bytes` runs along `parents`: what the child reads that this parent wrote. `staged` are the inputs an
    activation has to fetch (distinct, not written by itself), `external_bytes` counts those of them that no
    activation writes.
    """

    runtime_s: Floats
    staged_bytes: Floats
    external_bytes: Floats
    parent_ptr: Ints
    parents: Ints
    edge_bytes: Floats
    child_ptr: Ints
    children: Ints
    child_bytes: Floats
    staged_ptr: Ints
    staged: Ints
    staged_sizes: Floats
    written_ptr: Ints
    written: Ints
    order: Ints
    merged: Floats
    files: int


def flatten(workflow: Workflow) -> WorkflowGraph:
    """The arrays of a workflow, in the order of its activations."""
    index, activations = workflow.index, workflow.activations
    writers = file_writers(workflow)
    file_ids: dict[str, int] = {}
    staged = [activation.staged() for activation in activations]
    written = [dict.fromkeys(file.name for file in activation.outputs) for activation in activations]
    for name in chain(*staged, *written):
        file_ids.setdefault(name, len(file_ids))
    flow = _flows(workflow, staged, writers)
    parents = [[index[parent] for parent in workflow.parents[activation.id]] for activation in activations]
    children = [[index[child] for child in workflow.children[activation.id]] for activation in activations]
    parent_ptr, parent_values = _ragged(parents)
    child_ptr, child_values = _ragged(children)
    staged_ptr, staged_values = _ragged([[file_ids[name] for name in names] for names in staged])
    written_ptr, written_values = _ragged([[file_ids[name] for name in names] for names in written])
    return WorkflowGraph(
        runtime_s=np.array([activation.runtime_s for activation in activations], dtype=np.float64),
        staged_bytes=np.array([sum(names.values()) for names in staged], dtype=np.float64),
        external_bytes=np.array(
            [sum(size for name, size in names.items() if name not in writers) for names in staged],
            dtype=np.float64,
        ),
        parent_ptr=parent_ptr,
        parents=parent_values,
        edge_bytes=np.array(
            [flow.get((p, c), 0.0) for c, row in enumerate(parents) for p in row], dtype=np.float64
        ),
        child_ptr=child_ptr,
        children=child_values,
        child_bytes=np.array(
            [flow.get((p, c), 0.0) for p, row in enumerate(children) for c in row], dtype=np.float64
        ),
        staged_ptr=staged_ptr,
        staged=staged_values,
        staged_sizes=np.array([size for names in staged for size in names.values()], dtype=np.float64),
        written_ptr=written_ptr,
        written=written_values,
        order=np.array([index[name] for name in workflow.order], dtype=np.int64),
        merged=np.array([float(len(activation.members) > 1) for activation in activations]),
        files=len(file_ids),
    )


def _flows(
    workflow: Workflow, staged: Sequence[dict[str, float]], writers: dict[str, list[str]]
) -> dict[tuple[int, int], float]:
    """Bytes that go along each edge."""
    flow: dict[tuple[int, int], float] = {}
    for child, names in enumerate(staged):
        for name, size in names.items():
            for writer in writers.get(name, ()):
                key = workflow.index[writer], child
                flow[key] = flow.get(key, 0.0) + size
    return flow


def _ragged(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    ptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=ptr[1:])
    return ptr, np.array([value for row in rows for value in row], dtype=np.int64)
