"""A journal keeps every fact that it promised to keep, whatever happens to the process or the disk."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput, RunFailed
from prudent.core.journal import Fact, JournalFile

WORDS = st.text(st.characters(), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
FACTS = st.lists(st.dictionaries(WORDS, VALUES, max_size=3), max_size=6)


class Diary(JournalFile):
    first, version_key = "diary", "format"
    foreign = "{} is no diary."
    busy = "{} is open elsewhere."


class Logbook(JournalFile):
    """Of the kind whose early versions left torn lines in the middle."""

    first, version_key = "log", "version"
    foreign = "{} is no log."
    busy = "{} is open elsewhere."
    session = "session"


def written(path: Path, facts: list[Fact], kind: type[JournalFile] = Diary) -> list[Fact]:
    """A journal with these facts behind its first one; answers all of them."""
    path.unlink(missing_ok=True)
    all_facts = [kind.header(), *facts]
    with kind(path) as journal:
        for fact in all_facts:
            journal.write(fact)
    return all_facts


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "j.jsonl"


@given(facts=FACTS)
def test_what_was_written_is_read(place: Path, facts: list[Fact]) -> None:
    known = written(place, facts)
    assert Diary.read(place) == known
    with Diary(place) as journal:
        assert journal.facts == known


@given(facts=FACTS, data=st.data())
def test_a_file_cut_at_any_byte_resumes_with_all_facts_that_were_whole(
    place: Path, facts: list[Fact], data: st.DataObject
) -> None:
    known = written(place, facts)
    whole = place.read_bytes()
    cut = data.draw(st.integers(0, len(whole)), "cut")
    place.write_bytes(whole[:cut])
    with Diary(place) as journal:
        kept = journal.facts
        assert kept == known[: len(kept)], "a prefix"
        assert len(kept) >= whole[:cut].count(b"\n"), "nothing is lost whose line was whole"
        added = [{"fact": "after"}] if kept else [Diary.header()]
        journal.write(added[0])
    assert Diary.read(place) == kept + added


@given(facts=FACTS, data=st.data())
def test_a_second_cut_is_as_harmless_as_the_first(
    place: Path, facts: list[Fact], data: st.DataObject
) -> None:
    """A session that was killed while it repaired, or while it wrote its first fact."""
    known = written(place, facts)
    for _ in range(2):
        content = place.read_bytes()
        place.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
        Diary(place).close()
    with Diary(place) as journal:
        assert journal.facts == known[: len(journal.facts)]


@given(facts=FACTS, data=st.data())
def test_damage_in_the_middle_is_refused_with_its_line(
    place: Path, facts: list[Fact], data: st.DataObject
) -> None:
    written(place, [*facts, {"fact": "last"}])
    lines = place.read_bytes().splitlines(keepends=True)
    number = data.draw(st.integers(1, len(lines) - 1), "line")
    torn = lines[number - 1][:-2] + b"\n"
    content = b"".join([*lines[: number - 1], torn, *lines[number:]])
    place.write_bytes(content)
    for use in (lambda: Diary(place), lambda: Diary.read(place)):
        with pytest.raises(BadInput, match=rf"Line {number} of .* is damaged"):
            use()
    assert place.read_bytes() == content


def test_a_last_line_that_is_no_object_is_a_torn_one(tmp_path: Path) -> None:
    """A power cut may leave the end of a line without its beginning."""
    path = tmp_path / "j"
    known = written(path, [{"fact": "one"}])
    for torn in (b"\0\0\0\0\n", b"[1, 2]", b"\xff\xfe", b"   "):
        path.write_bytes(path.read_bytes() + torn)
        assert Diary.read(path) == known
        with Diary(path) as journal:
            assert journal.facts == known


def test_a_journal_of_an_early_version_has_torn_lines_before_its_sessions(tmp_path: Path) -> None:
    path = tmp_path / "j"
    known = written(path, [{"fact": "session"}, {"fact": "session"}], Logbook)
    first, *sessions = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b'{"fact": "en\n' + sessions[0] + b'{"fa\n\n' + sessions[1])
    assert Logbook.read(path) == known
    with Logbook(path) as journal:
        journal.write({"fact": "ended"})
    assert Logbook.read(path) == [*known, {"fact": "ended"}]
    path.write_bytes(path.read_bytes() + b'{"fa\n{"fact": "ended"}\n')
    with pytest.raises(BadInput, match="Line 8"):
        Logbook.read(path)


@pytest.mark.parametrize("content", ["hello\n", "hello", "[1, 2]\n", '{"fact": "log"}\n', '{"fact": "dear'])
def test_other_files_are_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    for use in (lambda: Diary(path), lambda: Diary.read(path)):
        with pytest.raises(BadInput, match=r"is no diary\.$"):
            use()
    assert path.read_text() == content


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_text(json.dumps({"fact": "diary", "format": 99}) + "\n")
    with pytest.raises(BadInput, match="has format 99; this version reads format 1"):
        Diary(tmp_path / "j")


def test_an_empty_journal_can_be_written_and_not_read(tmp_path: Path) -> None:
    with Diary(tmp_path / "deep" / "er" / "j") as journal:
        assert journal.facts == []
    with pytest.raises(BadInput, match="is no diary"):
        Diary.read(tmp_path / "deep" / "er" / "j")


def test_one_writer_at_a_time_and_any_number_of_readers(tmp_path: Path) -> None:
    path = tmp_path / "j"
    known = written(path, [])
    with Diary(path):
        with pytest.raises(BadInput, match="is open elsewhere"):
            Diary(path)
        assert Diary.read(path) == known
    Diary(path).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "j").touch(0o400)
    with pytest.raises(BadInput, match="choose a folder you may write to"):
        Diary(tmp_path / "j")


def test_folders_and_devices_are_no_journals(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(BadInput, match="not an ordinary file"):
            Diary(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="choose a folder you may write to"):
        Diary(tmp_path / "file" / "j")
    with pytest.raises(BadInput, match="Cannot read the journal"):
        Diary.read(tmp_path / "gone")


def test_numbers_of_numpy_are_written_as_plain_ones(tmp_path: Path) -> None:
    known = written(tmp_path / "j", [{"usd": np.float64(0.1), "number": np.int64(3)}])
    assert known[1:] == Diary.read(tmp_path / "j")[1:] == [{"usd": 0.1, "number": 3}]
    with Diary(tmp_path / "j") as journal:
        for value in (object(), float("nan")):
            with pytest.raises((TypeError, ValueError)):
                journal.write({"value": value})
    assert len(Diary.read(tmp_path / "j")) == 2


def fill(journal: JournalFile, kept: list[int]) -> None:
    for number in range(1000):
        journal.write({"number": number, "why": "x" * 50})
        kept.append(number)


def test_a_full_disk_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    """A file size limit makes the write fail half-way, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept: list[int] = []
    with Diary(tmp_path / "j") as journal:
        journal.write(Diary.header())
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
            with pytest.raises(RunFailed, match=r"Cannot write to the journal .*free some disk space and"):
                fill(journal, kept)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.write({"number": -1})  # room again: it goes on
    assert kept
    assert [fact["number"] for fact in Diary.read(tmp_path / "j")[1:]] == [*kept, -1]


KILLED = """
import sys
from pathlib import Path
from prudent.core.journal import JournalFile

class Diary(JournalFile):
    first, version_key, foreign, busy = "diary", "format", "{}", "{}"

with Diary(Path(sys.argv[1])) as journal:
    journal.write(Diary.header())
    for number in range(10**9):
        journal.write({"number": number})
        print(number, flush=True)
"""


def test_a_killed_writer_has_told_no_lies(tmp_path: Path) -> None:
    """What it said was written is in the file after kill -9, and no more than one fact beside it."""
    command: list[Any] = [sys.executable, "-c", KILLED, tmp_path / "j"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        writer.kill()
        said = 20 + len(writer.stdout.read().split("\n")) - 1
    with Diary(tmp_path / "j") as journal:
        numbers = [fact["number"] for fact in journal.facts[1:]]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) - said in (0, 1)
