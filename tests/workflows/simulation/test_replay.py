"""The quick way and the simulator agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from prudent.workflows import Fleet, Vm, World
from prudent.workflows.formats.generate import generate, shapes
from prudent.workflows.schedulers.list_scheduling import priority_order
from prudent.workflows.schedulers.registry import scheduler_named
from prudent.workflows.simulation.problem import Placement, build_problem, sample_world
from prudent.workflows.simulation.records import PLAN, PRIORITY
from prudent.workflows.simulation.replay import replay
from prudent.workflows.simulation.simulator import run_simulation

FLEET = Fleet(tuple(Vm(f"v{at}", f"m{at % 2}", 1000 + 2000 * (at % 2), usd_per_h=1 + at) for at in range(4)))
WORLDS = [
    World(bandwidth_mb_s=20, engine_s=1, queue_s=2, post_s=0.5, boot_s=30),
    World(storage="local", bandwidth_mb_s=20),
    World(storage="network", bandwidth_mb_s=20),
    World(boot="first-use", boot_s=20, billing="hour"),
]


@pytest.mark.parametrize(("shape", "world"), list(itertools.product(shapes(), WORLDS)))
def test_replay_equals_simulation(shape, world):
    problem = build_problem(generate(shape, 40, seed=4), FLEET, world)
    sample = sample_world(problem, world, 0)
    run, free_s = problem.run_arrays(), np.zeros(len(problem.lanes))
    for name in ("heft", "mct", "random"):
        placement = scheduler_named(name).propose(problem, 1).placement
        trace = run_simulation(problem, sample, PLAN, placement=placement)
        assert replay(run, placement.lane, placement.order, free_s) == pytest.approx(trace.makespan_s)
        assert run.tasks["finish_s"] == pytest.approx(trace.tasks["finish_s"])
        # From these the search computes the bill.
        used = np.unique(problem.lanes["vm"][placement.lane])
        assert run.vms["from_s"][used] == pytest.approx(trace.vms["from_s"][used])
        assert free_s == pytest.approx(_last_ends(problem, trace))


def test_any_topological_order_will_do():
    world = World()
    problem = build_problem(generate("montage", 30, seed=4), FLEET, world)
    sample = sample_world(problem, world, 0)
    rng = np.random.default_rng(3)
    run, free_s = problem.run_arrays(), np.zeros(len(problem.lanes))
    for _ in range(20):
        order = priority_order(problem, rng.random(30))
        placement = Placement(rng.integers(0, 4, 30), order)
        trace = run_simulation(problem, sample, PLAN, placement=placement)
        assert replay(run, placement.lane, order, free_s) == pytest.approx(trace.makespan_s)


def _last_ends(problem, trace):
    ends = np.zeros(len(problem.lanes))
    np.maximum.at(ends, trace.tasks["lane"], trace.tasks["finish_s"])
    return ends


def test_priorities_steer_the_online_rule():
    world = World()
    problem = build_problem(generate("sipht", 30, seed=4), FLEET, world)
    sample = sample_world(problem, world, 0)
    priority = np.arange(30.0)
    rising = run_simulation(problem, sample, PRIORITY, priority=priority)
    falling = run_simulation(problem, sample, PRIORITY, priority=-priority)
    starts = np.flatnonzero(np.diff(problem.graph.parent_ptr) == 0)
    assert rising.tasks["start_s"][starts[-1]] == 0
    assert falling.tasks["start_s"][starts[0]] == 0
    assert rising.makespan_s != falling.makespan_s
