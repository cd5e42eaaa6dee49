"""Plans followed with real commands on real Dask workers of this machine."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput, RunFailed
from prudent.workflows import Activation, Fleet, Plan, Vm, Workflow, World, schedule
from prudent.workflows.execute.run import WorkflowRun
from prudent.workflows.execute.runner import execute
from prudent.workflows.execute.workers import scratch_folder
from prudent.workflows.formats.generate import generate

Step = Callable[..., Activation]
PlanFor = Callable[..., Plan]
Dead = Callable[[int], bool]


def test_a_plan_is_followed_on_its_machines_and_its_files_are_made(
    letters: Workflow, plan_for: PlanFor, ground: Path, tmp_path: Path
) -> None:
    plan = plan_for(letters)
    run = execute(plan, letters, tmp_path / "run", directory=ground)
    assert (ground / "out").read_text() == "HELLO\nolleh\n"
    assert run.succeeded
    done = run.execution.assignments
    assert {name: done[name].vm for name in done} == {n: a.vm for n, a in plan.assignments.items()}
    for parent, child in letters.edges:
        assert done[parent].finish_s <= done[child].start_s + 1e-6
    assert run.execution.cost_usd > 0
    assert 0 < run.execution.utilisation <= 1
    assert WorkflowRun.read(tmp_path / "run").to_dict() == run.to_dict()


def test_commands_know_where_they_are_and_what_they_say_is_kept(
    step: Step, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
) -> None:
    said = step("odd/name 1", 'echo "$PRUDENT_ACTIVATION on $PRUDENT_VM"; echo oops >&2; read x || echo none')
    workflow = Workflow("one", (said,))
    run = execute(plan_for(workflow), workflow, tmp_path / "r", directory=ground, address=site.address)
    logs = sorted(path.name for path in (run.folder / "logs").iterdir())
    assert logs == ["odd%2Fname%201.1.err", "odd%2Fname%201.1.out"]
    assert (run.folder / "logs" / logs[1]).read_text() == "odd/name 1 on v1\nnone\n"
    assert (run.folder / "logs" / logs[0]).read_text() == "oops\n"


def test_slots_of_one_vm_are_used_at_the_same_time(
    step: Step, ground: Path, tmp_path: Path, site: Any
) -> None:
    """Each waits for the other: one after the other they would never end."""
    workflow = Workflow(
        "pair",
        (
            step("x", "touch x.here; until [ -e y.here ]; do sleep 0.02; done"),
            step("y", "touch y.here; until [ -e x.here ]; do sleep 0.02; done"),
        ),
    )
    fleet = Fleet((Vm("v1", "m", slots=2),))
    plan = schedule(workflow, fleet, World(), scheduler="heft")
    assert {a.slot for a in plan.assignments.values()} == {0, 1}
    assert execute(plan, workflow, tmp_path / "run", directory=ground, address=site.address).succeeded


class TestFailures:
    def test_a_failing_command_shows_its_stderr_and_keeps_what_is_done(
        self, step: Step, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        workflow = Workflow(
            "fails",
            (
                step("a", "cp in a.out", "in", "a.out"),
                step("bad", "echo 'no such star' >&2; exit 3", "a.out", "bad.out"),
                step("after", "cp bad.out after.out", "bad.out", "after.out"),
                step("aside", "sleep 0.3; cp a.out aside.out", "a.out", "aside.out"),
            ),
        )
        plan = plan_for(workflow)
        with pytest.raises(RunFailed, match=r"(?s)exit code 3.*no such star.*--resume") as caught:
            execute(plan, workflow, tmp_path / "run", directory=ground, address=site.address, retries=1)
        assert caught.value.exit_code == 1
        assert (ground / "aside.out").exists(), "what does not depend on it goes on"
        run = WorkflowRun.read(tmp_path / "run")
        assert [failure.activation for failure in run.failures] == ["bad"]
        assert run.blocked == ("after",)
        assert run.execution.retries == 2
        assert sum(attempt.activation == "bad" for attempt in run.execution.timeline) == 2

        mended = Workflow(
            "fails", tuple(step("bad", "cp a.out bad.out", "a.out", "bad.out") if a.id == "bad" else a
                           for a in workflow.activations),
        )  # fmt: skip
        again = execute(plan, mended, tmp_path / "run", directory=ground, address=site.address, resume=True)
        assert again.succeeded
        assert again.skipped == 2
        assert again.again["bad"].startswith("failed before: it ended with exit code 3")
        assert again.again["after"] == "not run yet"
        attempts = [a for a in again.execution.timeline if a.activation == "a"]
        assert len(attempts) == 1

    def test_a_command_that_fails_once_is_tried_again(
        self, step: Step, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        workflow = Workflow(
            "once", (step("x", "[ -e seen ] || { touch seen; exit 9; }; cp in y", "in", "y"),)
        )
        run = execute(
            plan_for(workflow), workflow, tmp_path / "run", directory=ground, address=site.address, retries=1
        )
        assert [attempt.outcome for attempt in run.execution.timeline] == ["failed", "done"]

    def test_an_output_that_is_not_written_is_a_failure(
        self, step: Step, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        workflow = Workflow("lazy", (step("x", "true", "in", "made"),))
        with pytest.raises(RunFailed, match='did not write its output "made"'):
            execute(
                plan_for(workflow),
                workflow,
                tmp_path / "run",
                directory=ground,
                address=site.address,
                retries=0,
            )

    def test_an_old_output_does_not_pass_for_a_new_one(
        self, step: Step, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        (ground / "made").write_text("from last year")
        workflow = Workflow("lazy", (step("x", "true", "in", "made"),))
        with pytest.raises(RunFailed, match='left the old output "made" as it was'):
            execute(
                plan_for(workflow),
                workflow,
                tmp_path / "run",
                directory=ground,
                address=site.address,
                retries=0,
            )

    def test_a_command_that_takes_too_long_is_a_failure(
        self, step: Step, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        workflow = Workflow("slow", (step("x", "sleep 987"),))
        manner: dict[str, Any] = {"directory": ground, "address": site.address, "retries": 0}
        with pytest.raises(RunFailed, match=r"ended after 0\.2 s"):
            execute(plan_for(workflow), workflow, tmp_path / "run", timeout_s=0.2, **manner)

    def test_stopping_at_the_first_failure_starts_nothing_more(
        self, step: Step, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        workflow = Workflow("stop", (step("bad", "exit 1", runtime_s=2.0), step("later", "touch later")))
        plan = schedule(workflow, Fleet((Vm("v1", "m"),)), World(), scheduler="heft")
        run = execute(
            plan,
            workflow,
            tmp_path / "r",
            directory=ground,
            address=site.address,
            retries=0,
            stop_at_failure=True,
            check=False,
        )
        assert run.blocked == ("later",)
        assert not (ground / "later").exists()


class TestLostWorker:
    def test_a_killed_worker_s_activations_are_planned_anew_on_the_rest(
        self, step: Step, ground: Path, tmp_path: Path
    ) -> None:
        """SIGKILL to the worker process of one VM, while it runs an activation with more to come."""
        count = 9
        workflow = Workflow(
            "many",
            tuple(
                step(
                    f"x{at}",
                    f"until [ -e go ]; do sleep 0.02; done; echo {at} > y{at}",
                    outputs=f"y{at}",
                    runtime_s=0.5,
                )
                for at in range(count)
            ),
        )
        fleet = Fleet(tuple(Vm(f"v{at}", "m") for at in range(3)))
        plan = schedule(workflow, fleet, World(), scheduler="heft")
        killer = _Killer("v1")

        def watch(fact: dict[str, Any]) -> None:
            killer(fact)
            if fact["fact"] == "replanned":
                (ground / "go").touch()  # until then, the others are busy with their first

        run = execute(plan, workflow, tmp_path / "run", directory=ground, retries=0, watch=watch)
        assert killer.killed
        assert run.succeeded, "losing a VM is not a failure of the activation: no retry is used up"
        assert run.lost_vms == ("v1",)
        lost = [attempt for attempt in run.execution.timeline if attempt.outcome == "lost"]
        assert [attempt.vm for attempt in lost] == ["v1"]
        moved = next(fact["moved"] for fact in run.facts if fact["fact"] == "replanned")
        assert {lost[0].activation} < set(moved)
        assert set(moved.values()) == {"v0", "v2"}, "shared by those that are left"
        assert sorted(path.name for path in ground.glob("y*")) == [f"y{at}" for at in range(count)]

    def test_the_command_of_a_killed_worker_dies_with_it(
        self, step: Step, two: Fleet, ground: Path, tmp_path: Path, dead: Dead
    ) -> None:
        """Otherwise it and its repetition would write the same file at the same time."""
        script = "if [ -e first ]; then cp in out; else touch first; echo $$ > pid; sleep 60; fi"
        workflow = Workflow("one", (step("x", script, "in", "out"), step("y", "true", runtime_s=0.2)))
        plan = schedule(workflow, two, World(), scheduler="heft")
        killer = _Killer(plan.assignments["x"].vm, when=ground / "pid")
        assert execute(plan, workflow, tmp_path / "run", directory=ground, watch=killer).succeeded
        assert dead(int((ground / "pid").read_text()))

    def test_when_the_last_worker_is_lost_the_run_ends_and_can_go_on(
        self, step: Step, ground: Path, tmp_path: Path
    ) -> None:
        workflow = Workflow("one", (step("a", "cp in b", "in", "b"), step("x", "[ -e go ] || sleep 60", "b")))
        plan = schedule(workflow, Fleet((Vm("v1", "m"),)), World(), scheduler="heft")
        with pytest.raises(RunFailed, match=r"last VM was lost.*--resume"):
            execute(plan, workflow, tmp_path / "run", directory=ground, watch=_Killer("v1", of="x"))
        (ground / "go").touch()
        run = execute(plan, workflow, tmp_path / "run", directory=ground, resume=True)
        assert run.skipped == 1
        assert run.again == {"x": "lost with VM v1"}


class _Killer:
    """Kills the worker process of a VM as soon as one of its commands runs."""

    def __init__(self, vm: str, when: Path | None = None, of: str | None = None) -> None:
        self.vm, self.when, self.of, self.killed = vm, when, of, False

    def __call__(self, fact: dict[str, Any]) -> None:
        started = fact["fact"] == "started" and fact["vm"] == self.vm and not self.killed
        if not started or (self.of and fact["activation"] != self.of):
            return
        while self.when is not None and not (self.when.exists() and self.when.read_text().strip()):
            time.sleep(0.01)
        os.kill(fact["pid"], signal.SIGKILL)
        self.killed = True


class TestResume:
    def test_everything_done_starts_no_worker_and_runs_nothing(
        self,
        letters: Workflow,
        plan_for: PlanFor,
        ground: Path,
        tmp_path: Path,
        site: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        plan = plan_for(letters)
        first = execute(plan, letters, tmp_path / "run", directory=ground, address=site.address)
        monkeypatch.setattr(sys, "executable", "/no/python/to/start/workers/with")
        again = execute(plan, letters, tmp_path / "run", directory=ground, resume=True)
        assert again.skipped == 4
        assert again.makespan_s == first.makespan_s

    def test_it_says_why_something_runs_again(
        self, letters: Workflow, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        behind = '"{}", which it depends on, runs again'.format
        changes = {
            "rm out": {"d": 'output "out" is missing'},
            "echo bye > in": {
                "a": 'input "in" has changed', "b": behind("a"), "c": behind("a"), "d": behind("b"),
            },
            "echo x > cd": {"c": 'output "cd" was changed since', "d": 'input "cd" has changed'},
            "touch in ab": {},
        }  # fmt: skip
        plan, manner = plan_for(letters), {"directory": ground, "address": site.address}
        execute(plan, letters, tmp_path / "run", **manner)
        for change, reasons in changes.items():
            subprocess.run(change, shell=True, cwd=ground, check=True)
            again = execute(plan, letters, tmp_path / "run", **manner, resume=True)
            assert again.again == reasons
            word = (ground / "in").read_text().strip()
            assert (ground / "out").read_text() == f"{word.upper()}\n{word[::-1]}\n"

    def test_a_changed_command_runs_again(
        self, letters: Workflow, plan_for: PlanFor, step: Step, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        plan, manner = plan_for(letters), {"directory": ground, "address": site.address}
        execute(plan, letters, tmp_path / "run", **manner)
        other = step("d", "cat cd bd > out", "bd cd", "out")
        changed = Workflow("letters", (*letters.activations[:3], other))
        again = execute(plan, changed, tmp_path / "run", **manner, resume=True)
        assert again.again == {"d": "its command has changed"}
        assert (ground / "out").read_text() == "olleh\nHELLO\n"

    def test_a_run_whose_program_was_killed_goes_on_where_it_was(
        self,
        letters: Workflow,
        step: Step,
        plan_for: PlanFor,
        ground: Path,
        tmp_path: Path,
        site: Any,
        dead: Dead,
    ) -> None:
        """SIGKILL to the whole executing process: workers and commands end, the journal tells the rest.

        What was under way is charged from its beginning, which it noted itself, to the last sign of life.
        """
        wait = "[ -e go ] || { echo $$ > pid; sleep 600; }"
        slow = step("b", f"{wait}; tr a-z A-Z < ab > bd", "ab", "bd")
        workflow = Workflow("letters", (letters["a"], slow, letters["c"], letters["d"]))
        workflow.write(tmp_path / "w.json")
        plan_for(workflow).save(tmp_path / "p.json")
        code = (
            "from prudent.workflows import Plan, Workflow\n"
            "from prudent.workflows.execute.runner import execute\n"
            f"execute(Plan.load('p.json'), Workflow.read('w.json'), 'run', directory={str(ground)!r})\n"
        )
        (tmp_path / "temporary").mkdir()
        environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
        process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment)
        facts = tmp_path / "run" / "journal.jsonl"

        def noted() -> bool:
            """The command runs, and the journal has heard of it."""
            if not (ground / "pid").exists() or not (ground / "pid").read_text().strip():
                return False
            lines = facts.read_text().splitlines()
            begun = [line for line in lines if '"started"' in line and '"activation": "b"' in line]
            sign = tmp_path / "run" / "alive.json"
            if not begun or not sign.exists():
                return False
            return bool(json.loads(sign.read_text())["at_s"] > json.loads(begun[0])["at_s"] + 1.5)

        while not noted():
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        killed_s = time.time()
        process.wait()
        most_s = killed_s - (ground / "ab").stat().st_mtime  # it cannot have begun before its input was there
        assert dead(int((ground / "pid").read_text())), "commands end with their run"
        until_s = time.monotonic() + 60.0
        while list((tmp_path / "temporary").iterdir()):
            assert time.monotonic() < until_s, "its workers leave their scratch files"
            time.sleep(0.02)
        with (tmp_path / "run" / "journal.jsonl").open("a") as journal:
            journal.write('{"fact": "ended", "activ')
        told: dict[str, Any] = {"directory": ground, "address": site.address, "resume": True}
        with pytest.raises(BadInput, match="budget"):
            execute(plan_for(workflow), workflow, tmp_path / "run", budget_usd=1e-6, **told)
        refused = WorkflowRun.read(tmp_path / "run")
        [lost] = [fact for fact in refused.facts if fact.get("outcome") == "lost"]
        assert lost["activation"] == "b"
        assert 1.5 < lost["took_s"] <= most_s
        assert refused.cost_usd >= lost["took_s"] * 0.001
        assert refused.makespan_s == lost["finish_s"]
        (ground / "go").touch()
        again = execute(plan_for(workflow), workflow, tmp_path / "run", **told)
        assert again.ended["b"]["start_s"] >= lost["finish_s"]
        assert again.facts[: len(refused.facts)] == refused.facts, "it is charged once"
        assert again.again["b"] == "was under way when the run was interrupted"
        assert "a" not in again.again
        assert WorkflowRun.read(tmp_path / "run").succeeded

    def test_what_a_killed_session_left_in_the_temporary_files_is_removed(
        self, letters: Workflow, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """On rented machines nobody is left here to remove it; what other runs have there stays."""
        temporary, made = tmp_path / "temporary", list[ExitStack]()
        temporary.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        told: dict[str, Any] = {"directory": ground, "address": site.address}
        execute(plan_for(letters), letters, tmp_path / "run", **told)
        run = json.loads((tmp_path / "run" / "journal.jsonl").read_text().splitlines()[0])["id"]
        for name in (f"execute-run-{run}", "execute-run-another"):
            made.append(ExitStack())  # it is not left: its program was killed
            Path(made[-1].enter_context(scratch_folder(name)), "key.pem").touch()
        assert len(list(temporary.glob("*/key.pem"))) == 2
        execute(plan_for(letters), letters, tmp_path / "run", resume=True, **told)
        assert len(list(temporary.iterdir())) == 1
        made[1].close()
        assert not list(temporary.iterdir())

    def test_what_ctrl_c_ended_was_paid(
        self, step: Step, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        workflow = Workflow("waits", (step("a", "[ -e go ] || sleep 600; cp in out", "in", "out"),))

        def stop(fact: dict[str, Any]) -> None:
            if fact["fact"] == "started":
                time.sleep(0.5)
                raise KeyboardInterrupt

        told: dict[str, Any] = {"directory": ground, "address": site.address}
        with pytest.raises(KeyboardInterrupt):
            execute(plan_for(workflow), workflow, tmp_path / "run", watch=stop, **told)
        run = WorkflowRun.read(tmp_path / "run")
        [lost] = [fact for fact in run.facts if fact["fact"] == "ended"]
        assert (lost["outcome"], lost["final"]) == ("lost", False)
        assert lost["took_s"] >= 0.5
        assert run.cost_usd >= 0.5 * 0.001
        (ground / "go").touch()
        again = execute(plan_for(workflow), workflow, tmp_path / "run", resume=True, **told)
        assert again.again == {"a": "was under way when the run was interrupted"}
        assert again.cost_usd > run.cost_usd


class TestReplay:
    def test_a_rehearsal_takes_the_planned_times_at_the_scale(
        self, two: Fleet, tmp_path: Path, site: Any
    ) -> None:
        workflow = generate("montage", 20, seed=3)
        plan = schedule(workflow, two, World(), scheduler="heft")
        began_s = time.monotonic()
        run = execute(plan, workflow, tmp_path / "run", replay=0.002, address=site.address)
        took_s = time.monotonic() - began_s
        assert run.replay == 0.002
        # A busy computer makes the sleeps longer, never shorter.
        done = run.execution.assignments
        for name, planned in plan.assignments.items():
            assert done[name].finish_s - done[name].start_s >= planned.finish_s - planned.start_s - 1e-3
        assert plan.makespan_s <= run.makespan_s <= took_s / 0.002


class TestBadInput:
    def test_a_trace_without_commands(self, tmp_path: Path, two: Fleet) -> None:
        workflow = Workflow("trace", (Activation("a", runtime_s=1),))
        plan = schedule(workflow, two, World(), scheduler="heft")
        with pytest.raises(BadInput, match=r"no command.*rehearse"):
            execute(plan, workflow, tmp_path / "run")

    def test_a_missing_input(
        self, letters: Workflow, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        (ground / "in").unlink()
        with pytest.raises(BadInput, match=r'Input "in" of "a" is not in .*--directory'):
            execute(plan_for(letters), letters, tmp_path / "run", directory=ground)
        (ground / "in").write_text("now it is there\n")
        manner: dict[str, Any] = {"directory": ground, "address": site.address}
        assert execute(plan_for(letters), letters, tmp_path / "run", **manner).succeeded

    def test_a_missing_program(self, plan_for: PlanFor, tmp_path: Path) -> None:
        workflow = Workflow("w", (Activation("a", command=("mProject-of-nowhere", "x")),))
        with pytest.raises(BadInput, match=r'"mProject-of-nowhere" is not on the PATH.*--replay'):
            execute(plan_for(workflow), workflow, tmp_path / "run", directory=tmp_path)

    def test_the_plan_of_another_workflow(
        self, letters: Workflow, plan_for: PlanFor, step: Step, tmp_path: Path
    ) -> None:
        with pytest.raises(BadInput, match='misses activation "a"'):
            execute(plan_for(Workflow("w", (step("z", "true"),))), letters, tmp_path / "run")

    def test_a_run_is_not_overwritten(
        self, letters: Workflow, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        manner: dict[str, Any] = {"directory": ground, "address": site.address, "replay": 0.01}
        execute(plan_for(letters), letters, tmp_path / "run", **manner)
        with pytest.raises(BadInput, match=r"There is a run .* already; continue with --resume"):
            execute(plan_for(letters), letters, tmp_path / "run", directory=ground, replay=0.01)
        with pytest.raises(BadInput, match="is a rehearsal; go on in the same way"):
            execute(plan_for(letters), letters, tmp_path / "run", directory=ground, resume=True)

    @pytest.mark.parametrize(
        ("said", "message"),
        [
            ({"retries": -1}, "-1 retries"),
            ({"timeout_s": 0}, "time-out is 0 s"),
            ({"replay": -1}, "scale is -1"),
            ({"directory": "nowhere"}, 'no folder ".*nowhere"'),
        ],
    )
    def test_a_manner_that_makes_no_sense(
        self, letters: Workflow, plan_for: PlanFor, tmp_path: Path, said: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(BadInput, match=message):
            execute(plan_for(letters), letters, tmp_path / "run", **said)

    def test_a_folder_without_a_run(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="There is no run"):
            WorkflowRun.read(tmp_path)

    def test_a_run_that_was_killed_in_its_first_line(
        self, letters: Workflow, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        manner: dict[str, Any] = {"directory": ground, "address": site.address, "replay": 0.01}
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "journal.jsonl").write_text('{"fact": "run", "versi')
        with pytest.raises(BadInput, match="continue with --resume"):
            execute(plan_for(letters), letters, tmp_path / "run", **manner)
        assert execute(plan_for(letters), letters, tmp_path / "run", resume=True, **manner).succeeded

    def test_a_full_disk_ends_it_and_it_goes_on_when_there_is_room(
        self,
        letters: Workflow,
        plan_for: PlanFor,
        ground: Path,
        tmp_path: Path,
        site: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        manner: dict[str, Any] = {"directory": ground, "address": site.address, "replay": 0.01}
        fsync, calls = os.fsync, itertools.count()

        def full(handle: int) -> None:
            if next(calls) >= 4:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(handle)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(RunFailed, match=r"free some disk space and continue with --resume"):
                execute(plan_for(letters), letters, tmp_path / "run", **manner)
        kept = WorkflowRun.read(tmp_path / "run").facts
        assert [fact["fact"] for fact in kept[:2]] == ["run", "session"]
        done = execute(plan_for(letters), letters, tmp_path / "run", resume=True, **manner)
        assert done.succeeded
        assert done.facts[: len(kept)] == kept

    def test_a_damaged_journal(
        self, letters: Workflow, plan_for: PlanFor, ground: Path, tmp_path: Path, site: Any
    ) -> None:
        manner: dict[str, Any] = {"directory": ground, "address": site.address, "replay": 0.01}
        execute(plan_for(letters), letters, tmp_path / "run", **manner)
        path = tmp_path / "run" / "journal.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines[:2], "{torn\n", *lines[2:]]))
        with pytest.raises(BadInput, match=r"Line 3 .* is damaged"):
            WorkflowRun.read(tmp_path / "run")
