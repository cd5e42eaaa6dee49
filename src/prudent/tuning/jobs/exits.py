"""How a command ended, in words that tell what to do."""

from __future__ import annotations

import re
import signal

from prudent.tuning.jobs.reports import ReportedMeasures
from prudent.tuning.trial import FAILED, FINISHED, Outcome

NOT_EXECUTABLE, NOT_FOUND = 126, 127
SHELL_S = 5.0
"""A shell that cannot start a command says so at once; later than this something had started before."""

_MEMORY = re.compile(r"MemoryError|OutOfMemory|out of memory|bad_alloc|cannot allocate memory", re.IGNORECASE)


def outcome_of_exit(code: int, ran_s: float, time_s: float, reports: ReportedMeasures, last_line: str) -> Outcome:
    """The outcome of a command that ended by itself.

    `ran_s` is how long the command worked, `time_s` that with the set-up, which is what it costs.

    >>> outcome(3, 10, 10, Reports(["accuracy"]), "no such data set").why
    'exit code 3: no such data set'
    >>> outcome(-9, 10, 10, Reports([]), "").why
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
