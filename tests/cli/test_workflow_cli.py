"""`prudent schedule | simulate | execute | workflow`, as a shell would run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.spending import SpendingLog
from prudent.workflows import Activation, File, Plan, Usage, Workflow
from prudent.workflows.execute.journal import ExecutionJournal
from prudent.workflows.execute.run import JOURNAL

Prudent = Callable[..., Any]
FLEET = "2*m3.medium,m3.2xlarge"
QUICK = ("--option", "evaluations=5000")
PROGRAM = [sys.executable, "-m", "prudent.cli.main"]


def refused(done: Any, *says: str) -> None:
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err
    for words in says:
        assert words in done.err
    assert done.err.rstrip().endswith((".", "?"))


@pytest.fixture
def montage(prudent: Prudent, tmp_path: Path) -> Path:
    path = tmp_path / "montage.json"
    assert prudent("workflow", "generate", "montage", 20, path, "--seed", 3).code == 0
    return path


def test_what_programs_need_is_told_and_written(prudent: Prudent, tmp_path: Path) -> None:
    runs = tuple(
        Activation(f"a{at}", "align", 60.0, (File(f"in{at}", at * 1e6),), usage=Usage(1.9, 1e9 + at * 1e7))
        for at in range(1, 20)
    )
    Workflow("earlier", runs).write(tmp_path / "earlier.json")
    asked = prudent("workflow", "size", tmp_path / "earlier.json", "--json", "--out", tmp_path / "n.config")
    assert asked.code == 0, asked.err
    [align] = json.loads(asked.out)["programs"]
    assert (align["program"], align["runs"], align["cores"]) == ("align", 19, 2)
    memory = align["memory_mb"]
    assert 1000 < memory["low"] <= memory["expected"] <= memory["high"] < memory["retry"]
    assert "withName: 'align'" in (tmp_path / "n.config").read_text()
    assert "align" in prudent("workflow", "size", tmp_path / "earlier.json").out
    refused(prudent("workflow", "size", tmp_path / "none.json"), "none.json")
    refused(
        prudent("workflow", "size", tmp_path / "earlier.json", "--out", tmp_path / "x.json"),
        "names no engine",
    )


def test_a_workflow_becomes_one_of_pegasus(prudent: Prudent, montage: Path, tmp_path: Path) -> None:
    assert prudent("workflow", "convert", montage, tmp_path / "m.yml").code == 0
    assert (tmp_path / "m.yml").read_text().startswith("pegasus:")
    shown = prudent("workflow", "show", tmp_path / "m.yml", "--json")
    assert json.loads(shown.out)["fingerprint"] == Workflow.read(montage).fingerprint


def step(name: str, script: str, inputs: str = "", outputs: str = "", runtime_s: float = 0.1) -> Activation:
    reads = tuple(File(word) for word in inputs.split())
    writes = tuple(File(word) for word in outputs.split())
    return Activation(name, name.rstrip("0123456789"), runtime_s, reads, writes, ("sh", "-c", script))


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A workflow of real commands beside the file they read."""
    (tmp_path / "in").write_text("hello\n")
    workflow = Workflow(
        "letters",
        (
            step("up", "tr a-z A-Z < in > up.out", "in", "up.out"),
            step("back", "rev < in > back.out", "in", "back.out"),
            step("both", "cat up.out back.out > out", "up.out back.out", "out"),
        ),
    )
    workflow.write(tmp_path / "letters.json")
    return tmp_path / "letters.json"


