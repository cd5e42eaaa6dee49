"""Whatever is wrong with a request: one sentence with the remedy, exit code 2, nothing lost.

A run that failed by itself ends with exit code 1 instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = [sys.executable, "-m", "prudent.cli.main"]
Prudent = Callable[..., Any]
Write = Callable[..., Path]


def refused(done: Any, says: str) -> None:
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err
    assert says in done.err
    assert done.err.rstrip().endswith((".", "?"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"table": "gone.csv"}, 'There is no file'),
        ({"progress": "gone.csv"}, 'There is no file'),
        ({"parameters": ["vm", "wrokers"]}, 'Did you mean "workers"?'),
        ({"measures": ["acuracy"]}, 'Did you mean "accuracy"?'),
        ({"time": "seconds"}, 'Unknown column of runs.csv "seconds"'),
        ({"parameters": []}, "No column is named"),
        ({"goal": "minimise cost_usd subject to f1 >= 0.9"}, 'Unknown measure in the goal "f1"'),
        ({"goal": "minimise cost"}, 'Did you mean "cost_usd"?'),
        ({"goal": None}, 'There is no "goal"'),
        ({"goal": "minimise time_s subject to time_s <= 5 parsec"}, 'job.yaml, goal: Unknown unit "parsec"'),
        ({"budget": "$0"}, "job.yaml, budget: The budget is $0; give an amount above 0"),
        ({"budget": "5 min"}, "an amount of money is needed"),
        ({"budget": "-1"}, "give an amount above 0"),
        ({"strategy": "lynceos"}, 'Did you mean "lynceus"?'),
        ({"strategy": "lynceus", "options": {"look_ahead": 1}}, 'Did you mean "lookahead"?'),
        ({"strategy": "lynceus", "options": {"lookahead": 99}}, "lookahead must be 0 to"),
        ({"parallel": 0}, "job.yaml, parallel: 0 does not fit"),
        ({"early_stop": "maybe"}, "neither true nor false"),
        ({"seed": "x"}, "job.yaml, seed"),
        ({"bugdet": "$2"}, 'job.yaml, bugdet: Unknown key "bugdet". Did you mean "budget"?'),
        ({"rule": "workers < 3"}, "is for a command, and this job is a table"),
        ({"command": "true"}, "both command and table"),
        ({"table": None}, "does not say what to run"),
        ({"name": "a/b"}, "cannot name a folder"),
        ({"options": ["lookahead"]}, "has no keys"),
    ],
)  # fmt: skip
def test_table_jobs(prudent: Prudent, job: Write, tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    refused(prudent("tune", job(**changes)), says)
    assert not list(tmp_path.glob("*.prudent"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"command": "trian.py {x}"}, 'There is no command "trian.py"'),
        ({"command": "echo {y}"}, 'Unknown place "y"'),
        ({"command": ""}, "shell.yaml, command"),
        ({"parameters": {"x": {"lgo": [1, 2]}}}, 'shell.yaml, parameters.x: Unknown kind of parameter "x"'),
        ({"parameters": {"x": []}}, "shell.yaml, parameters.x"),
        ({"parameters": {}}, "are not parameters"),
        ({"parameters": {"x": [1], "vm": {"machine": {"types": ["m5.lagre"]}}}}, 'Did you mean "m5.large"?'),
        ({"parameters": {"vm": {"machine": {"types": ["m5.*"], "cuont": 2}}}}, 'Did you mean "count"?'),
        ({"rule": "x <"}, "shell.yaml, rule"),
        ({"rule": "y < 3"}, '"y"'),
        ({"rule": "x > 100"}, "excludes every configuration"),
        ({"price": -0.5}, "shell.yaml, price: The price -0.5"),
        ({"price": "0.05 * wrokers"}, 'Did you mean "workers"?'),
        ({"price": {"machine": "m5.lagre"}}, 'Did you mean "m5.large"?'),
        ({"price": {"catalog": "gone.csv"}}, "shell.yaml, price.catalog"),
        ({"price": {"machine": "m5.large", "count": "workers"}, "budget": "$0.0001"}, "pays for no run"),
        ({"measures": ["error", "error"]}, "named twice"),
        ({"fraction": "x"}, "not a share of the data"),
        ({"fraction": "workesr"}, 'Did you mean "workers"?'),
        ({"setup": "-3 s"}, "shell.yaml, setup"),
        ({"directory": "gone"}, "There is no folder"),
        ({"parameters": {"x": {"real": [0, 1]}}, "price": None}, "This study would never end"),
    ],
)  # fmt: skip
def test_command_jobs(prudent: Prudent, command_job: Write, changes: dict[str, Any], says: str) -> None:
    refused(prudent("tune", command_job(**changes)), says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no keys"),
        ("- a\n- b\n", "holds no keys"),
        ("goal: [unclosed\n", "not YAML"),
        ("budget: $1\nbudget: $2\n", 'The key "budget" is in line 1 and again in line 2'),
        ("goal: !!python/object/apply:os.system ['true']\n", "not YAML"),
        ("\x00", "broken.yaml"),
    ],
)
def test_files_that_are_no_job_files(prudent: Prudent, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    refused(prudent("tune", path), says)


def test_missing_files_and_folders(prudent: Prudent, tmp_path: Path) -> None:
    refused(prudent("tune", tmp_path / "gone.yaml"), "There is no job file")
    refused(prudent("tune", tmp_path), "Cannot read the job file")


def test_values_that_are_not_measured_or_not_numbers(prudent: Prudent, job: Write, tmp_path: Path) -> None:
    path = job()
    runs = tmp_path / "runs.csv"
    whole = runs.read_text()
    lines = whole.splitlines()
    cells = lines[5].split(",")
    for column, value, says in (
        (6, "nan", "is not a number"),
        (4, "soon", "is not a number"),
        (5, "-1", "0 or more"),
    ):
        wrong = [*cells]
        wrong[column] = value
        runs.write_text("\n".join([*lines[:5], ",".join(wrong), *lines[6:]]))
        done = prudent("tune", path)
        refused(done, says)
        assert "Line 6" in done.err


class TestRunsThatGoWrong:
    def test_nan_measures_fail_the_run_only(self, prudent: Prudent, command_job: Write) -> None:
        command = "test {x} = 1 && echo 'PRUDENT {{\"error\": NaN}}' || echo 'PRUDENT {{\"error\": 2}}'"
        done = prudent("tune", command_job(command=command), "--json")
        assert done.code == 0
        statuses = {trial["configuration"]["x"]: trial["status"] for trial in done.json["trials"]}
        assert statuses == {1: "failed", 2: "finished", 3: "finished", 4: "finished"}
        assert "finite number" in done.json["trials"][0]["why"]

    def test_rubbish_is_told_with_what_to_print(self, prudent: Prudent, command_job: Write) -> None:
        done = prudent("tune", command_job(command="echo {x}; echo 'PRUDENT accuracy is fine'"))
        assert done.code == 1
        assert "All 8 trials failed" in done.out
        assert 'print a line PRUDENT {"error": 0.5}' in done.out

    def test_a_command_that_is_never_found_ends_the_study_free_of_charge(
        self, prudent: Prudent, command_job: Write
    ) -> None:
        many = {"x": list(range(50))}
        done = prudent("tune", command_job(command="cd . && no-such-program {x}", parameters=many, price=1.0))
        assert done.code == 1
        assert "could not start" in done.err
        assert "fix the job, then continue with --resume" in done.err


class TestFolders:
    def test_a_folder_that_may_not_be_written(self, job: Write, tmp_path: Path) -> None:
        path = job()
        # Root may write everywhere: after a dry run, with everything imported, it becomes somebody else.
        code = (
            "import os, sys\n"
            "from prudent.cli.main import run\n"
            "assert run(['tune', sys.argv[1], '--dry-run', '--json']) == 0\n"
            "sys.stdout.flush()\n"
            "if os.geteuid() == 0:\n    os.setegid(65534)\n    os.seteuid(65534)\n"
            "sys.exit(run(['tune', sys.argv[1]]))\n"
        )
        for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent, tmp_path.parent.parent.parent):
            os.chmod(folder, 0o755)
        os.chmod(tmp_path, 0o555)
        try:
            done = subprocess.run(
                [sys.executable, "-c", code, str(path)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            os.chmod(tmp_path, 0o755)
        assert done.returncode == 2, done
        assert "Cannot write the journal" in done.stderr
        assert "Permission denied" in done.stderr
        assert "choose a folder you may write to" in done.stderr

    def test_a_report_that_cannot_be_written_costs_nothing_else(
        self, prudent: Prudent, job: Write, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        done = prudent("tune", job(), "--report", tmp_path / "file" / "r.html")
        assert done.code == 0
        assert "Best" in done.out
        assert "the report could not be written" in done.err


def limited(path: Path, size: int, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a study in which no file may grow beyond `size` bytes, as if the disk were full then.

    Coverage does not follow it: its own file would be one that cannot grow.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "from prudent.cli.main import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "tune", str(path), "--json", *more],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


def test_a_full_disk_keeps_what_was_paid_for(prudent: Prudent, job: Write, tmp_path: Path) -> None:
    path = job()
    whole = prudent("tune", path, "--json", "--journal", tmp_path / "whole.jsonl").json
    done = limited(path, 3000)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "File too large" in done.stderr
    assert "free some disk space and continue with --resume" in done.stderr
    assert done.stderr.count("\n") == 1
    journal = tmp_path / "job.prudent" / "journal.jsonl"
    kept = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len(kept) > 1
    assert journal.stat().st_size <= 3000
    resumed = prudent("tune", path, "--resume", "--json").json
    assert [{**t, "decision_s": 0} for t in resumed["trials"]] == [
        {**t, "decision_s": 0} for t in whole["trials"]
    ]


def test_a_second_process_on_the_same_journal_is_refused(
    prudent: Prudent, command_job: Write, tmp_path: Path
) -> None:
    path = command_job(command="sleep 600; echo {x}", name="busy")
    first = subprocess.Popen(
        [*PROGRAM, "tune", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        pid = tmp_path / "busy.prudent" / "logs" / "trial-0001.pid"
        until = time.monotonic() + 120
        while not pid.exists():
            assert time.monotonic() < until, "it never began"
            assert first.poll() is None
            time.sleep(0.02)
        done = prudent("tune", path, "--resume")
        refused(done, "Another process is running the study")
        assert pid.exists(), "the run of the first study was ended by the second"
        assert first.poll() is None
    finally:
        first.terminate()
        assert first.wait(timeout=120) == 130
    assert not pid.exists()
