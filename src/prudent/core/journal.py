"""Journals: files of facts, one JSON object a line, from which a killed program goes on.

A fact is on the disk before the program goes on, and is never rewritten. So a crash can spoil only the last
line. That fact had not counted yet; its line is removed when the journal is opened again. Damage anywhere
else is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

from prudent.core.errors import BadInput, RunFailed
from prudent.core.files import sync_folder

Fact = dict[str, Any]


class JournalFile:
    """A journal that is open for writing, by one process at a time; each kind of journal is a subclass.

    The sentences `foreign` and `busy` have a place {} for the path.
    """

    first: ClassVar[str]
    """The fact that every journal of this kind begins with."""
    version_key: ClassVar[str]
    """The key of the first fact that holds the version."""
    version: ClassVar[int] = 1
    foreign: ClassVar[str]
    """What is said of a file that is no journal of this kind."""
    busy: ClassVar[str]
    """What is said of a journal that another process writes."""
    session: ClassVar[str | None] = None
    """The fact with which a session begins. Early versions left the torn line of the session before it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open(path)
        try:
            self.lock(self._file, path)
            self.facts = self._read_and_repair()
            """The facts that the journal held when it was opened."""
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def read(cls, path: Path) -> list[Fact]:
        """All facts of a journal, which may be written at this moment; the file stays as it is."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BadInput(f'Cannot read the journal "{path}" ({error.strerror}); check the path.') from error
        facts, _ = cls._parse(data, path)
        if not facts:
            raise BadInput(cls.foreign.format(path))
        return facts

    @classmethod
    def header(cls) -> Fact:
        """What the first fact says in every journal of this kind."""
        return {"fact": cls.first, cls.version_key: cls.version}

    @classmethod
    def lock(cls, file: BinaryIO, path: Path) -> None:
        """Keep other processes from the journal until the file is closed."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(cls.busy.format(path)) from error

    def write(self, fact: Fact) -> None:
        """Append a fact; when this returns it is on the disk."""
        line = json.dumps(fact, allow_nan=False, default=plain).encode() + b"\n"
        start = self._file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(start)
            raise RunFailed(
                f'Cannot write to the journal "{self.path}" ({error.strerror}); free some disk space and '
                "continue with --resume, everything recorded so far is kept."
            ) from error

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_and_repair(self) -> list[Fact]:
        """Remove a torn last line, so that the next fact has a line of its own."""
        self._file.seek(0)
        data = self._file.read()
        facts, end = self._parse(data, self.path)
        if end < len(data):
            self._file.truncate(end)
        if end and data[end - 1 : end] != b"\n":
            self._file.write(b"\n")
        if not facts:
            sync_folder(self.path.parent)
        return facts

    @classmethod
    def _parse(cls, data: bytes, path: Path) -> tuple[list[Fact], int]:
        """The facts, and at which byte the last of them ends; behind it there is at most a torn line.

        A fact that lacks nothing but the end of its line counts.
        """
        facts: list[Fact] = []
        at = end = damaged = 0
        for number, line in enumerate(data.split(b"\n"), start=1):
            at += len(line) + 1
            if not line.strip():
                continue
            fact = _fact(line)
            if damaged and (fact is None or cls.session is None or fact.get("fact") != cls.session):
                raise BadInput(f'Line {damaged} of "{path}" is damaged; restore the file from a copy.')
            damaged = number if fact is None else 0
            if fact is not None:
                facts.append(fact)
                end = min(at, len(data))
        cls._check_start(facts, data, path)
        return facts, end

    @classmethod
    def _check_start(cls, facts: list[Fact], data: bytes, path: Path) -> None:
        """Refuse another file, so that nobody's notes are taken for a torn journal, and another version."""
        start = json.dumps({"fact": cls.first}).encode().rstrip(b"}")
        ours = facts[0].get("fact") == cls.first if facts else start.startswith(data[: len(start)])
        if not ours:
            raise BadInput(cls.foreign.format(path))
        if facts and (version := facts[0].get(cls.version_key)) != cls.version:
            raise BadInput(f'"{path}" has format {version}; this version reads format {cls.version}.')


def plain(value: object) -> object:
    """numpy scalars as plain numbers, for `json.dumps`."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"{value!r} cannot be written to a journal")
    return item()


def _fact(line: bytes) -> Fact | None:
    try:
        fact = json.loads(line)
    except ValueError:
        return None
    return fact if isinstance(fact, dict) else None


def _open(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file():
        raise BadInput(f'"{path}" is not an ordinary file; name one that a journal can be written to.')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+b", buffering=0)
    except OSError as error:
        raise BadInput(
            f'Cannot write the journal "{path}" ({error.strerror}); choose a folder you may write to.'
        ) from error