class TestWorkflow:
    def test_show_tells_what_there_is(self, prudent: Prudent, montage: Path) -> None:
        said = prudent("workflow", "show", montage)
        assert said.code == 0
        assert "20 activations" in said.out
        told = prudent("workflow", "show", montage, "--json").json
        assert told["activations"] == 20
        assert sum(told["levels"]) == 20
        assert sum(program["count"] for program in told["programs"].values()) == 20
        assert 0 < told["longest_path_s"] <= told["work_s"]

    def test_a_dax_becomes_wfformat(self, prudent: Prudent, tmp_path: Path) -> None:
        dax = '<adag name="two"><job id="a" name="x" runtime="3"/><job id="b" name="y" runtime="4"/>'
        (tmp_path / "two.xml").write_text(f'{dax}<child ref="b"><parent ref="a"/></child></adag>')
        done = prudent("workflow", "convert", tmp_path / "two.xml", tmp_path / "two.json", "--json")
        assert done.json["activations"] == 2
        assert Workflow.read(tmp_path / "two.json").edges == (("a", "b"),)
        assert (
            "none: it can be planned and rehearsed" in prudent("workflow", "show", tmp_path / "two.json").out
        )

    def test_merged_activations_keep_their_commands(self, prudent: Prudent, letters: Path) -> None:
        output = letters.with_name("merged.json")
        steps = (step("a", "cp in x", "in", "x"), step("b", "rev < x > y", "x", "y"))
        Workflow("chain", steps).write(letters)
        assert prudent("workflow", "convert", letters, output, "--cluster", "vertical").code == 0
        [merged] = Workflow.read(output).activations
        subprocess.run(merged.command, cwd=letters.parent, check=True)
        assert letters.with_name("y").read_text() == "olleh\n"

    @pytest.mark.parametrize(
        ("said", "says"),
        [
            (("generate", "montagne", 20, "x.json"), 'Did you mean "montage"?'),
            (("generate", "montage", 2, "x.json"), "at least 9 activations"),
            (("show", "nowhere.json"), "Cannot read workflow"),
            (("convert", "nowhere.xml", "x.json"), "Cannot read workflow"),
            (("generate", "montage", 20, "/proc/none/x.json"), "Cannot write the workflow"),
        ],
    )
    def test_bad_input(self, prudent: Prudent, said: tuple[Any, ...], says: str) -> None:
        refused(prudent("workflow", *said), says)

    def test_an_unknown_kind_of_clustering(self, prudent: Prudent, montage: Path) -> None:
        refused(prudent("workflow", "convert", montage, "x.json", "--cluster", "horizontaly"), "Did you mean")


