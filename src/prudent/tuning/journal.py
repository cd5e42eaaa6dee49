"""An append-only record of a study: one fsynced line a fact, so that nothing paid for is lost."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from prudent.core.errors import BadInput, RunFailed

Fact = dict[str, Any]

FORMAT = 1
_ANOTHER = "set it as it was, or begin another journal."


class Journal:
    """A file of JSON lines, opened by one study at a time.

    A line is a fact: `study` (what is studied, first), `asked` (a trial begins), `extended` (more money
    is put aside for it), `told` (it ended, with its charge). A last line that was torn by a crash is cut
    off when the file is opened.
    """

    def __init__(self, path: Path, file: BinaryIO, facts: list[Fact]) -> None:
        self.path = path
        self.facts = facts
        self._file = file

    @classmethod
    def open(cls, path: str | Path, header: Mapping[str, Any], resume: bool) -> Journal:
        """Begin a journal, or take one up again; it must be of the same study as `header`."""
        path = Path(path)
        if path.exists() and not path.is_file():
            raise BadInput(f'"{path}" is no ordinary file; name one that a journal can be written to.')
        exists = path.exists() and path.stat().st_size > 0
        if exists and not resume:
            raise BadInput(f'"{path}" holds a study already; go on with --resume or name another file.')
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a+b", buffering=0)
        except OSError as error:
            raise BadInput(
                f'Cannot write the journal "{path}" ({error.strerror}); choose a folder you may write to.'
            ) from error
        try:
            _lock(file, path)
            facts = _read_and_repair(file, path)
            journal = cls(path, file, facts)
            if facts:
                _check_header(facts[0], header, path)
            else:
                journal.write({"fact": "study", "format": FORMAT, **header})
                _sync_folder(path.parent)
        except BaseException:
            file.close()
            raise
        return journal

    def write(self, fact: Fact) -> None:
        """Append a fact; when this returns it is on the disk."""
        line = json.dumps(fact, ensure_ascii=False, allow_nan=False, default=_plain).encode() + b"\n"
        start = self._file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            _cut_off(self._file, start)
            raise RunFailed(
                f'Cannot write to the journal "{self.path}" ({error.strerror}); make room and go on '
                "with --resume, everything recorded so far is kept."
            ) from error
        self.facts.append(fact)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_facts(path: str | Path) -> list[Fact]:
    """The facts of a finished or interrupted study, for reports and warm starts."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f'Cannot read the journal "{path}" ({error.strerror}); check the path.') from error
    facts, _ = _parse(data, path)
    if not facts or facts[0].get("fact") != "study":
        raise BadInput(f'"{path}" is no journal of a study; give the file that "prudent tune" wrote.')
    return facts


def _read_and_repair(file: BinaryIO, path: Path) -> list[Fact]:
    file.seek(0)
    data = file.read()
    facts, intact = _parse(data, path)
    if intact < len(data):
        _cut_off(file, intact)
    return facts


def _parse(data: bytes, path: Path) -> tuple[list[Fact], int]:
    """The facts and how many bytes they take; a torn last line is left out, damage elsewhere refused."""
    facts: list[Fact] = []
    intact = 0
    for number, line in enumerate(_lines(data), start=1):
        try:
            fact = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            fact = None
        if not isinstance(fact, dict):
            if intact + len(line) < len(data):
                raise BadInput(f'Line {number} of "{path}" is damaged; restore the file from a copy.')
            break
        facts.append(fact)
        intact += len(line)
    return facts, intact


def _lines(data: bytes) -> Iterator[bytes]:
    return iter(data.splitlines(keepends=True))


def _check_header(found: Fact, expected: Mapping[str, Any], path: Path) -> None:
    if found.get("fact") != "study":
        raise BadInput(f'"{path}" is no journal of a study; name another file.')
    if found.get("format") != FORMAT:
        raise BadInput(f'"{path}" has format {found.get("format")}; this version reads format {FORMAT}.')
    wanted = json.loads(json.dumps(dict(expected), default=_plain))
    if not wanted.get("known"):
        wanted.pop("known", None)  # the journal remembers what it was handed in; nobody needs to say it again
    for name, value in wanted.items():
        if found.get(name) == value:
            continue
        if name in ("job", "known"):
            what = "the job has changed" if name == "job" else "it was handed in other earlier trials"
            raise BadInput(f'"{path}" is the journal of another study: {what}; {_ANOTHER}')
        raise BadInput(
            f'"{path}" is the journal of another study: its {name} is {found.get(name)!r}, '
            f"here it is {value!r}; {_ANOTHER}"
        )


def _plain(value: object) -> object:
    """numpy scalars as plain numbers."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"{value!r} cannot be written to a journal")
    return item()


@contextlib.contextmanager
def study_lock(path: Path) -> Iterator[None]:
    """Keep other processes from this study, after it ended, while something more is done for it."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadInput(f'Cannot read the journal "{path}" ({error.strerror}); check the path.') from error
    with file:
        _lock(file, path)
        yield


def _lock(file: BinaryIO, path: Path) -> None:
    import fcntl

    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise BadInput(f'Another process is running the study "{path}"; wait for it or stop it.') from error


def _sync_folder(folder: Path) -> None:
    """The name of a new file is on the disk only after its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _cut_off(file: BinaryIO, size: int) -> None:
    file.truncate(size)
    file.seek(0, os.SEEK_END)
