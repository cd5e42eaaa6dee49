"""Plans survive on disk, and are refused where they do not fit, in either sense."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, Fleet, Plan, Usage, Vm, Workflow, World, schedule, simulate
from prudent.workflows.scheduling import compare


@pytest.fixture
def plan(diamond, pair):
    return schedule(diamond, pair, World(queue_s="normal(1, 0.1)"), scheduler="heft", seed=3)


def test_round_trip(tmp_path, plan, diamond):
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    plan.check(diamond)
    assert plan.world == {"queue_s": "normal(1, 0.1)"}


def test_plan_misses_an_activation(plan, diamond, pair):
    fewer = replace(plan, assignments={k: v for k, v in plan.assignments.items() if k != "c"})
    with pytest.raises(BadInput, match='misses activation "c"'):
        simulate(diamond, pair, World(), fewer)


def test_plan_names_another_workflow(plan, diamond, pair):
    smaller = Workflow("small", (Activation("a"), Activation("b")))
    with pytest.raises(BadInput, match='names activation "'):
        simulate(smaller, pair, World(), plan)
    same_names = Workflow("other", tuple(Activation(name) for name in "abcd"))
    with pytest.raises(BadInput, match="made for another workflow"):
        simulate(same_names, pair, World(), plan)


def test_plan_for_another_fleet(plan, diamond):
    with pytest.raises(BadInput, match=r'VM "(slow|fast)"'):
        simulate(diamond, Fleet((Vm("slov", "s"),)), World(), plan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("format"), "not a plan"),
        (lambda d: d.pop("assignments"), "incomplete"),
        (lambda d: d.update(surprise=1), "incomplete"),
        (lambda d: d["assignments"].append(d["assignments"][0]), "twice"),
    ],
)
def test_damaged_files(tmp_path, plan, change, message):
    path = tmp_path / "plan.json"
    plan.save(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match=message):
        Plan.load(path)


def test_unreadable_files(tmp_path):
    with pytest.raises(BadInput, match="Cannot read"):
        Plan.load(tmp_path / "none.json")
    (tmp_path / "odd.json").write_text("{")
    with pytest.raises(BadInput, match="not valid JSON"):
        Plan.load(tmp_path / "odd.json")


def _sized(scheduler: str, fleet: Fleet) -> Plan:
    small = Activation("small", runtime_s=10, memory_bytes=1e9)
    large = Activation("large", runtime_s=20, cores=4, memory_bytes=2e9, usage=Usage(memory_bytes=12e9))
    return schedule(Workflow("sized", (small, large)), fleet, scheduler=scheduler)


@pytest.mark.parametrize("scheduler", ["heft", "prudent"])
def test_an_activation_goes_where_it_fits(scheduler):
    fleet = Fleet.parse("3*m3.large,m3.xlarge")
    plan = _sized(scheduler, fleet)
    assert plan.assignments["large"].vm == "m3.xlarge-1", "it has peaked at 12 GB, and wants 4 cores"
    assert plan.makespan_s < 100, "the small one does not wait behind it"


def test_a_plan_that_puts_it_elsewhere_is_refused():
    small = Fleet.parse("m3.large")
    with pytest.raises(BadInput, match='"large" fits on no machine: it needs 4 cores'):
        _sized("heft", small)
    both = Workflow("both", tuple(Activation(name, runtime_s=1, memory_bytes=20e9) for name in "ab"))
    with pytest.raises(BadInput, match="where it can never run: it needs"):
        schedule(both, Fleet.parse("m3.large,m3.2xlarge"), scheduler="round-robin")
    with pytest.raises(BadInput, match="where it can never run: it needs"):
        simulate(both, Fleet.parse("m3.large,m3.2xlarge"), plan_or_scheduler="fcfs")
    plan = schedule(Workflow("one", (Activation("a", runtime_s=1),)), small, scheduler="heft")
    grown = Workflow("one", (Activation("a", runtime_s=1, memory_bytes=20e9),))
    with pytest.raises(BadInput, match="it needs 20 GB of memory"):
        plan.check(grown)


def test_others_that_do_not_fit_are_not_compared():
    workflow = Workflow("w", tuple(Activation(f"a{at}", runtime_s=9, memory_bytes=20e9) for at in range(6)))
    plan = schedule(workflow, Fleet.parse("3*m3.large,m3.2xlarge"), scheduler="heft")
    rows = compare(plan, workflow)
    assert "round-robin" not in {row.scheduler for row in rows}
    assert max(row.makespan_s for row in rows) < 2 * plan.makespan_s


def test_a_machine_of_unknown_size_holds_anything():
    fleet = Fleet((Vm("mine", "laptop"),))
    assert _sized("heft", fleet).makespan_s == 30
