"""Machines that a run of the service rents: where, what they have cost, and that none is left."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prudent.cloud.leases.lease import RELEASED, Lease, Rented
from prudent.cloud.leases.register import Register
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import BadInput, PrudentError
from prudent.core.money import Price
from prudent.service.work.artifacts import MODELS
from prudent.training.request import Resources, TrainingRequest
from prudent.training.resources import place_of, run_name

NONE_HERE = "This service rents no machines; the request is trained on the worker's own."
_KEYS = ("computationalResources", "computational_resources", "machines")
_log = logging.getLogger("prudent.worker")


@dataclass(frozen=True)
class Paid:
    """What the machines of a run have cost in all, and the price of one where all have the same."""

    usd: float
    price: Price | None


def check(where: str | None, home: Path) -> None:
    """Say at once what would fail every run that wants machines."""
    if where is None:
        return
    if find_spec("pyspark") is None:
        raise BadInput('Machines are rented for Spark, which is not here; pip install "prudent[spark]".')
    provider_of(place_of(where), home, Path.cwd()).catalog()


def asks(request: TrainingRequest) -> bool:
    """Whether a request wants machines of its own; without data there is nothing to do on them."""
    resources = request.computational_resources
    named = resources is not None and resources != Resources()
    return request.dataset is not None and (named or request.machines is not None)


def may_have(kind: str, document: Mapping[str, Any], where: str | None) -> bool:
    """Whether a run can have rented machines at all: the register need not be read for others."""
    return where is not None and kind == "train" and any(document.get(key) for key in _KEYS)


def end(folder: Path, home: Path) -> int:
    """End machines that a process which is gone has left; answers how many leases were released.

    The run is ours and nothing of it is under way, so whatever has its name is in nobody's hands, also where
    one cannot tell whether its holder lives: on another computer, or hanging.
    """
    register = Register(home)
    left = [lease for lease in _of(register, folder) if lease.state != RELEASED]
    for lease in left:
        try:
            _end(register, lease)
        except (PrudentError, OSError) as error:  # the reaper and the switch on each machine remain
            _log.warning("%s could not be ended yet: %s", lease.cluster, error)
    return len(left)


def paid(folder: Path, home: Path) -> Paid:
    """What the machines of a run have cost, those of former workers included."""
    found, now_s = _of(Register(home), folder), time.time()
    prices = {lease.price for lease in found}
    return Paid(sum(lease.cost_usd(now_s) for lease in found), prices.pop() if len(prices) == 1 else None)


def _of(register: Register, folder: Path) -> list[Lease]:
    name = run_name(folder / MODELS)
    return [lease for lease in register.leases() if lease.run == name]


def _end(register: Register, lease: Lease) -> None:
    provider = provider_of(dict(lease.settings), register.home, Path("/"))
    machines = [one for one in provider.list() if one.cluster == lease.cluster]
    provider.terminate(machines)
    why = "its worker is gone"
    register.release(lease.cluster, time.time(), why, [Rented.of(one) for one in machines])
