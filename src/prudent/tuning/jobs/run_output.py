"""What a run prints: its lines, the log they are kept in, the measures they report, and its exit code."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from prudent.core.errors import BadInput, PrudentError, RunFailed, did_you_mean
from prudent.tuning.jobs.job import PROGRESS
from prudent.tuning.trial import FAILED, FINISHED, Outcome, Progress

_LONGEST = 1 << 20  # a line of a million bytes is no report
_BREAK = re.compile(rb"[\r\n]")


class LineSplitter:
    """Cuts chunks into lines; a carriage return ends one too, for progress bars use it.

    >>> lines = LineSplitter()
    >>> lines.feed(b"first\\nsec"), lines.feed(b"ond\\rthird"), lines.rest()
    (['first'], ['second'], ['third'])
    """

    def __init__(self) -> None:
        self._partial = bytearray()
        self._too_long = False

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that this chunk completes."""
        *ended, rest = _BREAK.split(chunk)
        lines = []
        for part in ended:
            self._extend(part)
            lines += self.rest()
        self._extend(rest)
        return lines

    def rest(self) -> list[str]:
        """The line that nothing ended, if there is one."""
        text, dropped = self._partial.decode(errors="replace"), self._too_long
        self._partial.clear()
        self._too_long = False
        return [] if dropped or not text else [text]

    def _extend(self, part: bytes) -> None:
        if self._too_long or len(self._partial) + len(part) > _LONGEST:
            self._partial.clear()
            self._too_long = True
        else:
            self._partial += part


_CHUNK = 1 << 16
_TAIL_BYTES = 4096
_LONGEST_SHOWN = 200


class TrialLog:
    """One stream of one trial, written as it comes; the end is kept in memory for messages.

    `problem` tells what went wrong while writing: the run goes on and its result counts, but whoever
    wants to read the log must learn that it is not whole.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._tail = b""
        self.problem = ""
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise cannot_write(path, error) from error

    @classmethod
    def both(cls, folder: Path | None, trial: int) -> tuple[TrialLog, TrialLog]:
        """The logs of what a trial prints to its two streams; without a folder nothing is written."""
        if folder is None:
            return cls(None), cls(None)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(folder, error) from error
        return cls(folder / f"{trial_name(trial)}.out"), cls(folder / f"{trial_name(trial)}.err")

    def write(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        try:
            while data and self._file is not None:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.problem = f"its log is not whole: {cannot_write(self._path or Path(), error)}"
            self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def last_line(self) -> str:
        """The last line that says anything, short enough for a message."""
        lines = self._tail.decode(errors="replace").replace("\r", "\n").split("\n")
        return next((line.strip()[:_LONGEST_SHOWN] for line in reversed(lines) if line.strip()), "")


def keep_output(
    stream: IO[bytes],
    log: TrialLog,
    take: Callable[[list[str]], None] | None = None,
    close_log: bool = False,
) -> None:
    """Copy a stream to a log until it closes, and hand its lines to `take`.

    Nothing that comes in may stop this, or the command could print no more and would wait for ever.
    """
    lines = LineSplitter()
    with stream, contextlib.suppress(ValueError):  # somebody closed it
        while chunk := stream.read(_CHUNK):
            log.write(chunk)
            if take is not None:
                take(lines.feed(chunk))
    if close_log:
        log.close()
    if take is not None:
        take(lines.rest())


def trial_name(trial: int) -> str:
    """What the files of a trial are called.

    >>> trial_name(3)
    'trial-0003'
    """
    return f"trial-{trial:04d}"


def cannot_write(path: Path, error: OSError) -> PrudentError:
    """The error for a file that cannot be written; a full disk is nobody's wrong request."""
    why = error.strerror or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunFailed(f"Cannot write {path} ({why}); free some space, then resume.")
    return BadInput(f"Cannot write {path} ({why}); make the folder writable, or choose another one.")


MARK = "PRUDENT"
_SHOWN = 120  # characters of a wrong line that a message quotes