class TestSchedule:
    def test_the_plan_is_shown_saved_and_reported(self, prudent: Prudent, montage: Path) -> None:
        plan, report = montage.with_name("plan.json"), montage.with_name("report.html")
        done = prudent("schedule", montage, "--fleet", FLEET, "--plan", plan, "--report", report, *QUICK)
        assert done.code == 0
        for word in ("Makespan", "Cost", "heft", "fcfs", "no plan takes less than"):
            assert word in done.out
        assert Plan.load(plan).scheduler == "prudent"
        assert report.read_text().startswith("<!doctype html>")

    def test_json_is_one_document_with_everything(self, prudent: Prudent, montage: Path) -> None:
        told = prudent("schedule", montage, "--fleet", FLEET, "--json", *QUICK).json
        assert told["plan"].endswith("montage.plan.json")
        assert set(told["assignments"]) == set(Workflow.read(montage).index)
        by_name = {each["scheduler"]: each["makespan_s"] for each in told["comparison"]}
        assert by_name["prudent"] <= min(by_name.values()) + 1e-9
        again = prudent("schedule", montage, "--fleet", FLEET, "--json", *QUICK).json
        assert again["assignments"] == told["assignments"]

    def test_objectives(self, prudent: Prudent, montage: Path) -> None:
        common = ("schedule", montage, "--fleet", FLEET, "--json", *QUICK)
        fast = prudent(*common).json
        cheap = prudent(*common, "--objective", "cost", "--deadline", "10 min").json
        assert cheap["cost_usd"] < fast["cost_usd"]
        assert cheap["makespan_s"] <= 600
        between = prudent(*common, "--budget", f"${(fast['cost_usd'] + cheap['cost_usd']) / 2:.4f}").json
        assert cheap["cost_usd"] <= between["cost_usd"] <= fast["cost_usd"]

    def test_q_learning_goes_on_with_its_tables(self, prudent: Prudent, montage: Path) -> None:
        common = (
            "schedule",
            montage,
            "--fleet",
            FLEET,
            "--scheduler",
            "q-learning",
            "--episodes",
            10,
            "--json",
        )
        first = prudent(*common).json
        second = prudent(*common, "--continue").json
        assert (first["details"]["episodes"], second["details"]["episodes"]) == (10, 20)
        assert second["makespan_s"] <= first["makespan_s"]
        assert montage.with_name("montage.plan.tables.npz").exists()

    def test_worlds_slots_and_speeds(self, prudent: Prudent, montage: Path) -> None:
        common = ("schedule", montage, "--fleet", "m3.2xlarge", "--scheduler", "heft", "--json")
        plain = prudent(*common).json["makespan_s"]
        assert prudent(*common, "--mips", "m3.2xlarge=100000").json["makespan_s"] < plain
        assert prudent(*common, "--world", "bandwidth_mb_s=1").json["makespan_s"] > plain
        assert prudent(*common, "--world", "boot_s=60").json["makespan_s"] == pytest.approx(plain + 60)
        assert len({a["slot"] for a in prudent(*common, "--slots", "vcpu").json["assignments"].values()}) == 8

    @pytest.mark.parametrize(
        ("said", "says"),
        [
            (("--fleet", "2*m3.medum"), 'Did you mean "m3.medium"?'),
            (("--fleet", ""), "fleet"),
            (("--fleet", "0*m3.medium"), "m3.medium"),
            (("--fleet", FLEET, "--scheduler", "heftt"), 'Did you mean "heft"?'),
            (("--fleet", FLEET, "--objective", "money"), 'Unknown objective "money"'),
            (("--fleet", FLEET, "--scheduler", "heft", "--deadline", "5 min"), "no option"),
            (
                ("--fleet", FLEET, "--deadline", "1 s"),
                "The deadline of 1 s cannot be kept",
            ),
            (
                ("--fleet", FLEET, "--budget", "$0.000001"),
                "The budget of $1e-06 cannot be kept",
            ),
            (("--fleet", FLEET, "--deadline", "soon"), "is not a quantity"),
            (("--fleet", FLEET, "--episodes", "5"), "episodes"),
            (("--fleet", FLEET, "--scheduler", "q-learning", "--episodes", "0"), "0 episodes"),
            (("--fleet", FLEET, "--scheduler", "heft", "--continue"), "no option"),
            (("--fleet", FLEET, "--slots", "core"), 'Unknown kind of slots "core"'),
            (("--fleet", FLEET, "--world", "bandwith_mb_s=3"), 'Did you mean "bandwidth_mb_s"?'),
            (("--fleet", FLEET, "--world", "storage=cloud"), 'Unknown storage "cloud"'),
            (("--fleet", FLEET, "--world", "calm"), "write it like --world"),
            (("--fleet", FLEET, "--world", "bandwidth_mb_s=fast"), "bandwidth"),
            (("--fleet", FLEET, "--mips", "m3.large=3"), 'Unknown machine of the fleet "m3.large"'),
            (("--fleet", FLEET, "--mips", "m3.medium=fast"), "is not a speed of m3.medium"),
            (("--fleet", FLEET, "--learn-from", "nowhere"), "There is no run"),
            (("--fleet", FLEET, "--plan", "/proc/none/plan.json", *QUICK), "Cannot write the plan"),
            ((), "Missing option"),
        ],
    )
    def test_bad_input(self, prudent: Prudent, montage: Path, said: tuple[str, ...], says: str) -> None:
        refused(prudent("schedule", montage, *said), says)

    @pytest.mark.parametrize(
        ("document", "says"),
        [
            ({"a": ["b"], "b": ["a"]}, "has a cycle"),
            ({"a": ["nobody"]}, 'names activation "nobody"'),
        ],
    )
    def test_graphs_that_cannot_be(
        self, prudent: Prudent, tmp_path: Path, document: dict[str, list[str]], says: str
    ) -> None:
        tasks = [{"name": name, "parents": parents, "children": []} for name, parents in document.items()]
        path = tmp_path / "w.json"
        path.write_text(json.dumps({"name": "w", "workflow": {"tasks": tasks}}))
        refused(prudent("schedule", path, "--fleet", FLEET), says)

    @pytest.mark.parametrize(
        ("uses", "says"),
        [
            ([("a", "x", 1), ("b", "x", 1)], "x"),
            ([("a", "x", -5)], "x"),
        ],
    )
    def test_files_that_cannot_be(
        self, prudent: Prudent, tmp_path: Path, uses: list[tuple[str, str, int]], says: str
    ) -> None:
        tasks = [
            {"name": task, "files": [{"name": file, "link": "output", "sizeInBytes": size}]}
            for task, file, size in uses
        ]
        path = tmp_path / "w.json"
        path.write_text(json.dumps({"name": "w", "workflow": {"tasks": tasks}}))
        refused(prudent("schedule", path, "--fleet", FLEET), f'"{says}"')


