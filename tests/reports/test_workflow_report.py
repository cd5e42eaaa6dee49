"""The report of a workflow: its numbers are the plan's, its figures the timeline's."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.reports.drawing import PROGRAM_COLOURS
from prudent.reports.workflow import deciding_chain, workflow_report, write_workflow_report
from prudent.reports.workflow_charts import MOST_BARS
from prudent.workflows import Activation, File, Fleet, Plan, Vm, Workflow, World, schedule
from prudent.workflows.execute.runner import execute
from prudent.workflows.execution import vm_usage
from prudent.workflows.formats.generate import generate
from prudent.workflows.scheduling import calm_execution, compare

FLEET = Fleet.parse("3*m3.medium,m3.2xlarge")


@pytest.fixture(scope="module")
def workflow() -> Workflow:
    return generate("montage", 40, seed=1)


@pytest.fixture(scope="module")
def plan(workflow: Workflow) -> Plan:
    return schedule(workflow, FLEET, World(), options={"evaluations": 20_000}, seed=1)


@pytest.fixture(scope="module")
def page(plan: Plan, workflow: Workflow) -> str:
    return workflow_report(plan, workflow, beside=compare(plan, workflow))


def test_the_gantt_chart_has_every_activation_where_the_plan_puts_it(
    page: str, plan: Plan, kit: SimpleNamespace
) -> None:
    figure = kit.figures(kit.read(page))["gantt"]
    bars = [
        (lane, base, base + length)
        for trace in figure["data"]
        for lane, base, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
    ]
    wanted = [(a.vm, a.start_s, a.finish_s) for a in plan.assignments.values()]
    for drawn, planned in zip(sorted(bars), sorted(wanted), strict=True):
        assert drawn[0] == planned[0]
        assert drawn[1:] == pytest.approx(planned[1:])
    programs = {trace["name"] for trace in figure["data"]}
    assert {"mProject", "mDiffFit", "mAdd"} <= programs


def test_the_numbers_are_the_plan_s(page: str, plan: Plan, kit: SimpleNamespace) -> None:
    from prudent.core.units import format_duration, format_money

    document = kit.read(page)
    hero = document.named("answer").text
    assert format_duration(plan.makespan_s) in hero
    assert format_money(plan.cost_usd) in hero
    costs = document.named("cost").all("tfoot")[0].text
    assert format_money(plan.cost_usd) in costs


def test_the_machines_bills_add_up(plan: Plan, workflow: Workflow) -> None:
    for billing in ("second", "hour"):
        dearer = schedule(workflow, FLEET, World(billing=billing), scheduler="heft")  # type: ignore[arg-type]
        calm = calm_execution(dearer, workflow)
        bills = vm_usage(calm, World(billing=billing))  # type: ignore[arg-type]
        assert sum(bill.cost_usd for bill in bills) == pytest.approx(dearer.cost_usd)
        assert sum(bill.activations for bill in bills) == len(workflow)
        assert sum(bill.busy_s for bill in bills) == pytest.approx(dearer.busy_s)


def test_every_baseline_is_beside_and_the_plan_is_marked(
    page: str, plan: Plan, workflow: Workflow, kit: SimpleNamespace
) -> None:
    document = kit.read(page)
    rows = document.named("beside").all("tbody")[0].all("tr")
    names = [row.all("td")[0].text for row in rows]
    assert set(names) == {
        "prudent", "heft", "peft", "cpop", "max-min", "min-min", "mct",
        "data-aware", "round-robin", "fcfs", "random",
    }  # fmt: skip
    assert [row.attributes.get("class") == "chosen" for row in rows].count(True) == 1
    assert names[0] == "prudent", "no baseline is better, and of equals it comes first"
    front = kit.figures(document)["front"]["data"][0]
    assert front["x"] == [point.makespan_s for point in plan.front]


def test_the_graph_has_a_node_for_each_activation_or_program(
    page: str, workflow: Workflow, kit: SimpleNamespace
) -> None:
    small = kit.figures(kit.read(page))["graph"]
    assert sum(len(t["x"]) for t in small["data"] if "markers" in t["mode"]) == len(workflow)
    large = generate("epigenomics", 400, seed=1)
    folded = kit.figures(kit.read(workflow_report(schedule(large, FLEET, scheduler="heft"), large)))["graph"]
    labels = [text for trace in folded["data"] if trace["mode"] == "markers+text" for text in trace["text"]]
    assert sum(int(text.rpartition("× ")[2]) for text in labels) == 400


def test_the_deciding_chain_leads_from_the_start_to_the_end_without_a_pause(
    plan: Plan, workflow: Workflow
) -> None:
    chain = [plan.assignments[name] for name in deciding_chain(plan, workflow)]
    assert chain[0].start_s == 0
    assert chain[-1].finish_s == pytest.approx(plan.makespan_s)
    assert all(one.finish_s == pytest.approx(two.start_s) for one, two in pairwise(chain))


def test_many_activations_are_drawn_as_few_bars(kit: SimpleNamespace) -> None:
    many = generate("montage", 2 * MOST_BARS, seed=1)
    plan = schedule(many, FLEET, scheduler="fcfs")
    figure = kit.figures(kit.read(workflow_report(plan, many)))["gantt"]
    bars = sum(len(trace["x"]) for trace in figure["data"])
    assert bars < MOST_BARS
    drawn_s = sum(sum(trace["x"]) for trace in figure["data"])
    assert drawn_s == pytest.approx(plan.busy_s, rel=0.02)


def test_a_learning_curve_where_there_was_learning(workflow: Workflow, kit: SimpleNamespace) -> None:
    plan = schedule(workflow, FLEET, scheduler="q-learning", options={"episodes": 12}, seed=3)
    figures = kit.figures(kit.read(workflow_report(plan, workflow)))
    best = figures["learning"]["data"][1]
    assert best["x"] == list(range(1, 13))
    assert best["y"] == sorted(best["y"], reverse=True)
    assert best["y"][-1] == pytest.approx(min(plan.details["learning_curve_s"]))


def test_plan_and_reality_stand_side_by_side(tmp_path: Path, kit: SimpleNamespace) -> None:
    """A real run, in which something fails: it is drawn, told and explained."""
    said = "echo '<b>& no star</b>' >&2; exit 4"
    steps = (
        Activation("a", "make", 0.2, (), (File("a.out"),), ("sh", "-c", "sleep 0.2; touch a.out")),
        Activation("b", "break", 0.1, (File("a.out"),), command=("sh", "-c", said)),
        Activation("c", "after", 0.1, (), (), ("true",)),
    )  # fmt: skip
    workflow = Workflow("real", steps, (("b", "c"),))
    fleet = Fleet((Vm("v1", "m", usd_per_h=3600.0),))
    plan = schedule(workflow, fleet, scheduler="heft")
    run = execute(plan, workflow, tmp_path / "run", directory=tmp_path, retries=1, check=False)
    page = workflow_report(plan, workflow, run=run)
    document = kit.read(page)
    figures = kit.figures(document)
    measured = {bar for trace in figures["reality"]["data"] for bar in trace["customdata"]}
    assert len(measured) == 3
    assert sum("failed" in bar for bar in measured) == 2
    hatched = [shape for t in figures["reality"]["data"] for shape in t["marker"]["pattern"]["shape"]]
    assert sorted(hatched) == ["", "/", "/"]
    assert "<b>& no star</b>" in document.named("failures").text
    assert "<b>& no star</b>" not in page, "what a command says stays text"
    assert "2 of 3 activations are not done" in document.named("answer").text
    assert len(document.named("events").all("tbody")[0].all("tr")) == 2
    rows = {row.all("td")[0].text: row for row in document.named("programs").all("tbody")[0].all("tr")}
    made = next(each for each in run.execution.timeline if each.activation == "a")
    assert made.finish_s - made.start_s >= 0.2
    told_s = float(rows["make"].all("td")[3].attributes["data-value"])
    assert told_s == pytest.approx(made.finish_s - made.start_s)
    assert rows["after"].all("td")[3].text == "–"


def test_it_loads_nothing_and_hostile_names_stay_text(kit: SimpleNamespace, tmp_path: Path) -> None:
    evil = '</script><script>alert("x")</script>'
    activations = tuple(Activation(f"{evil}{at}", evil, 1.0 + at) for at in range(3))
    workflow = Workflow(evil, activations)
    plan = schedule(workflow, Fleet((Vm(evil, "m"),)), scheduler="heft")
    path = write_workflow_report(plan, workflow, tmp_path / "deep" / "r.html", beside=compare(plan, workflow))
    page = path.read_text()
    document = kit.read(page)
    assert evil not in page
    assert not [e for e in document.everything() if {"src", "href"} & set(e.attributes)]
    policy = next(e for e in document.all("meta") if "http-equiv" in e.attributes).attributes["content"]
    assert policy.startswith("default-src 'none'")
    assert set(kit.figures(document)) >= {"gantt", "graph", "utilisation", "comparison"}


def test_the_colours_it_uses_are_defined(page: str, kit: SimpleNamespace) -> None:
    used = set(re.findall(r'"(--[a-z0-9]+)"', json.dumps(kit.figures(kit.read(page)))))
    assert "--p0" in used
    defined = set(re.findall(r"(--[a-z0-9]+):", page))
    assert used <= defined
    assert {f"--p{at}" for at in range(PROGRAM_COLOURS)} <= defined


def test_the_command_to_repeat_it_is_complete(plan: Plan, workflow: Workflow, kit: SimpleNamespace) -> None:
    told = replace(plan, world={"storage": "local"}, details={**plan.details, "workflow_path": "m.json"})
    text = kit.read(workflow_report(told, workflow)).named("again").text
    for part in ("m.json", "3*m3.medium,1*m3.2xlarge", "storage=local", "evaluations=20000", "--seed 1"):
        assert part in text


def test_a_plan_of_another_workflow_is_refused(plan: Plan) -> None:
    with pytest.raises(BadInput, match="misses activation"):
        workflow_report(plan, generate("sipht", 30))


def test_a_place_that_cannot_be_written_to(plan: Plan, workflow: Workflow, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="Cannot write the report"):
        write_workflow_report(plan, workflow, tmp_path / "file" / "r.html")


@pytest.fixture(scope="module")
def rehearsed(plan: Plan, workflow: Workflow, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return execute(plan, workflow, tmp_path_factory.mktemp("rehearsed") / "run", replay=0.005)


def test_a_run_in_the_background_of_a_plan(plan: Plan, workflow: Workflow, rehearsed: Any) -> None:
    run = rehearsed
    assert "This run was a rehearsal" in workflow_report(plan, workflow, run=run)


def test_the_forecast_stands_beside_what_was_paid(
    plan: Plan, workflow: Workflow, rehearsed: Any, kit: SimpleNamespace
) -> None:
    """A run of two sessions on rented machines: each machine of each is shaded for as long as it was paid."""
    run = rehearsed
    session = next(fact for fact in run.facts if fact["fact"] == "session")
    said = {"cost_usd": {"low": 1.0, "expected": 2.0, "high": 3.0}}
    said["makespan_s"] = {"low": 1e5, "expected": 2e5, "high": 3e5}
    one = {"vm": "m3.medium-1", "machine": "m3.medium", "usd_per_h": 90.0}
    machines = [
        {**one, "cluster": "a", "from_s": 0.0, "until_s": 40.0, "cost_usd": 1.0},
        {**one, "cluster": "b", "from_s": 50.0, "until_s": 90.0, "cost_usd": 1.5},
    ]
    facts = (
        *(fact for fact in run.facts if fact is not session),
        {**session, "forecast": said, "budget_usd": 2.25, "deadline_s": 4e5},
        {"fact": "bill", "total_usd": 2.5, "machines": machines},
    )
    paid_for = replace(run, facts=facts)
    assert (paid_for.cost_usd, paid_for.over_usd) == (2.5, pytest.approx(0.25))
    page = kit.read(workflow_report(plan, workflow, run=paid_for))
    told = page.named("money-section").text
    for words in ("$2.00", "$1.00 to $3.00", "$2.25", "$2.50", "above the limit", "below the interval"):
        assert words in told
    assert "$2.50 paid for machines, from order to give-back" in page.named("answer").text
    assert "$2.50" in page.named("cost").all("tfoot")[0].text
    figures = kit.figures(page)
    paid = next(trace for trace in figures["reality"]["data"] if trace["name"] == "paid for")
    assert (paid["y"], paid["base"], paid["x"]) == (["m3.medium-1"] * 2, [0.0, 50.0], [40.0, 40.0])
    line = figures["money"]["data"][0]
    assert (line["x"], line["y"]) == ([0.0, 40.0, 50.0, 90.0], [0.0, 1.0, 1.0, 2.5])
