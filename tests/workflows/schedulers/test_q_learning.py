"""The learning scheduler: rewards by hand, tables that survive, and better plans than fcfs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, Fleet, Vm, Workflow, World, schedule
from prudent.workflows.formats.generate import generate
from prudent.workflows.schedulers.agent import INDEX_STATISTICS, reward, update_statistics
from prudent.workflows.schedulers.q_learning import QLearning, QTables
from prudent.workflows.simulation.problem import build_problem

FLEET = Fleet.parse("4*m3.medium,1*m3.2xlarge")


def habits_of(*indices: float):
    habits = np.zeros(1, dtype=INDEX_STATISTICS)
    for index in indices:
        update_statistics(habits, 0, index)
    return habits


def test_reward_compares_with_what_is_usual():
    habits = habits_of(8, 10, 12)
    assert habits["mean"][0] == 10
    deviation = np.sqrt(8 / 3)
    assert reward(habits, 10 + deviation + 0.01) == -1
    assert reward(habits, 10 - deviation - 0.01) == 1
    assert reward(habits, 10) == 0
    assert reward(habits_of(5), 1) == 0


def test_one_step_by_hand():
    # One activation on one VM: P = 0.5 * 10 = 5 equals the mean, so r = 0, e = 0; nothing is ready then, so
    # Q = 0.2 + 1.0 * (0 + 0.5 * 0.2 - 0.2) = 0.1.
    workflow = Workflow("w", (Activation("a", runtime_s=10),))
    problem = build_problem(workflow, Fleet((Vm("v", "m"),)), World())
    learning = QLearning(episodes=1)
    tables = learning.first_tables(problem)
    learner = learning._learner(tables)
    learning._play(problem, learner, 0, 0)
    assert tables.q[0, 0] == pytest.approx(0.1)
    assert tables.statistics["count"].tolist() == [2, 1]


def test_fast_machines_become_preferred():
    workflow = Workflow("w", tuple(Activation(f"t{at}", runtime_s=20) for at in range(6)))
    fleet = Fleet((Vm("slow", "s", 500), Vm("fast", "f", 4000)))
    problem = build_problem(workflow, fleet, World())
    learning = QLearning(episodes=30, epsilon=0.5)
    tables = learning.first_tables(problem)
    learner = learning._learner(tables)
    for episode in range(30):
        learning._play(problem, learner, 3, episode)
    assert learner.statistics["efficiency"][2] > learner.statistics["efficiency"][1]
    assert learner.q[:, 1].mean() > learner.q[:, 0].mean()


@pytest.mark.parametrize("shape", ["montage", "epigenomics"])
def test_beats_first_come_first_served_by_learning(shape):
    """Trying a hundred times finds something too: what is learned must be better than the best of that."""
    workflow = generate(shape, 60, seed=2)
    slow, fast = (Vm(f"s{at}", "slow", 250) for at in range(6)), (Vm(f"f{at}", "fast", 4000) for at in (0, 1))
    fleet = Fleet((*slow, *fast))
    learned, tried = (
        schedule(workflow, fleet, World(), scheduler="q-learning", options={"rate": rate}, seed=7)
        for rate in (1.0, 0.0)
    )
    assert learned.makespan_s < 0.7 * schedule(workflow, fleet, World(), scheduler="fcfs").makespan_s
    assert learned.makespan_s < 0.95 * tried.makespan_s
    curve, flat = (plan.details["learning_curve_s"] for plan in (learned, tried))
    assert len(curve) == 100
    assert min(curve) == pytest.approx(learned.makespan_s)
    assert np.mean(curve[-20:]) < 0.95 * np.mean(curve[:20])
    assert np.mean(curve[-20:]) < 0.9 * np.mean(flat[-20:])


def test_tables_are_saved_and_carried_on(tmp_path):
    workflow = generate("montage", 40, seed=1)
    path = tmp_path / "tables.npz"
    options = {"episodes": 10, "tables": str(path)}
    schedule(workflow, FLEET, World(), scheduler="q-learning", options=options, seed=7)
    more = schedule(
        workflow, FLEET, World(), scheduler="q-learning", options={**options, "carry_on": True}, seed=7
    )
    whole = schedule(workflow, FLEET, World(), scheduler="q-learning", options={"episodes": 20}, seed=7)
    assert more.details == whole.details
    assert more.assignments == whole.assignments
    kept = QTables.load(path, build_problem(workflow, FLEET, World()))
    assert len(kept.makespans_s) == 20
    assert kept.placement is not None


def test_tables_of_another_workflow_are_refused(tmp_path):
    path = tmp_path / "tables.npz"
    options = {"episodes": 2, "tables": str(path)}
    schedule(generate("montage", 40), FLEET, World(), scheduler="q-learning", options=options)
    with pytest.raises(BadInput, match="another workflow"):
        schedule(
            generate("sipht", 40),
            FLEET,
            World(),
            scheduler="q-learning",
            options={**options, "carry_on": True},
        )
    path.write_text("nothing")
    with pytest.raises(BadInput, match="holds no tables"):
        schedule(
            generate("montage", 40),
            FLEET,
            World(),
            scheduler="q-learning",
            options={**options, "carry_on": True},
        )


@pytest.mark.parametrize(
    "options",
    [{"episodes": 0}, {"epsilon": 2}, {"alpha": -1}, {"gamma": 1.5}, {"rate": 7}, {"carry_on": True}],
)
def test_bad_options(options):
    with pytest.raises(BadInput):
        schedule(generate("montage", 9), FLEET, World(), scheduler="q-learning", options=options)


def test_learns_in_the_world_as_it_is():
    world = World(speed="lognormal(1, 0.5)")
    plan = schedule(
        generate("sipht", 30), FLEET, world, scheduler="q-learning", options={"episodes": 20}, seed=1
    )
    assert len(set(plan.details["learning_curve_s"])) > 10


def test_an_episode_can_be_read_by_a_person(tmp_path):
    workflow = generate("montage", 12, seed=1)
    world = World(bandwidth_mb_s=15, failure_rate=0.2)
    options = {"episodes": 3, "record": str(tmp_path / "episodes")}
    plan = schedule(workflow, FLEET, world, "q-learning", options, seed=2)
    files = sorted((tmp_path / "episodes").iterdir())
    assert [file.name for file in files] == [f"episode-000{number}.json" for number in (1, 2, 3)]
    told = [json.loads(file.read_text()) for file in files]
    assert [each["simulated_s"] for each in told] == plan.details["learning_curve_s"]
    assert [each["reward"] for each in told] == plan.details["rewards"]
    assert all(each["wall_s"] > 0 for each in told)
    names = {activation.id for activation in workflow.activations}
    for each in told:
        done = [row["activation"] for row in each["plan"] if row["state"] == "finished-with-success"]
        assert sorted(done) == sorted(names) or each["state"] == "finished-with-failure"
        assert set(each["q"]) == names
        assert max(row["finish_s"] for row in each["plan"]) <= each["simulated_s"] + 1e-6
        for machine, state in each["machines"].items():
            mine = [row for row in each["plan"] if row["machine"] == machine]
            assert state["attempts"] == len(mine) == len(state["running_s"])
            assert set(each["q"][done[0]]) >= {machine}
    # The table that the last file shows is the one that the next call goes on from.
    kept = {**options, "tables": str(tmp_path / "t.npz")}
    schedule(workflow, FLEET, world, "q-learning", kept, seed=2)
    last = json.loads(files[-1].read_text())["q"]
    with np.load(tmp_path / "t.npz") as tables:
        shown = np.array([list(row.values()) for row in last.values()])
        assert shown == pytest.approx(tables["q"])


def test_as_published_is_what_it_is_without():
    workflow = generate("montage", 12, seed=1)
    plain, published = (
        schedule(workflow, FLEET, World(), "q-learning", {"episodes": 5, **options}, seed=2)
        for options in ({}, {"as": "published"})
    )
    assert plain.assignments == published.assignments
    with pytest.raises(BadInput, match="not the scheduler of a paper"):
        schedule(workflow, FLEET, World(), "heft", {"as": "published"})
    with pytest.raises(BadInput, match="published"):
        schedule(workflow, FLEET, World(), "q-learning", {"as": "printed"})
