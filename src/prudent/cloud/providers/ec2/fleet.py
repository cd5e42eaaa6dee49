"""The machines on EC2: found by their tags, waited for until they can be used, ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from prudent.cloud.providers.channel import Channel
from prudent.cloud.providers.ec2.boot import FAILED, LOG, READY
from prudent.cloud.providers.ec2.client import ERRORS, Ec2Clients, code_of, translated, translating
from prudent.cloud.providers.ec2.launch import InstanceDescription
from prudent.cloud.providers.ec2.tags import (
    ALIVE,
    CLUSTER,
    LEASE_END,
    OURS,
    in_order,
    instance_of,
    lease_text,
    tag_list,
)
from prudent.cloud.providers.provider import (
    CAPACITY,
    CONFIG,
    GONE,
    RUNNING,
    TRANSIENT,
    Instance,
    LaunchFailed,
)
from prudent.core.errors import PrudentError, RunFailed

_BATCH = 200
_UNKNOWN = "InvalidInstanceID.NotFound"
_YOUNG_S = 120.0
"""The listing may lag behind the launches: a machine that is this new and not listed may be there."""


@dataclass(frozen=True)
class Ec2Fleet:
    """Lists, tags and ends machines."""

    clients: Ec2Clients
    sleep: Callable[[float], None] = time.sleep

    def ours(self) -> list[InstanceDescription]:
        """Every machine that is Prudent's and not gone."""
        return self._described({"tag-key": [OURS], "instance-state-name": list(ALIVE)})

    def of_clusters(self, *clusters: str) -> list[InstanceDescription]:
        """All machines of clusters, those that are gone too, for as long as EC2 remembers them."""
        return self._described({f"tag:{CLUSTER}": list(clusters)})

    def by_id(self, ids: Iterable[str]) -> list[InstanceDescription]:
        """Those of these machines that EC2 knows."""
        wanted = list(ids)
        return self._described({"instance-id": wanted}) if wanted else []

    def lease(self, ids: Sequence[str], lease_end_s: float) -> None:
        """Write a later end onto the machines."""
        if not ids:
            return
        try:
            self.clients.ec2.create_tags(
                Resources=list(ids), Tags=tag_list({LEASE_END: lease_text(lease_end_s)})
            )
        except ERRORS as error:
            if code_of(error) != _UNKNOWN:
                raise translated(error, "renew the lease") from error
            known = [one["InstanceId"] for one in self.by_id(ids)]
            if len(known) < len(ids):
                self.lease(known, lease_end_s)

    def end(self, instances: Sequence[Instance]) -> None:
        """End machines; those that are gone are no error, those too new to be listed are asked for again."""
        left = [one.id for one in instances]
        young = {one.id for one in instances if time.time() - one.launched_s < _YOUNG_S}
        for pause_s in (0.5, 1.0, 2.0, 4.0, 0.0):
            left = [one for one in self.end_ids(left) if one in young]
            if not left:
                return
            self.sleep(pause_s)

    def end_ids(self, ids: Iterable[str]) -> list[str]:
        """End machines; answers those that EC2 does not know."""
        wanted, unknown = list(dict.fromkeys(ids)), list[str]()
        for first in range(0, len(wanted), _BATCH):
            batch = wanted[first : first + _BATCH]
            try:
                self.clients.ec2.terminate_instances(InstanceIds=batch)
            except ERRORS as error:
                if code_of(error) != _UNKNOWN:
                    raise translated(error, f"end {', '.join(batch[:5])}") from error
                known = {one["InstanceId"] for one in self.by_id(batch)}
                unknown += [one for one in batch if one not in known]
                if known and len(known) < len(batch):
                    unknown += self.end_ids([one for one in batch if one in known])
        return unknown

    def _described(self, filters: dict[str, list[str]]) -> list[InstanceDescription]:
        asked = [{"Name": name, "Values": values} for name, values in filters.items()]
        with translating("list machines"):
            pages: Any = self.clients.ec2.get_paginator("describe_instances").paginate(Filters=asked)
            return [
                one
                for page in pages
                for reservation in page["Reservations"]
                for one in reservation["Instances"]
            ]


_LOOK = f"if [ -e {READY} ]; then echo ready; elif [ -e {FAILED} ]; then echo failed; cat {FAILED}; fi"


def interruption_reason(described: InstanceDescription) -> str:
    """Why EC2 itself ended a machine (its codes begin with `Server.`); empty if somebody else did."""
    reason = described.get("StateReason") or {}
    code = str(reason.get("Code", ""))
    return str(reason.get("Message") or code) if code.startswith("Server.") else ""


