"""How many machines of which types a cluster may have, when it needs another one, and the autoscaler that
orders it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prudent.core.errors import BadInput, PrudentError

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark_cluster import SparkCluster


@dataclass(frozen=True)
class MachineRange:
    """Machines of one type: at least and at most so many (None: as many as there may be in all)."""

    type: str
    least: int = 0
    most: int | None = None


@dataclass(frozen=True)
class ClusterRequest:
    """Types in the order in which they are taken, and how many machines in all, from `least` to `most`.

    >>> request = ClusterRequest((MachineRange("m5.large", most=2), MachineRange("m5.xlarge")), 2, 4)
    >>> request.needed({}), request.needed({"m5.large": 2}), request.next_type({"m5.large": 2})
    (('m5.large', 2), None, 'm5.xlarge')
    """

    machines: tuple[MachineRange, ...]
    least: int
    most: int

    def __post_init__(self) -> None:
        if not self.machines:
            raise BadInput("The cluster has no machine type; name one, like 3*m5.large.")
        if not 1 <= self.least <= self.most:
            raise BadInput(
                f"A cluster of {self.least} to {self.most} machines is not possible; give at least 1, and no "
                "more at least than at most."
            )
        if sum(machine.least for machine in self.machines) > self.most:
            raise BadInput(
                f"The types ask for {sum(machine.least for machine in self.machines)} machines at least, and "
                f"there may be {self.most} in all; raise the total, or ask for fewer."
            )

    @classmethod
    def exactly(cls, count: int, type_name: str) -> ClusterRequest:
        """So many of one type, no more, no fewer."""
        return cls((MachineRange(type_name),), count, count)

    def smallest(self) -> dict[str, int]:
        """The machines that work begins with, by type, where all of them are available.

        >>> ClusterRequest((MachineRange("m5.large", most=1), MachineRange("m5.4xlarge")), 2, 4).smallest()
        {'m5.large': 1, 'm5.4xlarge': 1}
        """
        held: dict[str, int] = {}
        while (missing := self.needed(held)) is not None:
            held[missing[0]] = held.get(missing[0], 0) + missing[1]
        return held

    def largest(self) -> dict[str, int]:
        """The machines of the cluster at its largest, by type.

        >>> ClusterRequest((MachineRange("m5.large", most=1), MachineRange("m5.4xlarge")), 2, 4).largest()
        {'m5.large': 1, 'm5.4xlarge': 3}
        """
        held = self.smallest()
        while (name := self.next_type(held)) is not None:
            held[name] = held.get(name, 0) + 1
        return held

    def needed(self, held: Mapping[str, int], refused: Collection[str] = ()) -> tuple[str, int] | None:
        """Which machines are missing still before work can begin: a type, and how many of it.

        Each type's own minimum first, then the first types that are not `refused`.
        """
        for machine in self.machines:
            missing = machine.least - held.get(machine.type, 0)
            if missing > 0 and machine.type not in refused:
                return machine.type, missing
        missing = self.least - sum(held.values())
        for machine in self.machines if missing > 0 else ():
            room = self._room(machine, held)
            if room > 0 and machine.type not in refused:
                return machine.type, min(room, missing)
        return None

    def next_type(self, held: Mapping[str, int], refused: Collection[str] = ()) -> str | None:
        """The type of one more machine; None if there may be none."""
        chosen = [
            machine
            for machine in self.machines
            if machine.type not in refused and self._room(machine, held) > 0
        ]
        return chosen[0].type if chosen else None

    def spare(self, held: Mapping[str, int]) -> list[str]:
        """The types of which one machine may be given back, the last to be taken first."""
        if sum(held.values()) <= self.least:
            return []
        return [
            machine.type for machine in reversed(self.machines) if held.get(machine.type, 0) > machine.least
        ]

    def _room(self, machine: MachineRange, held: Mapping[str, int]) -> int:
        own = self.most if machine.most is None else machine.most
        # What others are still owed is kept free for them.
        owed = sum(max(each.least - held.get(each.type, 0), 0) for each in self.machines if each != machine)
        return min(own - held.get(machine.type, 0), self.most - sum(held.values()) - owed)


@dataclass(frozen=True)
class ScalingStep:
    """One machine more (`add`) or less of a type."""

    type: str
    add: bool


def scaling_step(
    request: ClusterRequest,
    held: Mapping[str, int],
    cores: Mapping[str, int],
    trials: int,
    refused: Collection[str] = (),
) -> ScalingStep | None:
    """What to do about the machines, with so many trials under way; None if all is well.

    A trial keeps a core busy. While there are more trials than cores, some wait for others and a machine is
    wanted; a machine is spare when all trials find a core without it.

    >>> request = ClusterRequest((MachineRange("m5.large"),), least=1, most=3)
    >>> scaling_step(request, {"m5.large": 1}, {"m5.large": 2}, trials=3)
    ScalingStep(type='m5.large', add=True)
    >>> scaling_step(request, {"m5.large": 2}, {"m5.large": 2}, trials=2)
    ScalingStep(type='m5.large', add=False)
    >>> scaling_step(request, {"m5.large": 2}, {"m5.large": 2}, trials=3) is None
    True
    """
    total = sum(count * cores[name] for name, count in held.items())
    if sum(held.values()) < request.least or trials > total:
        name = request.next_type(held, refused)
        return None if name is None else ScalingStep(name, True)
    for name in request.spare(held):
        if trials <= total - cores[name]:
            return ScalingStep(name, False)
    return None


WAIT_S = 1.0
"""Trials that wait so long get another machine."""

IDLE_S = 15.0
"""A machine that is not needed for so long is given back: to start it again would cost as much."""

_LOOK_S = 0.25
_AGAIN_S = 60.0


class Autoscaler:
    """Looks after a cluster until it is closed; `trials` tells how many are under way."""

    def __init__(
        self,
        cluster: SparkCluster,
        trials: Callable[[], int],
        wait_s: float = WAIT_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._cluster, self._trials = cluster, trials
        self._wait_s, self._idle_s = wait_s, idle_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="elastic Spark", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking. A change that is under way goes on until the cluster is closed."""
        self._over.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _look_after(self) -> None:
        cores, wanted, since_s, refused_s = self._cluster.cores(), None, 0.0, 0.0
        while not self._over.wait(_LOOK_S):
            try:
                self._cluster.mend()
                now_s = time.monotonic()
                if self._cluster.refused and now_s - refused_s > _AGAIN_S:
                    refused_s = now_s
                    self._cluster.refused.clear()
                held, refused = self._cluster.held, self._cluster.refused
                found = scaling_step(self._cluster.request, held, cores, self._trials(), refused)
                if found != wanted:
                    wanted, since_s = found, now_s
                elif found is not None and now_s - since_s >= (self._wait_s if found.add else self._idle_s):
                    self._take(found)
                    wanted = None
            except PrudentError:
                continue  # a provider in trouble: look again

    def _take(self, found: ScalingStep) -> None:
        (self._cluster.grow if found.add else self._cluster.shrink)(found.type)
