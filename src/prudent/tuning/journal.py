"""The journal of a study, an append-only file, and what it tells of earlier sessions."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput, RunFailed
from prudent.core.ledger import LedgerEntry
from prudent.core.space import Space
from prudent.tuning.problem import Problem
from prudent.tuning.trial import FAILED, PendingTrial, Proposal, Trial

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
            raise BadInput(f'"{path}" is not an ordinary file; name one that a journal can be written to.')
        exists = path.exists() and path.stat().st_size > 0
        if exists and not resume:
            raise BadInput(f'"{path}" holds a study already; continue with --resume or name another file.')
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
                f'Cannot write to the journal "{self.path}" ({error.strerror}); free some disk space and '
                "continue with --resume, everything recorded so far is kept."
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
        raise BadInput(f'"{path}" is not a journal of a study; give the file that "prudent tune" wrote.')
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
        raise BadInput(f'"{path}" is not a journal of a study; name another file.')
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


@dataclass
class InterruptedTrial:
    """A trial that was asked for and not told: what was put aside, and how long it lasted at least."""

    ask: PendingTrial
    reserved_usd: float
    lasted_s: float = 0.0


@dataclass
class JournalState:
    """The facts of a journal, folded."""

    problem: Problem
    known: tuple[Trial, ...] = ()
    trials: list[Trial] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)
    under_way: dict[int, InterruptedTrial] = field(default_factory=dict)
    numbers: int = 0
    clock_s: float = 0.0

    @classmethod
    def of(cls, facts: Sequence[Fact], problem: Problem) -> JournalState:
        """Read a journal; facts of kinds that this version does not know are passed over."""
        past = cls(problem)
        try:
            past.known = tuple(past._trial(trial) for trial in facts[0]["known"])
            for fact in facts[1:]:
                past._take(fact)
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"The journal lacks {error}; restore the file from a copy.") from error
        return past

    def _take(self, fact: Fact) -> None:
        kind = fact["fact"]
        if kind == "asked":
            self._asked(fact)
        elif kind == "extended":
            self.under_way[fact["number"]].reserved_usd = _amount(fact["reserved_usd"])
        elif kind == "alive":
            for number, lasted_s in fact["lasted_s"].items():
                self.under_way[int(number)].lasted_s = float(lasted_s)
        elif kind == "interrupted":
            self.under_way[fact["number"]].lasted_s = 0.0  # it is charged, and begins anew
            self._charged(fact)
        elif kind == "told":
            self._told(fact)
        elif kind == "charged":
            self._charged(fact)

    def _asked(self, fact: Fact) -> None:
        configuration = self.problem.space.check(fact["configuration"])
        usd = (fact["expected_usd"], fact["likely_usd"], fact["cap_usd"])
        proposal = Proposal(configuration, fact["why"], *usd)
        price, number, at_s = self.problem.price(configuration), fact["number"], fact["at_s"]
        ask = PendingTrial(number, configuration, price, proposal.why, fact["decision_s"], proposal, at_s)
        self.under_way[number] = InterruptedTrial(ask, _amount(fact["reserved_usd"]))
        self.numbers = max(self.numbers, number)
        self.clock_s = max(self.clock_s, at_s)

    def _told(self, fact: Fact) -> None:
        trial = self._trial(fact["trial"])
        ended = self.under_way.pop(trial.number)
        self.trials.append(trial)
        self.clock_s = max(self.clock_s, ended.ask.at_s + trial.time_s)
        self._charged(fact)

    def _charged(self, fact: Fact) -> None:
        if fact["charge"] is not None:
            self.entries.append(LedgerEntry.from_dict(fact["charge"]))

    def _trial(self, said: Fact) -> Trial:
        trial = Trial.from_dict(said)
        # JSON knows no tuples; the space does.
        return replace(trial, configuration=self.problem.space.check(trial.configuration))


def _amount(usd: float | None) -> float:
    return math.inf if usd is None else usd


def earlier_trials(path: str | Path, space: Space) -> list[Trial]:
    """What the study with this journal found out; refused if its configurations are not of this space.

    Runs that could not start tell nothing about the job and are left out.
    """
    path = Path(path)
    with KeyPath(str(path)):
        try:
            told = [Trial.from_dict(fact["trial"]) for fact in read_facts(path) if fact.get("fact") == "told"]
        except (KeyError, TypeError) as error:
            raise BadInput(f"A trial lacks {error}; restore the file from a copy.") from error
        trials = [trial for trial in told if trial.status != FAILED or trial.time_s > 0]
        for trial in trials:
            space.check(trial.configuration)
        if not trials:
            raise BadInput("This study has no trial that ended; there is nothing to learn from it.")
        return trials