@dataclass(frozen=True)
class Ec2Readiness:
    """Waits until all machines of a launch can be used."""

    fleet: Ec2Fleet
    address: str
    enter: Callable[[Instance], Channel]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def until_ready(self, instances: Sequence[Instance], timeout_s: float) -> tuple[Instance, ...]:
        """The machines with their addresses. If they do not come they are ended: `LaunchFailed`."""
        end_s = self.clock() + timeout_s
        try:
            running = self._running(instances, end_s)
            with ThreadPoolExecutor(min(16, len(running) or 1)) as several:
                list(several.map(lambda one: self._set_up(one, end_s), running))
        except BaseException:
            with contextlib.suppress(PrudentError):  # the first error says more, and the lease ends them too
                self.fleet.end(instances)
            raise
        return running

    def _running(self, instances: Sequence[Instance], end_s: float) -> tuple[Instance, ...]:
        wanted = {one.id: one for one in instances}
        pause_s = 0.2
        while True:
            known = {one["InstanceId"]: one for one in self._known(instances)}
            for one in known.values():
                _refuse_dead(one, self.address)
            found = [instance_of(one, self.address) for one in known.values()]
            if len(found) == len(wanted) and all(one.state == RUNNING and one.address for one in found):
                return in_order(found)
            if self.clock() >= end_s:
                late = [one for one in found if one.state == RUNNING and not one.address]
                if late:
                    raise LaunchFailed(
                        f"{late[0].id} has no {self.address} address; let its subnet give one, or set "
                        "address: in the EC2 settings.",
                        CONFIG,
                    )
                raise LaunchFailed(
                    f"Of {len(wanted)} machines {sum(one.state == RUNNING for one in found)} run in time; "
                    "wait longer, or try another type.",
                    TRANSIENT,
                )
            self.sleep(min(pause_s, max(0.0, end_s - self.clock())))
            pause_s = min(5.0, pause_s * 1.5)

    def _known(self, instances: Sequence[Instance]) -> list[InstanceDescription]:
        """The machines as they are now. Others of this order, of a call whose answer was lost, are ended."""
        ids = {one.id for one in instances}
        every = self.fleet.of_clusters(*{one.cluster for one in instances})
        ours = [one for one in every if one["InstanceId"] in ids]
        tokens = {one.get("ClientToken") for one in ours}
        strays = [
            one["InstanceId"]
            for one in every
            if ours and one.get("ClientToken") not in tokens and instance_of(one, self.address).state != GONE
        ]
        self.fleet.end_ids(strays)
        return ours

    def _set_up(self, instance: Instance, end_s: float) -> None:
        """Log in and ask for the set-up until it is done; while it boots a machine refuses the login."""
        trouble, pause_s = "", 0.5
        while True:
            try:
                with self.enter(instance) as way:
                    said = self._look(way, end_s)
                if said == "ready":
                    return
                if said.startswith("failed"):
                    told = " ".join(said.split()[1:])
                    raise LaunchFailed(
                        f"The set-up of {instance.id} failed ({told}); correct packages or setup in the EC2 "
                        f"settings (the machine wrote {LOG}).",
                        CONFIG,
                    )
            except LaunchFailed:
                raise
            except RunFailed as error:
                trouble = str(error)
            if self.clock() >= end_s:
                said = trouble or "its set-up takes longer; wait longer, or take an image that has all."
                raise LaunchFailed(f"{instance.id} is not ready in time: {said}", TRANSIENT)
            self.sleep(min(pause_s, max(0.0, end_s - self.clock())))
            pause_s = min(5.0, pause_s * 1.5)

    def _look(self, way: Channel, end_s: float) -> str:
        pause_s = 0.5
        while True:
            said = way.run(_LOOK, timeout_s=20.0)[1].strip()
            if said or self.clock() >= end_s:
                return said
            self.sleep(pause_s)
            pause_s = min(3.0, pause_s * 1.5)


def _refuse_dead(described: InstanceDescription, address: str) -> None:
    one = instance_of(described, address)
    if one.state != GONE:
        return
    why = interruption_reason(described)
    said = why or str((described.get("StateReason") or {}).get("Message") or "it was ended")
    kind = CAPACITY if why else TRANSIENT
    raise LaunchFailed(f"{one.id} is gone before it could be used ({said}); launch again.", kind)
