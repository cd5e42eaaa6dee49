"""What all runs on this computer have cost: a log in the folder of Prudent.

Each record says what a run has cost in all so far. What a day cost follows from its last record of that day:
a run that is killed loses nothing that was recorded, and one that is resumed is not counted twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from prudent.cloud.home_folder import default_home
from prudent.core.errors import BadInput

_FILE = "spending.jsonl"


@dataclass(frozen=True)
class SpendingRecord:
    """What a run has cost in all, at a moment; and what it was expected to cost, if that is known."""

    at_s: float
    kind: str
    project: str
    run: str
    total_usd: float
    forecast_usd: float | None = None

    @property
    def day(self) -> str:
        """In UTC, as everywhere in the books."""
        return datetime.fromtimestamp(self.at_s, UTC).date().isoformat()


@dataclass(frozen=True)
class DailySpending:
    """The money of one day, project and kind; the forecasts are those of the runs that began on that day."""

    day: str
    project: str
    kind: str
    usd: float
    forecast_usd: float | None
    runs: int


class SpendingLog:
    """The log of one folder. Safe for several processes at once."""

    def __init__(self, home: Path | None = None) -> None:
        self._path = (home or default_home()) / _FILE

    def tell(
        self, kind: str, project: str, run: str, total_usd: float, forecast_usd: float | None = None
    ) -> None:
        """Write down what a run has cost so far; on disk when this returns."""
        said = {"at_s": time.time(), "kind": kind, "project": project, "run": run, "total_usd": total_usd}
        if forecast_usd is not None:
            said["forecast_usd"] = forecast_usd
        line = json.dumps(said, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(self._path, "a", encoding="utf-8", opener=_private) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(line)
        except OSError as error:
            raise BadInput(
                f"Cannot write {self._path} ({error.strerror}); name another folder with PRUDENT_HOME."
            ) from error

    def read(self) -> list[SpendingRecord]:
        """All lines that can be read, in the order in which they were told."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"Cannot read {self._path} ({error.strerror}); check who owns it.") from error
        return list(_readable_records(text))

    def by_day(self, since_day: str = "") -> list[DailySpending]:
        """The money of each day, project and kind since a day; the latest first."""
        return daily_spending(self.read(), since_day)


class RunSpending:
    """One run's records in the log. If the log cannot be written, that is told once and the run goes on.

    `place` is where the run keeps its journal or its results: a run that is resumed there is the same run.
    """

    def __init__(
        self,
        kind: str,
        project: str,
        place: Path,
        resume: bool = False,
        forecast_usd: float | None = None,
        complain: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._kind, self._project, self._forecast_usd = kind, project, forecast_usd
        self._complain = complain
        self._book = SpendingLog()
        start = f"{place.absolute()}#"
        known = [told.run for told in self._book.read() if told.run.startswith(start)] if resume else []
        self._run = known[-1] if known else f"{start}{uuid.uuid4().hex}"
        self._told_usd: float | None = None
        self._silent = False

    def tell(self, total_usd: float) -> None:
        """What the run has cost in all, now."""
        if self._silent or total_usd == self._told_usd:
            return
        self._told_usd = total_usd
        try:
            self._book.tell(self._kind, self._project, self._run, total_usd, self._forecast_usd)
        except BadInput as error:
            self._silent = True
            self._complain(str(error))


def daily_spending(lines: Iterable[SpendingRecord], since_day: str = "") -> list[DailySpending]:
    """What runs have cost in all, as what they cost on each day.

    >>> first = SpendingRecord(0.0, "tune", "wine", "a", 1.0, forecast_usd=5.0)
    >>> second = SpendingRecord(90_000.0, "tune", "wine", "a", 1.5)
    >>> [(spent.day, spent.usd, spent.forecast_usd) for spent in daily_spending([first, second])]
    [('1970-01-02', 0.5, None), ('1970-01-01', 1.0, 5.0)]
    """
    reached: dict[str, float] = {}
    usd: dict[tuple[str, str, str], float] = defaultdict(float)
    forecast_usd: dict[tuple[str, str, str], float] = {}
    runs: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for told in sorted(lines, key=lambda told: told.at_s):
        place = (told.day, told.project, told.kind)
        runs[place].add(told.run)
        if told.run not in reached and told.forecast_usd is not None:
            forecast_usd[place] = forecast_usd.get(place, 0.0) + told.forecast_usd
        before = reached.get(told.run, 0.0)
        usd[place] += max(told.total_usd - before, 0.0)
        reached[told.run] = max(told.total_usd, before)
    return [
        DailySpending(*place, usd[place], forecast_usd.get(place), len(runs[place]))
        for place in sorted(usd, key=lambda place: (place[0], usd[place]), reverse=True)
        if place[0] >= since_day
    ]


def _readable_records(text: str) -> Iterator[SpendingRecord]:
    """The records in a text; a line that is torn or cannot be read is left out."""
    for line in text.splitlines():
        try:
            said = json.loads(line)
            forecast = said.get("forecast_usd")
            yield SpendingRecord(
                float(said["at_s"]),
                str(said["kind"]),
                str(said["project"]),
                str(said["run"]),
                float(said["total_usd"]),
                None if forecast is None else float(forecast),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