class TestSimulate:
    def test_a_plan_in_the_calm_world_takes_what_it_promised(self, prudent: Prudent, montage: Path) -> None:
        plan = prudent("schedule", montage, "--fleet", FLEET, "--json", *QUICK).json
        told = prudent("simulate", montage, "--plan", plan["plan"], "--json").json
        assert told["makespan_s"] == pytest.approx(plan["makespan_s"])
        assert told["succeeded"]
        assert len(told["timeline"]) == 20

    def test_a_scheduler_in_many_worlds(self, prudent: Prudent, montage: Path) -> None:
        world = ("--world", "speed=lognormal(1,0.3)", "--world", "failure_rate=0.05", "--worlds", 20)
        common = ("simulate", montage, "--scheduler", "mct", "--fleet", FLEET, *world)
        told = prudent(*common, "--json").json
        assert told["worlds"] == 20
        assert min(told["makespans_s"]) < told["mean_makespan_s"] < told["p95_makespan_s"]
        assert "or less in 95 % of the worlds" in prudent(*common).out

    def test_five_worlds_say_nothing_of_the_slowest_in_a_hundred(
        self, prudent: Prudent, montage: Path
    ) -> None:
        world = ("--world", "speed=lognormal(1,0.3)", "--worlds", 5)
        said = prudent("simulate", montage, "--scheduler", "mct", "--fleet", FLEET, *world).out
        assert "95 %" not in said
        assert "in the slowest of them" in said

    def test_a_run_that_cannot_finish_ends_with_1(self, prudent: Prudent, montage: Path) -> None:
        world = ("--world", "failure_rate=0.9", "--world", "retries=0")
        done = prudent("simulate", montage, "--scheduler", "fcfs", "--fleet", FLEET, *world)
        assert done.code == 1
        assert "activations were not done" in done.out

    @pytest.mark.parametrize(
        ("said", "says"),
        [
            ((), "either --plan PLAN, or --scheduler NAME"),
            (("--scheduler", "heft"), "no machines"),
            (("--plan", "nowhere.json"), "Cannot read plan"),
            (("--scheduler", "hefty", "--fleet", FLEET), "Did you mean"),
        ],
    )
    def test_bad_input(self, prudent: Prudent, montage: Path, said: tuple[str, ...], says: str) -> None:
        refused(prudent("simulate", montage, *said), says)


