"""Worker processes on this machine, one for each VM: `python -m prudent.workflows.execute.local_workers`.

Dask is imported once, then the process forks: ten workers start about as fast as one. All of them end when
the pipe from the program that started this process breaks, so that none outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import time
from typing import Any

from prudent.cloud.clusters.dask_node import serve_worker

READY = "ready\n"
"""Printed when all workers were started."""


LOOPBACK = "127.0.0.1"
"""The address on which they listen."""


_ENDING_S = 5


def main() -> None:
    """Read what to do from standard input: other users could read command-line arguments."""
    line = sys.stdin.readline()
    if not line:
        return  # the program that started us has ended already
    told = json.loads(line)
    import distributed

    from prudent.workflows.execute import command

    del command, distributed
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    children: dict[int, str] = {}
    for name, slots in told["members"].items():
        child = os.fork()
        if child == 0:
            _serve(told, name, slots)
        children[child] = name
    sys.stdout.write(READY)
    sys.stdout.flush()
    sys.stdin.read()  # until the program that started us ends
    _end(children)
    shutil.rmtree(told["scratch"], ignore_errors=True)  # the program that started us may have been killed


def _serve(told: dict[str, Any], name: str, slots: int) -> None:
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that drives us
    place = told["scheduler"], name, slots, LOOPBACK, told["scratch"]
    code = 1
    try:
        asyncio.run(serve_worker(*place, told["certificates"]))
        code = 0
    finally:
        os._exit(code)


def _end(children: dict[int, str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in list(children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
        for child in list(children):
            if _has_ended(child, _ENDING_S if number == signal.SIGTERM else None):
                del children[child]


def _has_ended(child: int, patience_s: float | None) -> bool:
    give_up_s = time.monotonic() + (patience_s or 60.0)
    while time.monotonic() < give_up_s:
        try:
            if os.waitpid(child, os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return True
        time.sleep(0.01)
    return False


if __name__ == "__main__":
    main()
