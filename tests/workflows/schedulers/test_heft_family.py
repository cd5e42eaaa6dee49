"""The published example: ranks, placements and makespans of HEFT, CPOP and the table of PEFT."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.workflows import Activation, Fleet, Vm, Workflow, World, schedule
from prudent.workflows.formats.generate import generate
from prudent.workflows.schedulers.bounds import lower_bounds
from prudent.workflows.schedulers.heft_family import optimistic_cost_s
from prudent.workflows.schedulers.list_scheduling import (
    mean_occupancy_s,
    place_by_insertion,
    priority_order,
    seconds_per_byte,
    upward_rank,
)
from prudent.workflows.simulation.problem import build_problem


def test_upward_ranks_of_the_paper(heft_paper):
    problem = build_problem(*heft_paper)
    rank = upward_rank(problem, mean_occupancy_s(problem), seconds_per_byte(problem))
    expected = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert rank == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("name", "makespan_s"), [("heft", 80.0), ("cpop", 86.0)])
def test_makespans_of_the_paper(heft_paper, name, makespan_s):
    assert schedule(*heft_paper, scheduler=name).makespan_s == pytest.approx(makespan_s)


def test_placements_of_the_paper(heft_paper):
    plan = schedule(*heft_paper, scheduler="heft")
    where = {name: plan.assignments[name].vm for name in plan.assignments}
    assert where == {
        "n1": "p3", "n3": "p3", "n4": "p2", "n2": "p1", "n5": "p3",
        "n6": "p2", "n9": "p2", "n7": "p3", "n8": "p1", "n10": "p2",
    }  # fmt: skip


def test_the_bound_holds_for_the_paper(heft_paper):
    bounds = lower_bounds(*heft_paper)
    assert bounds.tight_s <= 80
    # n1, n2, n9, n10 on their fastest processors: 9 + 13 + 12 + 7.
    assert bounds.path_s == 41


def test_optimistic_costs_by_hand():
    # One child of 10 s on m and 4 s on n, reached over 5 s of network.
    workflow = Workflow(
        "w",
        (Activation("a", runtimes_s={"m": 1, "n": 2}), Activation("b", runtimes_s={"m": 10, "n": 4})),
        (("a", "b"),),
    )
    fleet = Fleet((Vm("u", "m"), Vm("v", "n")))
    problem = build_problem(workflow, fleet, World(storage="network"))
    assert optimistic_cost_s(problem) == pytest.approx(np.array([[4, 4], [0, 0]]))


def test_gaps_are_filled():
    # a takes the VM at once; c can only run after b elsewhere, so d fits before it.
    workflow = Workflow(
        "w",
        (
            Activation("b", runtimes_s={"m": 100, "n": 10}),
            Activation("c", runtimes_s={"m": 5, "n": 100}),
            Activation("d", runtimes_s={"m": 8, "n": 100}),
        ),
        (("b", "c"),),
    )
    fleet = Fleet((Vm("u", "m"), Vm("v", "n")))
    plan = schedule(workflow, fleet, World(), scheduler="heft")
    assert plan.makespan_s == 15
    assert plan.assignments["d"].start_s == 0
    problem = build_problem(workflow, fleet, World())
    placement = place_by_insertion(problem, np.array([0, 1, 2]))
    assert placement.order.tolist() == [0, 2, 1]


def test_priorities_respect_parents(diamond, pair, still):
    problem = build_problem(diamond, pair, still)
    assert priority_order(problem, np.array([0.0, 1.0, 2.0, 9.0])).tolist() == [0, 2, 1, 3]


def test_boot_counts_in_the_plan():
    fleet = Fleet((Vm("u", "m"),))
    plan = schedule(generate("montage", 9), fleet, World(boot_s=100), scheduler="heft")
    assert min(a.start_s for a in plan.assignments.values()) == 100


def test_heft_is_near_the_bound_on_public_traces(traces):
    workflow = Workflow.read(traces / "Montage_1000.xml")
    fleet = Fleet.parse("8*m3.medium,3*m3.2xlarge")
    plan = schedule(workflow, fleet, World(bandwidth_mb_s=15), scheduler="heft")
    assert plan.makespan_s <= 1.04 * lower_bounds(workflow, fleet, World(bandwidth_mb_s=15)).tight_s
