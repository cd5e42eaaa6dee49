"""Measured run times make the next plan better."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, File, Fleet, Plan, Vm, Workflow, World, schedule, simulate
from prudent.workflows.execute.learning import learn_from_runs, learn_q_tables, learn_run_times
from prudent.workflows.execute.run import WorkflowRun
from prudent.workflows.execute.runner import execute
from prudent.workflows.schedulers.q_learning import QLearning

Step = Callable[..., Activation]
RunIt = Callable[[Plan], WorkflowRun]
NO_COST = World(bandwidth_mb_s=1e9)


def facts(*rows: tuple[str, str, float]) -> list[dict[str, Any]]:
    return [
        {"fact": "ended", "outcome": "done", "activation": name, "vm": vm, "took_s": took_s}
        for name, vm, took_s in rows
    ]


def workflow_of(*programs: str, runtime_s: float = 10.0) -> Workflow:
    return Workflow("w", tuple(Activation(f"{p}{at}", p, runtime_s) for at, p in enumerate(programs)))


class TestEstimates:
    def test_nothing_measured_changes_nothing(self, two: Fleet) -> None:
        workflow = workflow_of("x", "x")
        assert learn_run_times(workflow, two, World(), [(two, [])]) == workflow

    def test_a_measured_activation_is_near_its_measurement(self, two: Fleet) -> None:
        workflow = workflow_of("x", "x", "y")
        told = facts(("x0", "v1", 30.0), ("x1", "v1", 31.0), ("y2", "v2", 3.0))
        better = learn_run_times(workflow, two, NO_COST, [(two, told)])
        assert better["x0"].runtimes_s["m"] == pytest.approx(30, rel=0.1)
        assert better["y2"].runtimes_s["m"] == pytest.approx(3, rel=0.25)
        assert better["x0"].runtime_s == 10, "the first estimate stays, so that learning can start anew"

    def test_one_not_measured_is_like_the_others_of_its_program(self, two: Fleet) -> None:
        workflow = workflow_of("x", "x", "x", "y", "y")
        told = facts(("x0", "v1", 30.0), ("x1", "v1", 30.0), ("y3", "v1", 5.0))
        better = learn_run_times(workflow, two, NO_COST, [(two, told)])
        assert better["x2"].runtimes_s["m"] == pytest.approx(30, rel=0.1)
        assert better["y4"].runtimes_s["m"] == pytest.approx(5, rel=0.35)

    def test_an_outlier_is_believed_half_as_repetitions_are_wholly(self, two: Fleet) -> None:
        """Shrinkage: between the program's mean and the activation's own, the nearer the more often seen."""
        workflow = workflow_of(*["x"] * 12)
        usual = [(f"x{at}", "v1", 10.0) for at in range(1, 12)]
        once = learn_run_times(workflow, two, NO_COST, [(two, facts(("x0", "v1", 15.0), *usual))])
        runs = [(two, facts(("x0", "v1", 15.0), *usual))] * 6
        often = learn_run_times(workflow, two, NO_COST, runs)
        first, later = once["x0"].runtimes_s["m"], often["x0"].runtimes_s["m"]
        assert 10.5 < first < later
        assert later == pytest.approx(15, rel=0.05)

    def test_a_machine_s_promised_speed_is_corrected_for_programs_it_never_ran(self) -> None:
        fleet = Fleet((Vm("s", "slow", 1000), Vm("f", "fast", 4000)))
        workflow = workflow_of("x", "x", "y", "y", "z")
        told = facts(("x0", "s", 10), ("x1", "f", 10), ("y2", "s", 10), ("y3", "f", 10), ("z4", "s", 20))
        better = learn_run_times(workflow, fleet, NO_COST, [(fleet, told)])
        assert better["z4"].runtimes_s["fast"] == pytest.approx(20, rel=0.35), "not 20 / 4"

    def test_time_to_read_inputs_is_not_counted_twice(self, two: Fleet) -> None:
        workflow = Workflow("w", (Activation("x", "x", 1.0, (File("in", 30e6),)),))
        world = World(bandwidth_mb_s=15)
        better = learn_run_times(workflow, two, world, [(two, facts(("x", "v1", 5.0)))])
        plan = schedule(better, two, world, scheduler="heft")
        assert plan.makespan_s == pytest.approx(5.0, rel=0.2)

    @pytest.mark.parametrize("seed", range(3))
    def test_better_than_the_program_s_mean_and_than_each_activation_s_own(
        self, two: Fleet, seed: int
    ) -> None:
        """Where truth varies between activations and between runs, the mix is nearer than either alone."""
        rng = np.random.default_rng(seed)
        workflow = workflow_of(*["x"] * 60, *["y"] * 60)
        truth = {
            a.id: 10 * (3 if a.program == "x" else 0.4) * np.exp(rng.normal(0, 0.2))
            for a in workflow.activations
        }
        took = {name: [s * np.exp(rng.normal(0, 0.25)) for _ in range(2)] for name, s in truth.items()}
        runs = [(two, facts(*((name, "v1", each[run]) for name, each in took.items()))) for run in range(2)]
        better = learn_run_times(workflow, two, NO_COST, runs)

        def off(guess: dict[str, float]) -> float:
            return float(np.mean([np.log(guess[name] / truth[name]) ** 2 for name in truth]))

        own = {name: float(np.exp(np.mean(np.log(each)))) for name, each in took.items()}
        of_program = {
            p: float(np.exp(np.mean([np.log(own[a.id]) for a in workflow.activations if a.program == p])))
            for p in "xy"
        }
        mixed = off({name: better[name].runtimes_s["m"] for name in truth})
        assert mixed < off({name: each[-1] for name, each in took.items()})
        assert mixed < off(own)
        assert mixed < off({a.id: of_program[a.program] for a in workflow.activations})


def takes(workflow: Workflow, **runtimes_s: float) -> Workflow:
    """The workflow with other run times, by program."""
    changed = (replace(each, runtime_s=runtimes_s.get(each.program, 0.05)) for each in workflow.activations)
    return replace(workflow, activations=tuple(changed))


class TestRealRuns:
    """The estimates are wrong by a factor of three: `scan` takes 0.3 s and `fit` 0.9 s.

    The commands are run; what a device would have taken is put into the journal afterwards, because what
    they take here depends on what else this computer does.
    """

    @pytest.fixture
    def wrong(self, step: Step) -> Workflow:
        scans = [step(f"scan{at}", f"md5sum in > s{at}", "in", f"s{at}", 0.9, "scan") for at in range(3)]
        fits = [step(f"fit{at}", f"wc in > f{at}", "in", f"f{at}", 0.3, "fit") for at in range(3)]
        last = step("sum", "cat s? f? > sum", "s0 s1 s2 f0 f1 f2", "sum", 0.05)
        return Workflow("wrong", (*scans, *fits, last))

    @pytest.fixture
    def right(self, wrong: Workflow) -> Workflow:
        return takes(wrong, scan=0.3, fit=0.9)

    @pytest.fixture
    def run(self, wrong: Workflow, right: Workflow, ground: Path, tmp_path: Path, site: Any) -> RunIt:
        def run_it(plan: Plan) -> WorkflowRun:
            folder = tmp_path / "one"
            assert execute(plan, wrong, folder, directory=ground, address=site.address).succeeded
            device = simulate(right, plan.fleet, World(), plan).assignments
            lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
            for fact in lines:
                if fact["fact"] == "ended":
                    by = device[fact["activation"]]
                    times = {"start_s": by.start_s, "finish_s": by.finish_s}
                    fact.update(times, took_s=by.finish_s - by.start_s)
            (folder / "journal.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in lines))
            return WorkflowRun.read(folder)

        return run_it

    def test_the_plan_after_a_real_run_is_faster_than_the_one_before(
        self, wrong: Workflow, right: Workflow, two: Fleet, run: RunIt
    ) -> None:
        first = schedule(wrong, two, World(), scheduler="heft")
        one = run(first)
        second = schedule(learn_from_runs(wrong, two, World(), [one.folder]), two, World(), scheduler="heft")
        takes_s = simulate(right, two, World(), second).makespan_s
        assert takes_s < 0.85 * one.makespan_s
        assert abs(takes_s / second.makespan_s - 1) < abs(one.makespan_s / first.makespan_s - 1)

    def test_q_learning_counts_a_real_run_as_an_episode(
        self, wrong: Workflow, two: Fleet, run: RunIt, tmp_path: Path
    ) -> None:
        tables = str(tmp_path / "tables.npz")
        options: dict[str, Any] = {"episodes": 20, "tables": tables}
        one = run(schedule(wrong, two, World(), scheduler="q-learning", options=options, seed=1))
        before = dict(np.load(tables))
        better = learn_from_runs(wrong, two, World(), [one.folder])
        learner = QLearning(**options)
        assert learn_q_tables(learner, better, two, World(), [one.folder]) == 1
        after = dict(np.load(tables))
        assert len(after["makespans_s"]) == len(before["makespans_s"]) + 1
        assert after["makespans_s"][-1] == one.makespan_s
        assert not np.array_equal(after["q"], before["q"])
        assert after["best_s"] == pytest.approx(one.makespan_s, rel=0.25), "judged anew by what was measured"
        assert learn_q_tables(learner, better, two, World(), [one.folder]) == 0, "once is enough"
        second = schedule(better, two, World(), scheduler="q-learning", options={**options, "carry_on": True})
        assert second.details["episodes"] == 41
        assert second.makespan_s <= float(after["best_s"]) + 1e-9

    @pytest.mark.parametrize("policy", ["static", "adaptive"])
    def test_only_an_adaptive_plan_turns_round_on_the_way(
        self, wrong: Workflow, two: Fleet, ground: Path, tmp_path: Path, site: Any, policy: str
    ) -> None:
        """Scans that should take a quarter of an hour are done at once: the rest is shared anew."""
        wrong = takes(wrong, scan=900.0, fit=300.0)
        plan = replace(schedule(wrong, two, World(), scheduler="heft"), policy=policy)
        run = execute(plan, wrong, tmp_path / "run", directory=ground, address=site.address)
        assert run.succeeded
        moves = [fact["why"] for fact in run.facts if fact["fact"] == "replanned"]
        assert set(moves) == ({"surprise"} if policy == "adaptive" else set())

    def test_a_rehearsal_teaches_nothing(
        self, wrong: Workflow, two: Fleet, tmp_path: Path, site: Any
    ) -> None:
        plan = schedule(wrong, two, World(), scheduler="heft")
        execute(plan, wrong, tmp_path / "run", replay=0.01, address=site.address)
        with pytest.raises(BadInput, match="rehearsal and teaches nothing"):
            learn_from_runs(wrong, two, World(), [tmp_path / "run"])

    def test_a_run_of_another_workflow(self, wrong: Workflow, two: Fleet, run: RunIt) -> None:
        one = run(schedule(wrong, two, World(), scheduler="heft"))
        with pytest.raises(BadInput, match=r'of another workflow \("wrong"\)'):
            learn_from_runs(workflow_of("x"), two, World(), [one.folder])
