"""A place whose machines are a list, at moments that the test chooses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prudent.cloud.providers.provider import RUNNING, Instance
from prudent.core.money import Price

PRICE = Price(3.6, "2025-01-01", "catalog", minimum_s=60)
"""A tenth of a cent a second, a minute at least."""


def instance(cluster: str, index: int = 0, **said: Any) -> Instance:
    """A machine, launched at 1000 and with a lease until 1300 unless told otherwise."""
    known: dict[str, Any] = {
        "id": f"{cluster}-{index}",
        "provider": "local",
        "type": "m5.large",
        "cluster": cluster,
        "run": "run-1",
        "owner": "me",
        "index": index,
        "state": RUNNING,
        "address": "127.0.0.1",
        "launched_s": 1000.0,
        "lease_end_s": 1300.0,
        "price": PRICE,
    }
    return Instance(**{**known, **said})


class Shown:
    """As much of a provider as the reaper needs; what is `kept` does not go when it is told to."""

    def __init__(
        self,
        machines: Iterable[Instance] = (),
        setting: str = "",
        kept: Sequence[str] = (),
        name: str = "local",
    ) -> None:
        self.machines = list(machines)
        self.settings = {name: setting}
        self.name = name
        self.kept = kept
        self.ended: list[str] = []

    def list(self) -> tuple[Instance, ...]:
        return tuple(self.machines)

    def terminate(self, instances: Sequence[Instance]) -> None:
        ids = [one.id for one in instances]
        self.ended += ids
        self.machines = [one for one in self.machines if one.id not in ids or one.id in self.kept]
