"""The journal of a study, and what it tells of earlier sessions."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput
from prudent.core.journal import Fact, JournalFile, plain
from prudent.core.ledger import LedgerEntry
from prudent.core.space import Space
from prudent.tuning.problem import Problem
from prudent.tuning.trial import FAILED, PendingTrial, Proposal, Trial

_ANOTHER = "set it as it was, or begin another journal."


class Journal(JournalFile):
    """The journal of a study.

    Its facts are `study` (what is studied, first), `asked` (a trial begins), `extended` (more money is put
    aside for it), `told` (it ended, with its charge) and those of docs/reference/journal.md.
    """

    first, version_key = "study", "format"
    foreign = '"{}" is not a journal of a study; give the file that "prudent tune" wrote, or name a new one.'
    busy = 'Another process is running the study "{}"; wait for it or stop it.'

    @classmethod
    def open(cls, path: str | Path, header: Mapping[str, Any], resume: bool) -> Journal:
        """Begin a journal, or take one up again; it must be of the same study as `header`."""
        path = Path(path)
        if path.is_file() and path.stat().st_size > 0 and not resume:
            raise BadInput(f'"{path}" holds a study already; continue with --resume or name another file.')
        journal = cls(path)
        try:
            if journal.facts:
                _check_header(journal.facts[0], header, path)
            else:
                journal.facts.append({**cls.header(), **header})
                journal.write(journal.facts[0])
        except BaseException:
            journal.close()
            raise
        return journal


def _check_header(found: Fact, expected: Mapping[str, Any], path: Path) -> None:
    wanted = json.loads(json.dumps(dict(expected), default=plain))
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


@contextlib.contextmanager
def study_lock(path: Path) -> Iterator[None]:
    """Keep other processes from this study, after it ended, while something more is done for it."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadInput(f'Cannot read the journal "{path}" ({error.strerror}); check the path.') from error
    with file:
        Journal.lock(file, path)
        yield


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
        proposal = Proposal(configuration, fact["why"], *usd, check_s=fact.get("check_s", 0.0))
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
            facts = Journal.read(path)
            told = [Trial.from_dict(fact["trial"]) for fact in facts if fact.get("fact") == "told"]
        except (KeyError, TypeError) as error:
            raise BadInput(f"A trial lacks {error}; restore the file from a copy.") from error
        trials = [trial for trial in told if trial.status != FAILED or trial.time_s > 0]
        for trial in trials:
            space.check(trial.configuration)
        if not trials:
            raise BadInput("This study has no trial that ended; there is nothing to learn from it.")
        return trials