class ReportedMeasures:
    """The last value of each declared measure, and what was wrong with what could not be read.

    Rubbish is forgiven as long as every measure arrives in the end, for a job's own output may be
    anything; it becomes the reason of a failure only when a measure is missing.

    >>> reports = ReportedMeasures(["accuracy"])
    >>> reports.line('PRUDENT {"accuracy": 0.81, "progress": 0.4}', elapsed_s=12)
    Progress(elapsed_s=12, measures={'accuracy': 0.81}, done=0.4)
    >>> reports.line("epoch 3 of 10", elapsed_s=13), reports.complaint()
    (None, None)
    """

    def __init__(self, measures: Sequence[str]) -> None:
        self._measures = tuple(measures)
        self._latest: dict[str, float] = {}
        self._others: dict[str, None] = {}
        self._rubbish = ""
        self.any = False

    @property
    def measures(self) -> dict[str, float]:
        """The last value of each measure, where it is a finite number."""
        latest = dict(self._latest)  # one step, so that the reporting thread cannot come between
        return {name: latest[name] for name in self._measures if math.isfinite(latest.get(name, math.nan))}

    def line(self, text: str, elapsed_s: float) -> Progress | None:
        """Read one line of output; None where it tells nothing."""
        head, rest = text.lstrip()[: len(MARK)], text.lstrip()[len(MARK) :]
        if head != MARK or not (rest[:1].isspace() or rest[:1] == "{"):
            return None
        try:
            said = json.loads(rest)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            self._rubbish = f"it printed a {MARK} line that is no JSON object: {text.strip()[:_SHOWN]}"
            return None
        return self.take(said, elapsed_s)

    def take(self, values: Mapping[str, Any], elapsed_s: float) -> Progress | None:
        """Note values by name; what is neither a measure nor the progress is left alone."""
        self.any = True
        shown: dict[str, float] = {}
        for name, value in values.items():
            if name not in self._measures:
                self._others[str(name)] = None
                continue
            number = as_number(value)
            if number is None:
                self._rubbish = f"it gave {name} as {str(value)[:_SHOWN]!r}, which is not a number"
                continue
            self._latest[name] = number
            if math.isfinite(number):
                shown[name] = number
        done = as_number(values.get(PROGRESS))
        if done is None or not 0 <= done <= 1:
            done = None
        return Progress(elapsed_s, shown, done) if shown or done is not None else None

    def complaint(self, how: str = 'print a line PRUDENT {{"{name}": 0.5}}') -> str | None:
        """Why this is not a whole result; None where every measure is there.

        `how` tells how to report the measure `{name}`.
        """
        for name in self._measures:
            remedy = how.format(name=name)
            if name not in self._latest:
                near = did_you_mean(name, self._others).replace("Did you mean", "Is it what was called")
                why = f"; {self._rubbish}" if self._rubbish else ""
                return f"reported no {name}{why}.{near} To report it, {remedy}."
            if not math.isfinite(self._latest[name]):
                return f"reported {name} as {self._latest[name]}; make it a finite number."
        return None


def seen_until(shown: Iterable[Progress], at_s: float) -> dict[str, float]:
    """The last value of each measure at `at_s`, with a billionth of a second for rounding.

    >>> seen_until([Progress(1, {"accuracy": 0.5}), Progress(2, {"loss": 3}), Progress(9, {"loss": 2})], 5)
    {'accuracy': 0.5, 'loss': 3}
    """
    seen: dict[str, float] = {}
    for progress in shown:
        if progress.elapsed_s <= at_s + 1e-9:
            seen.update(progress.measures)
    return seen


def as_number(value: Any) -> float | None:
    """A number as a float, whichever library made it; None for anything else, spelt numbers too."""
    if value is None or isinstance(value, (str, bytes, bytearray)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


NOT_EXECUTABLE, NOT_FOUND = 126, 127
SHELL_S = 5.0
"""A shell that cannot start a command says so at once; later than this something had started before."""

_MEMORY = re.compile(r"MemoryError|OutOfMemory|out of memory|bad_alloc|cannot allocate memory", re.IGNORECASE)


def outcome_of_exit(
    code: int, ran_s: float, time_s: float, reports: ReportedMeasures, last_line: str
) -> Outcome:
    """The outcome of a command that ended by itself.

    `ran_s` is how long the command worked, `time_s` that with the set-up, which is what it costs.

    >>> outcome_of_exit(3, 10, 10, ReportedMeasures(["accuracy"]), "no such data set").why
    'exit code 3: no such data set'
    >>> outcome_of_exit(-9, 10, 10, ReportedMeasures([]), "").why
    'killed, probably out of memory'
    """
    if code in (NOT_EXECUTABLE, NOT_FOUND) and ran_s < SHELL_S and not reports.any:
        return Outcome(FAILED, 0.0, {}, _could_not_start(code, last_line), started=False)
    why = _why(code, last_line) if code else reports.complaint()
    return Outcome(FINISHED if why is None else FAILED, time_s, reports.measures, why or "")


def _could_not_start(code: int, last_line: str) -> str:
    what = "is not executable; make it so with chmod +x" if code == NOT_EXECUTABLE else "was not found"
    remedy = "" if code == NOT_EXECUTABLE else "; check its spelling, the PATH and the directory"
    said = f" ({last_line})" if last_line else ""
    return f"could not start: the command {what}{said}{remedy}."


def _why(code: int, last_line: str) -> str:
    number = -code if code < 0 else code - 128 if code > 128 else 0
    said = f": {last_line}" if last_line else ""
    if number == signal.SIGKILL:
        return f"killed, probably out of memory{said}"
    try:
        name = signal.Signals(number).name if number else ""
    except ValueError:
        name = ""
    how = f"killed by {name}" if code < 0 and name else f"exit code {code}" + (f" ({name})" if name else "")
    return f"out of memory ({how}{said})" if _MEMORY.search(last_line) else f"{how}{said}"
