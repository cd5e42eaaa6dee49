"""Machines that runs behind the wall have rented, and that their processes did not give back.

Their leases are in the run's own folder, where commands can write: a lease may be forged, to have the service
end machines of others or read files with its own rights. So the service reads of them only whether there is
anything to do. The reaper itself works behind the same wall, with no more rights than the commands had.
"""

from __future__ import annotations

import json
import logging
import os
import random
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from prudent.cloud.leases.lease import RELEASED
from prudent.cloud.leases.reaper import reap_all
from prudent.cloud.leases.register import Register
from prudent.service.work.wall import PRIVATE, Limits, Wall

_REAPER = "import sys; from prudent.service.work.walled_machines import main; main(sys.argv[1:])"
_LONGEST_S = 180.0
_LARGEST = 1 << 20
_SAID = 2000
_AT_A_TIME = 20
"""A round looks at no more runs than this, drawn anew each time: forged leases keep nobody waiting long."""
_log = logging.getLogger("prudent.worker")


def are_left(folder: Path) -> bool:
    """Whether a run's folder has leases that were not released; what is no plain file is none."""
    leases = folder / PRIVATE / "leases"
    try:
        names = [name for name in os.listdir(leases) if name.endswith(".json") and name[0] != "."]
    except OSError:
        return False
    return any(_is_held(leases / name) for name in names)


def end(wall: Wall, folder: Path, abandoned: bool = True) -> bool:
    """Have the reaper work in a run's folder, behind the wall; answers whether no machine is left.

    `abandoned`: no process of the run lives. Otherwise leases must be over, since behind bubblewrap nobody
    can tell whether their holder lives.
    """
    if not are_left(folder):
        return True
    words = json.dumps({"limits": asdict(wall.limits), "abandoned": abandoned})
    with subprocess.Popen(
        wall.command([sys.executable, "-P", "-c", _REAPER, words], folder),
        env=wall.environment(folder, os.environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **wall.options(),
    ) as process:
        deadline = threading.Timer(_LONGEST_S, process.kill)
        deadline.start()
        try:
            assert process.stdout is not None
            said = process.stdout.read(_SAID).decode("utf-8", "replace")
        finally:
            deadline.cancel()
            process.kill()
    if said:
        _log.warning("Machines of run %s: %s", folder.name, said, extra={"run": folder.name})
    return not are_left(folder)


def reap(wall: Wall | None, runs: Path) -> None:
    """A round of the reaper for the runs whose leases have been left; nothing it meets ends the service."""
    if wall is None:
        return
    found = list(_left(runs))
    for folder in random.sample(found, min(len(found), _AT_A_TIME)):
        try:
            end(wall, folder, abandoned=False)
        except OSError as error:
            _log.warning("Machines of run %s cannot be looked for: %s", folder.name, error)


def main(arguments: Sequence[str]) -> None:
    """Behind the wall: end what is left, and say what could not be."""
    order = json.loads(arguments[0])
    Limits(**order["limits"]).apply()
    done = reap_all(Register(), time.time(), abandoned=order["abandoned"])
    for line in done.complaints:
        sys.stdout.write(f"{line}\n")


def _left(runs: Path) -> Iterator[Path]:
    try:
        with os.scandir(runs) as entries:
            folders = [Path(entry.path) for entry in entries]
    except OSError:
        return
    yield from (folder for folder in folders if are_left(folder))


def _is_held(path: Path) -> bool:
    try:
        # No link is followed, and no pipe waited for.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return False
            said = json.loads(file.read(_LARGEST))
        return isinstance(said, dict) and said.get("state") != RELEASED
    except (OSError, ValueError, RecursionError):
        return False
