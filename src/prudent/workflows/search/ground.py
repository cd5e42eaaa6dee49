"""The problem as the search sees it: few flat arrays, so that a plan's times take microseconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prudent.workflows.graph import Floats, Ints
from prudent.workflows.problem import Problem
from prudent.workflows.records import Records
from prudent.workflows.replay import Replayer
from prudent.workflows.schedulers import ranks


class Ground(NamedTuple):
    """What does not change while plans are tried; the records serve storages that only `replay` knows.

    `held_s[i, k]`: how long activation i holds a lane of kind k. `tail_s[i]`: the least time from its end to
    the end of the workflow. `beneath[i]`: its parents are parents[beneath[i]:beneath[i + 1]], likewise
    `above` and `children`.
    """

    held_s: Floats
    tail_s: Floats
    post_s: Floats
    engine_s: Floats
    beneath: Ints
    parents: Ints
    above: Ints
    children: Ints
    kind: Ints
    vm: Ints
    boot_s: Floats
    tasks: Records
    links: Records
    lanes: Records
    vms: Records
    rules: Records
    run_s: Floats
    present: Records
    sums: Floats


def ground_of(problem: Problem) -> Ground:
    """The arrays of a problem; the search writes into copies of its records only."""
    replayer = Replayer(problem)
    fixed_s = problem.tasks["hold_s"] + problem.tasks["stage_s"]
    held_s = np.ascontiguousarray(problem.run_s + fixed_s[:, None])
    least_s = held_s.min(axis=1)
    graph = problem.graph
    return Ground(
        held_s=held_s,
        tail_s=ranks.upward(problem, least_s, 0.0) - least_s,
        post_s=np.ascontiguousarray(problem.tasks["post_s"]),
        engine_s=np.ascontiguousarray(problem.tasks["engine_s"]),
        beneath=graph.parent_ptr,
        parents=graph.parents,
        above=graph.child_ptr,
        children=graph.children,
        kind=np.ascontiguousarray(problem.lanes["kind"]),
        vm=np.ascontiguousarray(problem.lanes["vm"]),
        boot_s=np.ascontiguousarray(problem.vms["boot_s"]),
        tasks=replayer.tasks,
        links=problem.links,
        lanes=problem.lanes,
        vms=replayer.vms,
        rules=problem.rules,
        run_s=problem.run_s,
        present=replayer.present,
        sums=replayer.sums,
    )
