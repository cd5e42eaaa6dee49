"""Plans survive on disk and are refused where they do not fit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, Fleet, Plan, Vm, Workflow, World, schedule, simulate


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
