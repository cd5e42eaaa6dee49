"""Machines that a run of the service rents: where, what they have cost, and that none is left.

Leases of a sandboxed run are in the run's own folder, where commands can write: a lease may be forged, to
have the service end machines of others or read files with its own rights. So the service reads of them only
whether there is anything to do. The reaper itself works in the same sandbox, with no more rights than the
commands had.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prudent.cloud.leases.lease import RELEASED, Lease, LeasedMachine
from prudent.cloud.leases.reaper import reap_all
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import BadInput, PrudentError
from prudent.core.money import Price
from prudent.service.worker.artifacts import MODELS
from prudent.service.worker.sandbox import PRIVATE, ProcessLimits, Sandbox
from prudent.training.request.request import Resources, TrainingRequest
from prudent.training.request.resources import lease_run_name, parse_where

NONE_HERE = "This service rents no machines; the request is trained on the worker's own."
_REAPER = "import sys; from prudent.service.worker.machines import main; main(sys.argv[1:])"
_LONGEST_S = 180.0
_LARGEST = 1 << 20
_SAID = 2000
_AT_A_TIME = 20
"""A round looks at no more runs than this, drawn anew each time: forged leases keep nobody waiting long."""
_KEYS = ("computationalResources", "computational_resources", "machines")
_log = logging.getLogger("prudent.worker")


@dataclass(frozen=True)
class MachineCost:
    """What the machines of a run have cost in all, and the price of one where all have the same."""

    usd: float
    price: Price | None


def check(where: str | None, home: Path) -> None:
    """Raise at the start of the service what would fail every run that rents machines."""
    if where is None:
        return
    if find_spec("pyspark") is None:
        raise BadInput('Machines are rented for Spark, which is not here; pip install "prudent[spark]".')
    provider_of(parse_where(where), home, Path.cwd()).catalog()


def wants_machines(request: TrainingRequest) -> bool:
    """Whether a request wants machines of its own; without data there is nothing to do on them."""
    resources = request.computational_resources
    named = resources is not None and resources != Resources()
    return request.dataset is not None and (named or request.machines is not None)


def may_have_machines(kind: str, document: Mapping[str, Any], where: str | None) -> bool:
    """Whether a run can have rented machines at all: the register need not be read for others."""
    return where is not None and kind == "train" and any(document.get(key) for key in _KEYS)


def end_left_machines(folder: Path, home: Path) -> int:
    """End machines that a process which is gone has left; answers how many leases were released.

    The run is ours and nothing of it is under way, so whatever has its name is in nobody's hands, also where
    one cannot tell whether its holder lives: on another computer, or hanging.
    """
    register = LeaseRegister(home)
    left = [lease for lease in _of(register, folder) if lease.state != RELEASED]
    for lease in left:
        try:
            _end(register, lease)
        except (PrudentError, OSError) as error:  # the reaper and the switch on each machine remain
            _log.warning("%s could not be ended yet: %s", lease.cluster, error)
    return len(left)


def machine_cost(folder: Path, home: Path) -> MachineCost:
    """What the machines of a run have cost, those of former workers included."""
    found, now_s = _of(LeaseRegister(home), folder), time.time()
    prices = {lease.price for lease in found}
    return MachineCost(
        sum(lease.cost_usd(now_s) for lease in found), prices.pop() if len(prices) == 1 else None
    )


def _of(register: LeaseRegister, folder: Path) -> list[Lease]:
    name = lease_run_name(folder / MODELS)
    return [lease for lease in register.leases() if lease.run == name]


def _end(register: LeaseRegister, lease: Lease) -> None:
    provider = provider_of(dict(lease.settings), register.home, Path("/"))
    machines = [one for one in provider.list() if one.cluster == lease.cluster]
    provider.terminate(machines)
    why = "its worker is gone"
    register.release(lease.cluster, time.time(), why, [LeasedMachine.of(one) for one in machines])


def are_left(folder: Path) -> bool:
    """Whether a run's folder has leases that were not released; what is not a plain file is none."""
    leases = folder / PRIVATE / "leases"
    try:
        names = [name for name in os.listdir(leases) if name.endswith(".json") and name[0] != "."]
    except OSError:
        return False
    return any(_is_held(leases / name) for name in names)


def end_in_sandbox(sandbox: Sandbox, folder: Path, abandoned: bool = True) -> bool:
    """Have the reaper work in a run's folder, in the sandbox; answers whether no machine is left.

    `abandoned`: no process of the run lives. Otherwise leases must be over, since behind bubblewrap nobody
    can tell whether their holder lives.
    """
    if not are_left(folder):
        return True
    words = json.dumps({"limits": asdict(sandbox.limits), "abandoned": abandoned})
    with subprocess.Popen(
        sandbox.command([sys.executable, "-P", "-c", _REAPER, words], folder),
        env=sandbox.environment(folder, os.environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **sandbox.options(),
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


def reap_sandboxed(sandbox: Sandbox | None, runs: Path) -> None:
    """Run the reaper for runs with unreleased leases; its errors are logged and do not end the service."""
    if sandbox is None:
        return
    found = list(_left(runs))
    for folder in random.sample(found, min(len(found), _AT_A_TIME)):
        try:
            end_in_sandbox(sandbox, folder, abandoned=False)
        except OSError as error:
            _log.warning("Machines of run %s cannot be looked for: %s", folder.name, error)


def main(arguments: Sequence[str]) -> None:
    """In the sandbox: end what is left, and say what could not be."""
    order = json.loads(arguments[0])
    ProcessLimits(**order["limits"]).apply()
    done = reap_all(LeaseRegister(), time.time(), abandoned=order["abandoned"])
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
