"""`prudent tune` from the outside: the plan, the answer, the files, resuming."""

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

PROGRAM = [sys.executable, "-m", "prudent.cli.main"]
Prudent = Callable[..., Any]
Write = Callable[..., Path]


class TestAnswer:
    def test_the_answer_the_files_and_the_exit_code(
        self, prudent: Prudent, job: Write, tmp_path: Path
    ) -> None:
        done = prudent("tune", job(name="mine"))
        assert done.code == 0
        assert done.err == ""
        folder = tmp_path / "mine.prudent"
        assert (folder / "journal.jsonl").stat().st_size > 0
        page = (folder / "report.html").read_text()
        assert "<html" in page
        for words in (
            "Best",
            "a run",
            "accuracy",
            "workers",
            "Spent",
            "of $0.30",
        ):
            assert words in done.out
        # A long path goes on in the next line.
        assert str(folder / "report.html") in "".join(done.out.split())
        assert all(line == line.rstrip() for line in done.out.splitlines())

    def test_a_line_for_every_trial_where_it_is_no_terminal(self, prudent: Prudent, job: Write) -> None:
        done = prudent("tune", job(), "--max-trials", 5)
        lines = [line for line in done.out.splitlines() if line.startswith("#")]
        assert [line.split()[0] for line in lines] == ["#1", "#2", "#3", "#4", "#5"]
        assert "vm=" in lines[0]

    def test_json_is_all_there_is_on_stdout(self, prudent: Prudent, job: Write, tmp_path: Path) -> None:
        done = prudent("tune", job(), "--json", "--report", tmp_path / "r" / "mine.html")
        said = done.json
        assert done.code == 0
        assert said["best"]["feasible"]
        assert said["spent_usd"] <= 0.3
        assert said["spent_usd"] == pytest.approx(sum(trial["spent_usd"] for trial in said["trials"]))
        assert Path(said["report"]).is_file()
        assert Path(said["journal"]).is_file()

    def test_a_budget_that_was_passed_is_told_by_text_json_and_exit_code(
        self, prudent: Prudent, job: Write
    ) -> None:
        assert prudent("tune", job()).code == 0
        lowered = ("tune", job(), "--resume", "--budget", "$0.01")
        done, told = prudent(*lowered), prudent(*lowered, "--json")
        assert (done.code, told.code) == (3, 3)
        assert "more than the budget" in " ".join(done.out.split())
        trials_usd = sum(trial["spent_usd"] for trial in told.json["trials"])
        assert told.json["over_usd"] == pytest.approx(trials_usd - 0.01)

    def test_nothing_feasible_says_what_came_nearest_and_by_how_much(
        self, prudent: Prudent, job: Write, tmp_path: Path
    ) -> None:
        goal = "minimise cost_usd subject to accuracy >= 0.95"
        done = prudent("tune", job(goal=goal), "--no-early-stop")
        assert done.code == 1
        assert "No configuration that was tried keeps every constraint." in done.out
        assert "accuracy was 0.9 (off by 5.3%), but accuracy >= 0.95 is wanted" in done.out
        again = prudent("tune", job(goal=goal), "--journal", tmp_path / "other.jsonl", "--json")
        assert (again.code, again.json["best"]) == (1, None)

    def test_all_cut_and_all_failed_have_their_own_words(
        self, prudent: Prudent, job: Write, command_job: Write
    ) -> None:
        cut = prudent("tune", job(goal="minimise cost_usd subject to time_s <= 1 s"), "--max-trials", 3)
        assert cut.code == 1
        assert "No run ended by itself: 3 were cut" in cut.out
        failed = prudent("tune", command_job(command="echo {x}; echo no such data set >&2; exit 3"))
        assert failed.code == 1
        assert "All 8 trials failed; the first said: exit code 3: no such data set" in failed.out

    def test_flags_count_more_than_the_file(self, prudent: Prudent, job: Write) -> None:
        done = prudent(
            "tune", job(options={}), "--json", "--goal", "minimise time_s", "--budget", "10 cents",
            "--strategy", "lynceus", "--option", "start_trials=2", "--option", "start=latin", "--seed", 3,
            "--max-trials", 3, "--no-early-stop", "--parallel", 2,
        )  # fmt: skip
        said = done.json
        assert (said["goal"], said["budget_usd"], said["strategy"], said["seed"]) == (
            "minimise time_s", 0.1, "lynceus", 3
        )  # fmt: skip
        assert len(said["trials"]) <= 3
        header = json.loads(Path(said["journal"]).read_text().splitlines()[0])
        assert header["options"] == {"start_trials": 2, "start": "latin"}
        assert header["early_stop"] is False

    def test_another_strategy_forgets_the_options_of_the_first(self, prudent: Prudent, job: Write) -> None:
        path = job(strategy="lynceus", options={"lookahead": 0})
        assert prudent("tune", path, "--strategy", "random", "--json").code == 0


