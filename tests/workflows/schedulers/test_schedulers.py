"""What every scheduler must do, on any workflow, fleet and world."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prudent.workflows import Activation, File, Fleet, Vm, Workflow, World
from prudent.workflows.clustering import cluster
from prudent.workflows.schedulers.bounds import lower_bounds
from prudent.workflows.scheduling import schedule, schedulers, simulate
from prudent.workflows.simulation.problem import Placement, build_problem, sample_world
from prudent.workflows.simulation.records import PLAN
from prudent.workflows.simulation.simulator import run_simulation

QUICK = {"q-learning": {"episodes": 5}, "prudent": {"evaluations": 500, "front": 2}}
STEADY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ROUNDING_S = 1e-6


@st.composite
def workflows(draw: st.DrawFn, most: int = 12) -> Workflow:
    """Any small DAG: each activation reads what some earlier ones wrote."""
    size = draw(st.integers(1, most))
    activations = []
    for at in range(size):
        parents = draw(st.sets(st.integers(0, at - 1), max_size=3)) if at else set()
        runtime_s = draw(st.sampled_from([0.0, 1.0, 2.5, 7.0, 20.0]))
        inputs = tuple(File(f"f{parent}", 10e6 * (1 + parent % 3)) for parent in sorted(parents))
        outputs = (File(f"f{at}", 10e6 * (1 + at % 3)),)
        activations.append(Activation(f"t{at}", f"p{at % 2}", runtime_s, inputs, outputs))
    return Workflow("random", tuple(activations))


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """One to four VMs of a few speeds, some with two slots."""
    speeds = draw(st.lists(st.sampled_from([500.0, 1000.0, 4156.0]), min_size=1, max_size=4))
    slots = draw(st.lists(st.integers(1, 2), min_size=4, max_size=4))
    return Fleet(
        tuple(
            Vm(f"v{at}", f"m{speed:g}", speed, count, usd_per_h=speed / 1000)
            for at, (speed, count) in enumerate(zip(speeds, slots, strict=False))
        )
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any storage, with or without overheads."""
    storage = draw(st.sampled_from(["shared", "local", "network"]))
    overhead = draw(st.sampled_from([0.0, 0.5]))
    return World(storage, 10, engine_s=overhead, queue_s=overhead, post_s=overhead, boot_s=4 * overhead)


def check_run(workflow, fleet, assignments):
    """Every activation once, after its parents, and never two on one slot."""
    assert set(assignments) == set(workflow.index)
    for parent, child in workflow.edges:
        assert assignments[parent].finish_s <= assignments[child].start_s + ROUNDING_S
    by_slot = {}
    for assignment in assignments.values():
        assert assignment.slot < fleet.vms[fleet.index[assignment.vm]].slots
        by_slot.setdefault((assignment.vm, assignment.slot), []).append(assignment)
    for same in by_slot.values():
        same.sort(key=lambda a: (a.start_s, a.finish_s))
        for first, second in itertools.pairwise(same):
            assert first.finish_s <= second.start_s + ROUNDING_S


@pytest.mark.parametrize("name", schedulers())
@STEADY
@given(workflow=workflows(), fleet=fleets(), world=worlds())
def test_conformance(name, workflow, fleet, world):
    options = QUICK.get(name, {})
    plan = schedule(workflow, fleet, world, scheduler=name, options=options, seed=7)
    check_run(workflow, fleet, plan.assignments)
    assert plan.makespan_s == max(a.finish_s for a in plan.assignments.values())
    assert plan.busy_s == pytest.approx(sum(a.finish_s - a.start_s for a in plan.assignments.values()))
    bounds = lower_bounds(workflow, fleet, world)
    assert bounds.simple_s <= bounds.tight_s + ROUNDING_S
    assert plan.makespan_s >= bounds.tight_s - ROUNDING_S
    again = schedule(workflow, fleet, world, scheduler=name, options=options, seed=7)
    assert again == plan


@pytest.mark.parametrize("name", [name for name in schedulers() if name != "q-learning"])
@STEADY
@given(workflow=workflows(), fleet=fleets())
def test_in_bad_weather(name, workflow, fleet):
    world = World(
        speed="lognormal(1, 0.3)",
        failure_rate=0.2,
        retries=30,
        queue_s="normal(1, 0.5)",
        vm_lifetime_s="weibull(2, 60)",
    )
    options = QUICK.get(name, {})
    execution = simulate(workflow, fleet, world, name, seed=11, options=options)
    assert execution.succeeded
    check_run(workflow, fleet, execution.assignments)
    again = simulate(workflow, fleet, world, name, seed=11, options=options)
    assert again.timeline == execution.timeline


