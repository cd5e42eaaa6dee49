"""Runs `prudent` over and over in fresh processes without importing it anew each time: it forks.

Reads lines of JSON `{"words": [...], "environment": {...}, "out": PATH}`; answers each with the exit code,
minus the signal that ended it. With `"dies": [N, KEPT]` a process kills itself at the Nth line that it writes
to a journal, before or (KEPT) after the line is on the disk. This process has no threads, so that what is
forked can have its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import prudent.reports.tuning
import prudent.tuning.jobs.cluster_command
import prudent.tuning.jobs.table
import prudent.tuning.strategies.lynceus
from prudent.cli import main, tune

WARM = (prudent.reports.tuning, prudent.tuning.jobs, prudent.tuning.strategies, tune)


def one(asked: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.environ.update(asked["environment"])
    target = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(target, stream)
    if "dies" in asked:
        die(*asked["dies"])
    code = main.run(asked["words"])
    sys.stdout.flush()
    os._exit(code)


def die(left: int, kept: bool) -> None:
    """At a step of the study, not of a clock."""
    real = os.fsync

    def fsync(handle: int) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not kept:
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = fsync  # type: ignore[assignment]


if __name__ == "__main__":
    for line in sys.stdin:
        print(one(json.loads(line)), flush=True)
