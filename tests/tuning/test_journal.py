"""The journal of a study is taken up by the same study only; what every journal promises is in tests/core."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.tuning.journal import Journal, study_lock

HEADER = {"job": "table 1", "goal": "minimise cost_usd", "seed": 7, "known": []}


def write(path: Path, count: int) -> list[dict[str, Any]]:
    with Journal.open(path, HEADER, resume=False) as journal:
        for number in range(count):
            journal.write({"fact": "asked", "number": number, "why": "schön\n\r\u2028"})
    return Journal.read(path)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    facts = write(tmp_path / "deep" / "er" / "j.jsonl", 3)
    assert Journal.read(tmp_path / "deep" / "er" / "j.jsonl") == facts
    with Journal.open(tmp_path / "deep" / "er" / "j.jsonl", HEADER, resume=True) as journal:
        assert journal.facts == facts


def test_a_study_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "j.jsonl", 1)
    with pytest.raises(BadInput, match="holds a study already; continue with --resume"):
        Journal.open(tmp_path / "j.jsonl", HEADER, resume=False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"job": "table 2"}, "the job has changed"),
        ({"goal": "minimise time_s"}, "its goal is 'minimise cost_usd', here it is 'minimise time_s'"),
        ({"seed": 8}, "its seed is 7, here it is 8"),
        ({"known": [{"number": -1}]}, "other earlier trials"),
    ],
)
def test_the_journal_of_another_study_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    write(tmp_path / "j.jsonl", 1)
    with pytest.raises(BadInput, match=says):
        Journal.open(tmp_path / "j.jsonl", {**HEADER, **change}, resume=True)


@pytest.mark.parametrize("content", ["hello\n", '{"fact": "asked"}\n', "[1, 2]\n"])
def test_other_files_are_no_journals(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content + content)
    for use in (lambda: Journal.open(path, HEADER, resume=True), lambda: Journal.read(path)):
        with pytest.raises(BadInput, match=r"not a journal|damaged"):
            use()
    assert path.read_text() == content + content


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(json.dumps({"fact": "study", "format": 99, **HEADER}) + "\n")
    with pytest.raises(BadInput, match="has format 99; this version reads format 1"):
        Journal.open(path, HEADER, resume=True)


def test_one_study_at_a_time(tmp_path: Path) -> None:
    first = Journal.open(tmp_path / "j.jsonl", HEADER, resume=False)
    with pytest.raises(BadInput, match="Another process is running the study"):
        Journal.open(tmp_path / "j.jsonl", HEADER, resume=True)
    first.close()
    Journal.open(tmp_path / "j.jsonl", HEADER, resume=True).close()


def test_what_is_no_journal_cannot_be_locked(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(BadInput, match="Cannot read the journal"), study_lock(path):
            pass


def test_a_study_that_is_locked_is_not_taken_up(tmp_path: Path) -> None:
    write(tmp_path / "j.jsonl", 1)
    with study_lock(tmp_path / "j.jsonl"), pytest.raises(BadInput, match="Another process"):
        Journal.open(tmp_path / "j.jsonl", HEADER, resume=True)
    Journal.open(tmp_path / "j.jsonl", HEADER, resume=True).close()