class TestExecute:
    def plan(self, prudent: Prudent, letters: Path, *more: str) -> Path:
        plan = letters.with_name("plan.json")
        said = ("schedule", letters, "--fleet", "2*m3.medium", "--scheduler", "heft", "--plan", plan, *more)
        assert prudent(*said).code == 0
        return plan

    def test_a_plan_is_run_reported_and_resumed(self, prudent: Prudent, letters: Path) -> None:
        plan = self.plan(prudent, letters)
        done = prudent("execute", plan)
        assert done.code == 0, done.err
        assert letters.with_name("out").read_text() == "HELLO\nolleh\n"
        assert "3 of 3" in done.out
        assert "both done on" in done.out
        report = letters.with_name("plan.run") / "report.html"
        assert 'id="reality"' in report.read_text()
        refused(prudent("execute", plan), "continue with --resume")
        letters.with_name("out").unlink()
        again = prudent("execute", plan, "--resume")
        assert again.code == 0
        assert 'both runs again: output "out" is missing' in again.out
        assert "2 activations are done and skipped" in again.out
        told = prudent("execute", plan, "--resume", "--json").json
        assert told["skipped"] == 3
        assert told["succeeded"]

    def test_what_was_measured_makes_the_next_plan(self, prudent: Prudent, letters: Path) -> None:
        slow = tuple(step(f"a{at}", f"sleep 0.6; cp in x{at}", "in", f"x{at}") for at in range(3))
        Workflow("slow", slow).write(letters)
        plan = self.plan(prudent, letters)
        before = Plan.load(plan).makespan_s
        real = prudent("execute", plan, "--json").json["makespan_s"]
        run = str(letters.with_name("plan.run"))
        second = letters.with_name("second.json")
        common = ("schedule", letters, "--fleet", "2*m3.medium", "--scheduler", "heft", "--json")
        told = prudent(*common, "--plan", second, "--learn-from", run).json
        assert abs(told["makespan_s"] - real) < abs(before - real)
        assert told["details"]["learned_from"] == ["plan.run"]

    def test_a_failing_command_shows_its_stderr_and_ends_with_1(
        self, prudent: Prudent, letters: Path
    ) -> None:
        workflow = Workflow(
            "bad", (step("a", "cp in x", "in", "x"), step("b", "echo no star >&2; exit 3", "x"))
        )
        workflow.write(letters)
        plan = self.plan(prudent, letters)
        done = prudent("execute", plan, "--retries", "0")
        assert done.code == 1
        assert "exit code 3" in done.err
        assert "    no star" in done.err
        assert done.err.rstrip().endswith("continue with --resume.")
        assert letters.with_name("x").exists()
        told = prudent("execute", plan, "--retries", "0", "--resume", "--json")
        assert told.code == 1
        assert told.json["failures"][0]["stderr"] == "no star"
        assert told.json["skipped"] == 1

    def test_a_rehearsal_needs_no_program(self, prudent: Prudent, montage: Path) -> None:
        prudent("schedule", montage, "--fleet", FLEET, *QUICK)
        plan = montage.with_name("montage.plan.json")
        refused(prudent("execute", plan), "not in", "--directory")
        said = prudent("execute", plan, "--replay", "0.005", "--run", f"{plan}.said").out
        assert "were overhead of the rehearsal" in said
        assert "%)" not in said.split("Makespan")[1].splitlines()[0]
        told = prudent("execute", plan, "--replay", "0.005", "--json").json
        assert told["succeeded"]
        assert told["makespan_s"] >= told["planned_makespan_s"]

    def test_an_interrupted_run_ends_its_commands_and_goes_on_later(
        self, prudent: Prudent, letters: Path
    ) -> None:
        """SIGTERM to the real program in the middle of a command."""
        script = "[ -e go ] || { echo $$ > pid; sleep 600; }; cp in x"
        Workflow("slow", (step("a", "cp in y", "in", "y"), step("b", script, "y", "x"))).write(letters)
        plan = self.plan(prudent, letters)
        process = subprocess.Popen(
            [*PROGRAM, "execute", str(plan)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        pid = letters.with_name("pid")
        journal = plan.with_suffix(".run") / JOURNAL
        # The command has begun, and the run knows it: its worker tells it a moment later.
        while not (
            pid.exists()
            and pid.read_text().strip()
            and any(
                fact["fact"] == "started" and fact["activation"] == "b"
                for fact in ExecutionJournal.read(journal)
            )
        ):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=240)[1].decode()
        assert process.returncode == 130
        assert said.startswith("prudent: interrupted; what ran was stopped")
        assert said.count("\n") == 1
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)
        [paid] = SpendingLog().by_day()
        assert (paid.kind, paid.runs) == ("execute", 1)
        letters.with_name("go").touch()
        done = prudent("execute", plan, "--resume")
        assert done.code == 0
        [after] = SpendingLog().by_day()
        assert after.runs == 1  # the same run
        assert after.usd >= paid.usd > 0
        assert "b runs again: was under way when the run was interrupted" in done.out

    def test_a_budget_is_forecast_kept_and_raised(
        self, prudent: Prudent, letters: Path, tmp_path: Path
    ) -> None:
        """The last activation waits for a file; until it is there, money is over first."""
        slow = step("slow", "until [ -e go ]; do sleep 0.05; done; cp in late", "in", "late")
        Workflow("slow", (step("quick", "cp in soon", "in", "soon"), slow)).write(letters)
        plan = tmp_path / "slow.plan.json"
        prudent("schedule", letters, "--fleet", "m3.medium", "--plan", plan, "--scheduler", "heft")
        said = json.loads(plan.read_text())
        said["fleet"][0] |= {"usd_per_h": 3600.0, "minimum_s": 0.0}  # a dollar a second
        plan.write_text(json.dumps(said))
        refused(prudent("execute", plan, "--budget", "$0.01"), "expected to cost", "90 %", "--budget $")
        refused(prudent("execute", plan, "--deadline", "1 ms"), "expected to take", "--deadline")
        refused(prudent("execute", plan, "--budget", "2 h"), "an amount of money is needed")
        stopped = prudent("execute", plan, "--budget", "$6")
        assert stopped.code == 3
        assert "forecast: $" in stopped.out
        assert "Stopped before the budget of $6.00 is passed" in stopped.err
        assert "1 of 2 activations remain" in stopped.err
        again = prudent("execute", plan, "--resume")  # the budget stays the run's
        assert again.code in (2, 3)
        assert "the budget of $6.00" in again.err
        (letters.parent / "go").touch()
        told = prudent("execute", plan, "--resume", "--budget", "$100", "--json")
        assert told.code == 0
        assert told.json["skipped"] == 1
        assert told.json["budget_usd"] == 100
        assert told.json["forecast"]["cost_usd"]["low"] <= told.json["forecast"]["cost_usd"]["high"]
        assert told.json["stopped"] is None
        page = (plan.with_suffix(".run") / "report.html").read_text()
        assert "Forecast and reality" in page
        [spent] = SpendingLog().by_day()
        assert spent.usd == pytest.approx(told.json["cost_usd"])
        assert spent.forecast_usd is not None

    def test_a_terminal_gets_a_live_view(self, prudent: Prudent, letters: Path) -> None:
        plan = self.plan(prudent, letters)
        code = (
            "import pty, sys\n"
            f"sys.exit(pty.spawn({[*PROGRAM, 'execute', str(plan)]!r}) >> 8)\n"
        )  # fmt: skip
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        said = done.stdout.decode()
        assert done.returncode == 0, said
        assert "3/3 done" in said
        assert "m3.medium-1" in said
        assert "━" in said

    @pytest.mark.parametrize(
        ("said", "says"),
        [
            (("--address", "tcp://127.0.0.1:9"), "No Dask scheduler answers"),
            (("--directory", "nowhere"), "There is no folder"),
            (("--retries", "-1"), "-1 retries"),
            (("--timeout", "never"), "is not a quantity"),
            (("--replay", "0"), "scale is 0"),
        ],
    )
    def test_bad_input(
        self,
        prudent: Prudent,
        letters: Path,
        said: tuple[str, ...],
        says: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("prudent.workflows.execute.workers._ANSWER_S", 0.5)
        refused(prudent("execute", self.plan(prudent, letters), *said), says)

    def test_plans_that_do_not_fit(self, prudent: Prudent, letters: Path, montage: Path) -> None:
        plan = self.plan(prudent, letters)
        refused(prudent("execute", plan, montage), "The plan misses activation")
        short = json.loads(plan.read_text())
        short["assignments"].pop()
        plan.write_text(json.dumps(short))
        refused(prudent("execute", plan), 'The plan misses activation "both"')
        letters.unlink()
        refused(prudent("execute", plan), "name it after the plan")
        plan.write_text("{}")
        refused(prudent("execute", plan), "not a plan")
        refused(prudent("execute", "nowhere.json"), "Cannot read plan")