class TestResume:
    def test_a_second_start_is_refused_with_the_remedy(self, prudent: Prudent, job: Write) -> None:
        path = job()
        assert prudent("tune", path, "--max-trials", 2).code in (0, 1)
        again = prudent("tune", path)
        assert again.code == 2
        assert "continue with --resume" in again.err

    def test_it_goes_on_and_pays_nothing_twice(self, prudent: Prudent, job: Write, tmp_path: Path) -> None:
        path = job()
        whole = prudent("tune", path, "--json", "--journal", tmp_path / "whole.jsonl").json
        prudent("tune", path, "--max-trials", 3)
        resumed = prudent("tune", path, "--resume", "--json").json

        def told(result: Any) -> list[Any]:
            return [{**trial, "decision_s": 0} for trial in result["trials"]]

        assert told(resumed) == told(whole)
        assert resumed["spent_usd"] == whole["spent_usd"]

    def test_resuming_what_never_began_begins_it(self, prudent: Prudent, job: Write) -> None:
        assert prudent("tune", job(), "--resume").code == 0

    def test_a_changed_job_is_refused(self, prudent: Prudent, job: Write, tmp_path: Path) -> None:
        prudent("tune", job(), "--max-trials", 2)
        runs = tmp_path / "runs.csv"
        runs.write_text(runs.read_text().replace("0,small,1,0.001,", "0,small,1,0.001,9"))
        done = prudent("tune", job(), "--resume")
        assert done.code == 2
        assert "the job has changed" in done.err

    def test_more_money_goes_on_where_it_ended(self, prudent: Prudent, job: Write) -> None:
        first = prudent("tune", job(), "--json").json
        more = prudent("tune", job(), "--resume", "--budget", "$0.5", "--json").json
        assert len(more["trials"]) > len(first["trials"])
        assert more["trials"][: len(first["trials"])] == first["trials"]


class TestWarmStart:
    def test_earlier_studies_are_free_knowledge(self, prudent: Prudent, job: Write, tmp_path: Path) -> None:
        prudent("tune", job(), "--journal", tmp_path / "old.jsonl", "--max-trials", 4)
        done = prudent("tune", job(), "--warm-start", tmp_path / "old.jsonl", "--seed", 9, "--json")
        old = [json.loads(line) for line in (tmp_path / "old.jsonl").read_text().splitlines()]
        tried = [fact["trial"]["configuration"] for fact in old if fact["fact"] == "told"]
        assert len(tried) == 4
        assert not [trial for trial in done.json["trials"] if trial["configuration"] in tried]
        assert done.json["spent_usd"] <= 0.3

    def test_other_files_are_refused(self, prudent: Prudent, job: Write, tmp_path: Path) -> None:
        done = prudent("tune", job(), "--warm-start", tmp_path / "runs.csv")
        assert (done.code, "runs.csv" in done.err) == (2, True)


