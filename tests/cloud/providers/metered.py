"""Machines of this computer with a meter beside them: what each has cost, whatever leases and ledgers say."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from prudent.cloud.catalog import Machine
from prudent.cloud.providers.local import LocalProvider
from prudent.cloud.providers.local_machine import LocalMachine
from prudent.cloud.providers.provider import Instance, Order


class Metered(LocalProvider):
    """Notes when machines come and go, and at which price; all processes write the same file."""

    def __init__(self, home: Path, catalog: Path, file: Path) -> None:
        super().__init__(home, catalog)
        self.file = file

    def _launch_one(self, order: Order, index: int, kind: Machine) -> LocalMachine:
        made = super()._launch_one(order, index, kind)
        launched = made.instance()
        assert launched is not None
        self._note([launched])
        return made

    def terminate(self, instances: Sequence[Instance]) -> None:
        self._note(instances, until_s=time.time())
        super().terminate(instances)

    def _note(self, instances: Sequence[Instance], **facts: float) -> None:
        """Also of one that goes all is noted: who launched it may have been killed before it could."""
        lines = [
            {
                "id": one.id,
                "usd_per_h": one.price.usd_per_h,
                "minimum_s": one.price.minimum_s,
                "from_s": one.launched_s,
                **facts,
            }
            for one in instances
        ]
        with os.fdopen(os.open(self.file, os.O_APPEND | os.O_CREAT | os.O_WRONLY), "w") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))


def meter_all(file: Path) -> None:
    """From here on all machines of this computer that this process launches or ends are metered."""
    noting = SimpleNamespace(file=file)
    launch, terminate = LocalProvider._launch_one, LocalProvider.terminate

    def launched(self: LocalProvider, order: Order, index: int, kind: Machine) -> LocalMachine:
        made = launch(self, order, index, kind)
        one = made.instance()
        assert one is not None
        Metered._note(noting, [one])  # type: ignore[arg-type]
        return made

    def ended(self: LocalProvider, instances: Sequence[Instance]) -> None:
        Metered._note(noting, instances, until_s=time.time())  # type: ignore[arg-type]
        terminate(self, instances)

    LocalProvider._launch_one, LocalProvider.terminate = launched, ended  # type: ignore[method-assign]


def paid_usd(file: Path) -> float:
    """The bill, as a cloud would write it: each machine from its launch to the first order to end it."""
    machines: dict[str, dict[str, float]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        fact = json.loads(line)
        known = machines.setdefault(fact.pop("id"), {})
        for name, value in fact.items():
            known.setdefault(name, value)
    return sum(
        max(one["until_s"] - one["from_s"], one["minimum_s"]) * one["usd_per_h"] / 3600
        for one in machines.values()
    )
