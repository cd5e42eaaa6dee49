"""The journal keeps every fact it promised, whatever happens to the process or the disk."""

from __future__ import annotations

import json
import resource
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput, RunFailed
from prudent.tuning.journal import Journal, read_facts

HEADER = {"job": "table 1", "goal": "minimise cost_usd", "seed": 7, "known": []}


def write(path: Path, count: int) -> list[dict[str, Any]]:
    with Journal.open(path, HEADER, resume=False) as journal:
        for number in range(count):
            journal.write({"fact": "asked", "number": number, "why": "schön\n\r\u2028"})
        return list(journal.facts)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    facts = write(tmp_path / "deep" / "er" / "j.jsonl", 3)
    assert read_facts(tmp_path / "deep" / "er" / "j.jsonl") == facts
    with Journal.open(tmp_path / "deep" / "er" / "j.jsonl", HEADER, resume=True) as journal:
        assert journal.facts == facts


def test_a_study_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "j.jsonl", 1)
    with pytest.raises(BadInput, match="holds a study already; continue with --resume"):
        Journal.open(tmp_path / "j.jsonl", HEADER, resume=False)


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(min_value=1, max_value=10_000))
def test_a_torn_end_is_repaired(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        facts = write(path, 5)
        data = path.read_bytes()
        cut = min(cut, len(data))
        path.write_bytes(data[:-cut])
        left = data[:-cut].count(b"\n")
        with Journal.open(path, HEADER, resume=True) as journal:
            assert journal.facts[:left] == facts[:left]
            journal.write({"fact": "asked", "number": 99})
        again = read_facts(path)
        assert again[-1] == {"fact": "asked", "number": 99}
        assert again[0] == facts[0]


def test_damage_in_the_middle_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"fact": "as\n' + lines[2])
    with pytest.raises(BadInput, match=r"Line 2 of .* is damaged"):
        Journal.open(path, HEADER, resume=True)
    with pytest.raises(BadInput, match="Line 2"):
        read_facts(path)


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
    for use in (lambda: Journal.open(path, HEADER, resume=True), lambda: read_facts(path)):
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


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="choose a folder you may write to"):
        Journal.open(tmp_path / "file" / "j.jsonl", HEADER, resume=False)
    with pytest.raises(BadInput, match="Cannot read the journal"):
        read_facts(tmp_path / "gone.jsonl")


def fill(journal: Journal) -> None:
    for number in range(1000):
        journal.write({"fact": "asked", "number": number, "why": "x" * 50})


def test_a_full_disk_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    """A file size limit makes the write fail half-way, as a full disk does."""
    path = tmp_path / "j.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = Journal.open(path, HEADER, resume=False)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
        with pytest.raises(
            RunFailed, match=r"Cannot write to the journal .*free some disk space and continue"
        ):
            fill(journal)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    kept = len(journal.facts)
    journal.write({"fact": "asked", "number": -1})  # room again: it goes on
    journal.close()
    facts = read_facts(path)
    assert len(facts) == kept + 1
    assert [fact["number"] for fact in facts[1:]] == [*range(kept - 1), -1]


def test_folders_and_devices_are_no_journals(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(BadInput, match="not an ordinary file"):
            Journal.open(path, HEADER, resume=True)