class TestDryRun:
    def test_it_tells_size_prices_and_what_the_budget_buys(self, prudent: Prudent, job: Write) -> None:
        done = prudent("tune", job(), "--dry-run", "--json")
        said = done.json
        assert done.code == 0
        assert said["configurations"] == 72
        cheapest, _, dearest = said["prices"]
        assert (cheapest["usd_per_h"], cheapest["hours"]) == (0.05, pytest.approx(6.0))
        assert cheapest["runs"] == pytest.approx(6 * 12)
        assert dearest["usd_per_h"] == pytest.approx(6.4)
        assert len(said["first"]) == 4
        text = prudent("tune", job(), "--dry-run").out
        for words in (
            "Configurations",
            "72",
            "cheapest",
            "6 h 00 min",
            "72.0",
            "First trials",
            "Nothing was run",
        ):
            assert words in text

    def test_nothing_is_written_and_the_first_trials_are_the_first_trials(
        self, prudent: Prudent, job: Write, tmp_path: Path
    ) -> None:
        before = sorted(tmp_path.iterdir())
        path = job()
        planned = prudent("tune", path, "--dry-run", "--json", "--strategy", "lynceus").json["first"]
        assert sorted(tmp_path.iterdir()) == sorted({*before, path})
        many = len(planned)
        assert 2 <= many <= 4
        done = prudent("tune", path, "--strategy", "lynceus", "--json", "--max-trials", many).json
        assert [t["configuration"] for t in done["trials"]] == [first["configuration"] for first in planned]

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"price": {"machine": "m5.large", "count": "workers"},
              "goal": "minimise error subject to cost_usd <= $0.0001"}, "No configuration can keep cost_usd"),
            ({"setup": "2 min", "goal": "minimise error subject to time_s <= 1 min"}, "setting up alone"),
            ({"price": None}, "Every configuration is free"),
            ({"budget": None}, "There is no budget"),
            ({}, 'No "time_s <= …" in the goal'),
            ({"goal": "minimise error subject to time_s <= 50 h"}, "too small for even one run"),
            ({"goal": "minimise error subject to time_s <= 5 h"}, "The first 4 trials may cost up to"),
        ],
    )  # fmt: skip
    def test_warnings(self, prudent: Prudent, command_job: Write, changes: dict[str, Any], says: str) -> None:
        warnings = prudent("tune", command_job(**changes), "--dry-run", "--json").json["warnings"]
        assert any(says in warning for warning in warnings), warnings


class TestReport:
    def test_it_is_written_again_without_running_anything(
        self, prudent: Prudent, job: Write, tmp_path: Path
    ) -> None:
        path = job()
        first = prudent("tune", path, "--json", "--seed", 3, "--strategy", "grid", "--max-trials", 6).json
        journal = Path(first["journal"]).read_bytes()
        done = prudent("report", path, "-o", tmp_path / "again.html", "--json")
        assert done.code == 0
        assert done.json["trials"] == first["trials"]
        assert (done.json["seed"], done.json["strategy"]) == (3, "grid")
        assert (tmp_path / "again.html").is_file()
        assert Path(first["journal"]).read_bytes() == journal

    def test_without_a_study_there_is_no_report(self, prudent: Prudent, job: Write) -> None:
        done = prudent("report", job())
        assert (done.code, "run prudent tune first" in done.err) == (2, True)


class TestLive:
    @pytest.mark.usefixtures("heeds_ctrl_c")
    def test_ctrl_c_ends_cleanly_with_the_best_so_far(
        self, prudent: Prudent, command_job: Write, tmp_path: Path
    ) -> None:
        path = command_job(command="test {x} = 1 || sleep 600; echo 'PRUDENT {{\"error\": 1}}'", name="slow")
        process = subprocess.Popen(
            [*PROGRAM, "tune", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            _wait_for((tmp_path / "slow.prudent" / "logs" / "trial-0003.pid").exists)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=240)
        finally:
            process.kill()
        assert (process.returncode, err) == (130, "")
        assert "is charged. It starts again from its beginning when you continue with --resume" in " ".join(
            out.split()
        )
        assert "Best" in out
        assert not list((tmp_path / "slow.prudent" / "logs").glob("*.pid"))
        again = prudent("tune", path, "--resume", "--max-trials", 2, "--json").json
        assert len(again["trials"]) == 2
        facts = _facts(tmp_path / "slow.prudent" / "journal.jsonl")
        charges = [fact["charge"]["usd"] for fact in facts if fact["fact"] in ("told", "interrupted")]
        assert again["spent_usd"] == pytest.approx(sum(charges))
        assert again["interrupted_usd"] > 0
        trials_usd = sum(trial["spent_usd"] for trial in again["trials"])
        assert again["spent_usd"] == pytest.approx(trials_usd + again["interrupted_usd"])

    def test_a_terminal_gets_a_live_view(self, job: Write) -> None:
        import pty

        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        process = subprocess.Popen(
            [*PROGRAM, "tune", str(job())], stdout=slave, stderr=slave, stdin=slave, env=environment
        )
        os.close(slave)
        said = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            said += part
        os.close(master)
        assert process.wait(timeout=240) == 0
        text = said.decode()
        for words in ("Budget", "━", "Trials", "best so far", "Best", "Report"):
            assert words in text


def _facts(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _wait_for(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)