@STEADY
@given(workflow=workflows(), fleet=fleets(), world=worlds())
def test_a_plan_is_followed_as_it_was_made(workflow, fleet, world):
    plan = schedule(workflow, fleet, world, scheduler="heft")
    execution = simulate(workflow, fleet, world, plan)
    assert execution.assignments == plan.assignments
    assert (execution.makespan_s, execution.cost_usd) == (plan.makespan_s, plan.cost_usd)


def brute_force(workflow: Workflow, fleet: Fleet, world: World) -> float:
    """The best makespan over all placements and all orders."""
    problem = build_problem(workflow, fleet, world)
    sample = sample_world(problem, world, 0)
    parents = {child: {workflow.index[p] for p in ps} for child, ps in workflow.parents.items()}
    best = np.inf
    for order in itertools.permutations(range(len(workflow))):
        done: set[int] = set()
        for at in order:
            if not parents[workflow.activations[at].id] <= done:
                break
            done.add(at)
        else:
            for lanes in itertools.product(range(len(fleet.lanes)), repeat=len(workflow)):
                placement = Placement(np.array(lanes), np.array(order))
                best = min(best, run_simulation(problem, sample, PLAN, placement=placement).makespan_s)
    return float(best)


@settings(max_examples=8, deadline=None)
@given(workflow=workflows(most=4))
def test_nobody_beats_brute_force(workflow):
    fleet = Fleet((Vm("u", "m"), Vm("v", "n", 4156)))
    world = World(bandwidth_mb_s=20)
    best = brute_force(workflow, fleet, world)
    assert lower_bounds(workflow, fleet, world).tight_s <= best + ROUNDING_S
    for name in schedulers():
        plan = schedule(workflow, fleet, world, scheduler=name, options=QUICK.get(name, {}), seed=1)
        assert plan.makespan_s >= best - ROUNDING_S


def test_rules_do_what_their_names_say():
    workflow = Workflow("w", tuple(Activation(f"t{at}", runtime_s=r) for at, r in enumerate([6, 2, 9, 4])))
    fleet = Fleet((Vm("slow", "s", 1000), Vm("fast", "f", 2000)))
    first = {
        name: {
            a.activation: a.vm
            for a in simulate(workflow, fleet, World(), name).assignments.values()
            if not a.start_s
        }
        for name in ("fcfs", "mct", "min-min", "max-min")
    }
    assert first["fcfs"] == {"t0": "slow", "t1": "fast"}
    assert first["mct"] == {"t0": "fast", "t1": "slow"}
    assert first["min-min"] == {"t1": "fast", "t3": "slow"}
    assert first["max-min"] == {"t2": "fast", "t0": "slow"}


def test_data_aware_stays_with_the_data(diamond, pair):
    execution = simulate(diamond, pair, World(storage="local"), "data-aware")
    assert execution.assignments["a"].vm == execution.assignments["b"].vm


def test_round_robin_takes_turns():
    workflow = Workflow("w", tuple(Activation(f"t{at}", runtime_s=1) for at in range(4)))
    fleet = Fleet(tuple(Vm(f"v{at}", "m") for at in range(3)))
    used = [
        a.vm
        for a in sorted(
            simulate(workflow, fleet, World(), "round-robin").assignments.values(), key=lambda a: a.activation
        )
    ]
    assert used == ["v0", "v1", "v2", "v0"]


@settings(max_examples=40, deadline=None)
@given(workflow=workflows(), method=st.sampled_from(["horizontal", "vertical", "balanced"]))
def test_clustering_keeps_the_work(workflow, method):
    merged = cluster(workflow, method, per_level=2)
    members = [name for a in merged.activations for name in (a.members or (a.id,))]
    assert sorted(members) == sorted(workflow.index)
    assert sum(a.runtime_s for a in merged.activations) == pytest.approx(
        sum(a.runtime_s for a in workflow.activations)
    )
    execution = simulate(merged, Fleet((Vm("v", "m"), Vm("u", "m"))), World(), "fcfs")
    assert execution.succeeded
