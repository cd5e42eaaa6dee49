"""Runs `prudent` over and over in fresh processes without importing it anew each time: it forks.

Reads lines of JSON `{"words": [...], "environment": {...}, "out": PATH}`; answers each with the exit code,
minus the signal that ended it. This process has no threads, so that what is forked can have its own.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import prudent.reports.tuning
import prudent.tuning.jobs.cluster_command
from prudent.cli import main, tune

WARM = (prudent.reports.tuning, prudent.tuning.jobs.cluster_command, tune)


def one(asked: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.environ.update(asked["environment"])
    target = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(target, stream)
    code = main.run(asked["words"])
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        print(one(json.loads(line)), flush=True)
