"""A note per running trial, so that a resumed study can end what an interrupted one left running."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.cloud.processes import (
    ProcessIdentity,
    ProcessInfo,
    end_processes,
    processes_of_run,
    signal_processes,
)
from prudent.core.files import write_whole
from prudent.tuning.jobs.run_output import cannot_write, trial_name

_GUARD_S, _LOOK_S = 60.0, 0.025
"""How long a guard is waited for that has not yet written down when its commands were gone."""


@dataclass(frozen=True)
class PidFile:
    """Which process runs a trial, and which study it belongs to.

    Written once before the command starts (its cookie alone finds it then) and again with its number.
    """

    trial: int
    cookie: str
    owner: ProcessIdentity | None
    process: ProcessIdentity | None = None
    began_s: float | None = None
    """When it began to be paid for, by the computer's clock."""
    guard: ProcessIdentity | None = None
    """Who ends it if its owner is killed, and writes down when."""

    @staticmethod
    def path(folder: Path, trial: int) -> Path:
        return folder / f"{trial_name(trial)}.pid"

    def write(self, folder: Path) -> Path:
        path = self.path(folder, self.trial)
        said = {
            "trial": self.trial,
            "cookie": self.cookie,
            "owner": self.owner.to_dict() if self.owner else None,
            "began_s": self.began_s,
            "guard": self.guard.to_dict() if self.guard else None,
            **(self.process.to_dict() if self.process else {}),
        }
        try:
            write_whole(path, json.dumps(said))
        except OSError as error:
            raise cannot_write(path, error) from error
        return path

    @classmethod
    def read(cls, path: Path) -> PidFile | None:
        """The note at `path`; None where it is torn or was not written by us."""
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                int(said["trial"]),
                str(said["cookie"]) or "no cookie",
                _identity(said["owner"]),
                _identity(said) if "pid" in said else None,
                None if said.get("began_s") is None else float(said["began_s"]),
                _identity(said.get("guard")),
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def members(self) -> list[ProcessInfo]:
        """What still runs of it: found by its cookie, and by its session while its first process lives."""
        lives = self.process is not None and self.process.alive
        return processes_of_run(self.cookie, self.process.pid if self.process and lives else None)


def _identity(said: dict[str, Any] | None) -> ProcessIdentity | None:
    return ProcessIdentity(int(said["pid"]), str(said["started"])) if said else None


def ended_path(folder: Path, trial: int) -> Path:
    """Where the guard of a killed study writes down when it ended a trial."""
    return folder / f"{trial_name(trial)}.ended"


def reap_processes(folder: Path, grace_s: float) -> dict[int, float]:
    """End what earlier studies left running and noted in `folder`; answers how long such trials had lasted.

    A process is ended only if it is the one that was noted: same number and same start time, or with
    the cookie of that run in its environment. Runs of a study that is still alive are left alone.
    """
    lasted_s: dict[int, float] = {}
    for path, note in _notes(folder):
        if note is not None:
            if note.owner is not None and note.owner.alive:
                continue
            if (ended_s := _ended_s(folder, note, grace_s)) is not None:
                lasted_s[note.trial] = max(ended_s - (note.began_s or ended_s), 0.0)
            ended_path(folder, note.trial).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return lasted_s


def _ended_s(folder: Path, note: PidFile, grace_s: float) -> float | None:
    """When a trial was over: now if it had to be ended, else when its guard ended it, if it did."""
    if note.members():
        end_processes(note.members, signal_processes, grace_s)
        return time.time()
    until_s, at_work = time.monotonic() + _GUARD_S, True
    while at_work and time.monotonic() < until_s:
        at_work = note.guard is not None and note.guard.alive  # asked first: what it wrote is there by then
        with contextlib.suppress(OSError, ValueError):
            return float(ended_path(folder, note.trial).read_text())
        if at_work:
            time.sleep(_LOOK_S)
    return None


def _notes(folder: Path) -> Iterator[tuple[Path, PidFile | None]]:
    for path in sorted(folder.glob("trial-*.pid")):
        yield path, PidFile.read(path)
