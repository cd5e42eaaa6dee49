"""HEFT on parts of a fleet: the quick way to plans that are cheap, because few machines are rented."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from prudent.workflows.graph import Ints
from prudent.workflows.problem import Problem
from prudent.workflows.schedulers.heft import Heft
from prudent.workflows.simulator import Placement

_WORK = 100_000_000
"""So many pairs of activation and lane may be looked at in all."""
_MOST = 400
"""No more parts than this."""


def placements_on_parts(problem: Problem) -> Iterator[Placement]:
    """HEFT's plan for every mix of how many VMs of each kind, as many mixes as are affordable."""
    per_part = len(problem.tasks) * len(problem.lanes)
    for vms in _parts(problem, max(min(_MOST, _WORK // per_part), 1)):
        keep = np.flatnonzero(np.isin(problem.lanes["vm"], vms))
        part = replace(problem, lanes=problem.lanes[keep])
        placement = Heft().propose(part, 0).placement
        yield Placement(keep[placement.lane], placement.order)


def _parts(problem: Problem, most: int) -> Iterator[Ints]:
    """Sets of VMs: the first of each kind (kinds differ in price too); coarser steps when there are many."""
    kinds: dict[tuple[int, float], list[int]] = {}
    for at, vm in enumerate(problem.vms):
        kinds.setdefault((int(vm["kind"]), float(vm["price"])), []).append(at)
    levels = int(most ** (1 / len(kinds)))
    if levels < 2:
        for members in itertools.islice(kinds.values(), most):
            yield np.array(members)
        return
    steps = [_steps(len(members), levels) for members in kinds.values()]
    for counts in itertools.product(*steps):
        chosen = [members[:count] for members, count in zip(kinds.values(), counts, strict=True)]
        if any(chosen):
            yield np.array([at for members in chosen for at in members])


def _steps(count: int, levels: int) -> list[int]:
    """Up to `levels` numbers from 0 to `count`.

    >>> _steps(3, 10), _steps(100, 4)
    ([0, 1, 2, 3], [0, 1, 10, 100])
    """
    if count < levels:
        return list(range(count + 1))
    return [0, *sorted({round(step) for step in np.geomspace(1, count, levels - 1)})]
