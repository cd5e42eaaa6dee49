"""The book of this computer: by day, nothing twice, nothing lost, whoever writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from prudent.cloud.spending import DailySpending, RunSpending, SpendingLog, SpendingRecord, daily_spending

DAY_S = 86_400.0


def test_totals_become_money_of_days_and_projects() -> None:
    lines = [
        SpendingRecord(10.0, "tune", "wine", "a", 0.5, 2.0),
        SpendingRecord(20.0, "tune", "wine", "a", 0.8, 2.0),
        SpendingRecord(30.0, "tune", "wine", "b", 0.1),
        SpendingRecord(40.0, "train", "iris", "c", 0.3, 0.4),
        SpendingRecord(DAY_S + 1, "tune", "wine", "a", 1.0, 2.0),
        SpendingRecord(DAY_S + 2, "tune", "wine", "a", 0.9),  # a line that came late takes nothing back
    ]
    assert daily_spending(lines) == [
        DailySpending("1970-01-02", "wine", "tune", pytest.approx(0.2), None, 1),
        DailySpending("1970-01-01", "wine", "tune", pytest.approx(0.9), 2.0, 2),
        DailySpending("1970-01-01", "iris", "train", 0.3, 0.4, 1),
    ]
    assert [spent.day for spent in daily_spending(lines, "1970-01-02")] == ["1970-01-02"]


def test_what_cannot_be_read_is_left_out(own_home: Path) -> None:
    SpendingLog().tell("tune", "wine", "a", 1.5)
    with (own_home / "spending.jsonl").open("a") as file:
        file.write('{"at_s": 1\n[]\n{"kind": "tune"}\n')
    assert [told.total_usd for told in SpendingLog().read()] == [1.5]
    assert (own_home / "spending.jsonl").stat().st_mode & 0o777 == 0o600


def test_many_write_at_once(own_home: Path) -> None:
    code = (
        "import sys; from prudent.cloud.spending import SpendingLog\n"
        "for n in range(50): SpendingLog().tell('tune', 'x' * 3000, sys.argv[1], n / 50)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = (own_home / "spending.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 150


def test_a_run_that_is_resumed_is_the_same_run(tmp_path: Path) -> None:
    place = tmp_path / "study.jsonl"
    RunSpending("tune", "wine", place).tell(0.5)
    RunSpending("tune", "wine", place, resume=True).tell(0.7)
    assert [spent.usd for spent in SpendingLog().by_day()] == [pytest.approx(0.7)]
    RunSpending("tune", "wine", place).tell(0.2)  # another study where the old one was
    [spent] = SpendingLog().by_day()
    assert (spent.usd, spent.runs) == (pytest.approx(0.9), 2)


def test_a_book_that_cannot_be_written_is_told_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRUDENT_HOME", str(tmp_path / "file" / "home"))
    (tmp_path / "file").write_text("in the way")
    told: list[str] = []
    account = RunSpending("tune", "wine", tmp_path / "study", complain=told.append)
    account.tell(0.1)
    account.tell(0.2)
    assert len(told) == 1
    assert "PRUDENT_HOME" in told[0]
