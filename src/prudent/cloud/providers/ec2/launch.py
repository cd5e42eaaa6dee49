"""From an order to machines: one call for a whole cluster; where there are none, the next zone or type.

A cluster is one RunInstances with as many machines as ordered, or none: EC2 never gives half. The call has a
token made from the order, so that asking again, after a lost answer or a crash, is answered with the machines
that were made the first time. The token says nothing of the lease: an order that is repeated with a later
lease is still the same cluster, which EC2 refuses as "same token, other parameters" and we find by its tags.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prudent.cloud.providers.ec2.boot import Image
from prudent.cloud.providers.ec2.client import (
    ERRORS,
    code_of,
    kind_of,
    reason_of,
    remedy_of,
    translated,
)
from prudent.cloud.providers.ec2.settings import PUBLIC, Ec2Settings
from prudent.cloud.providers.ec2.tags import SPOT_REQUEST, TAGGED, tag_list
from prudent.cloud.providers.provider import (
    CAPACITY,
    CONFIG,
    PRICE,
    QUOTA,
    TRANSIENT,
    LaunchFailed,
    LaunchOrder,
)
from prudent.core.errors import RunFailed
from prudent.core.seeds import rng_for

_ATTEMPTS = 5
_GENERATIONS = 8
_SEEN_S = 20.0
_DEAD = ("shutting-down", "terminated")
MISMATCH = "IdempotentParameterMismatch"

InstanceDescription = Mapping[str, Any]


@dataclass(frozen=True)
class LaunchTarget:
    """One place to try: a type, in a subnet or a zone (neither: wherever EC2 likes)."""

    type: str
    subnet: str = ""
    zone: str = ""

    def __str__(self) -> str:
        return f"{self.type} in {self.zone or self.subnet}" if self.zone or self.subnet else self.type


def launch_targets(
    settings: Ec2Settings, type_name: str, zone_of: Callable[[str], str]
) -> Iterator[LaunchTarget]:
    """Every zone for the type that was ordered, then every zone for what may replace it."""
    for kind in dict.fromkeys((type_name, *settings.alternatives.get(type_name, ()))):
        for subnet in settings.subnets:
            yield LaunchTarget(kind, subnet, zone_of(subnet))
        for zone in settings.zones:
            yield LaunchTarget(kind, "", zone)
        if not settings.subnets and not settings.zones:
            yield LaunchTarget(kind)


def token_of(order: LaunchOrder, site: LaunchTarget, generation: int) -> str:
    """The token of a launch: the same for the same cluster at the same place, and for no other.

    `generation` counts the clusters of this token that came and are gone: EC2 remembers a token longer than
    its machines live.
    """
    said = "\0".join(
        (order.owner, order.cluster, str(order.count), site.type, site.subnet or site.zone, str(generation))
    )
    return f"prudent-{hashlib.sha256(said.encode()).hexdigest()[:48]}"


@dataclass(frozen=True)
class Launcher:
    """Tries the places of an order in turn.

    `request` gives the parameters of RunInstances for a place and the notes so far, `client` makes the call,
    `seen` finds all machines of the cluster by its tags, `end` ends machines by their ids.
    """

    client: Callable[[], Any]
    request: Callable[[LaunchOrder, LaunchTarget, Sequence[str]], dict[str, Any]]
    seen: Callable[[str], list[InstanceDescription]]
    end: Callable[[Iterable[str]], object]
    sleep: Callable[[float], None] = field(default=time.sleep)

    def launch(self, order: LaunchOrder, places: Iterable[LaunchTarget]) -> list[InstanceDescription]:
        """The machines as EC2 describes them, or `LaunchFailed`."""
        known = self.seen(order.cluster)
        whole = self._adopted(order, known)
        if whole:
            return whole
        used = {one.get("ClientToken", "") for one in known}
        refused: list[tuple[LaunchTarget, Exception]] = []
        no_quota: set[str] = set()
        for site in places:
            if site.type in no_quota:
                continue  # a quota is the same in every zone
            notes = [f"{place}: {reason_of(error)}" for place, error in refused]
            try:
                return self._at(order, site, notes, used)
            except (*ERRORS, LaunchFailed) as error:
                refused.append((site, error))
                kind = kind_of(error)
                if kind == QUOTA:
                    no_quota.add(site.type)
                elif kind not in (CAPACITY, PRICE):
                    break
        raise _failed(order, refused)

    def _at(
        self, order: LaunchOrder, site: LaunchTarget, notes: Sequence[str], used: set[str]
    ) -> list[InstanceDescription]:
        request = self.request(order, site, notes)
        for generation in range(_GENERATIONS):
            token = token_of(order, site, generation)
            if token in used:
                continue
            try:
                made = self._asked({**request, "ClientToken": token})
            except ERRORS as error:
                # No answer, or that of an order whose lease ended earlier: the machines may be there.
                twice = code_of(error) == MISMATCH
                if not twice and kind_of(error) != TRANSIENT:
                    raise
                made = self._awaited(order.cluster, token)
                if not made and not twice:
                    raise
            if made and not any(_is_dead(one) for one in made):
                return made
            self.end([one["InstanceId"] for one in made if not _is_dead(one)])
        raise LaunchFailed(
            f"The cluster {order.cluster} was launched {_GENERATIONS} times and is gone each time; give the "
            "order another name.",
            CONFIG,
        )

    def _asked(self, request: dict[str, Any]) -> list[InstanceDescription]:
        """Call RunInstances, and repeat it where that may help: the token keeps it from launching twice."""
        for attempt in range(_ATTEMPTS):
            try:
                return list(self.client().run_instances(**request)["Instances"])
            except ERRORS as error:
                if kind_of(error) != TRANSIENT or attempt == _ATTEMPTS - 1:
                    raise
                dice = rng_for(0, "ec2 launch", request["ClientToken"], attempt)
                self.sleep(min(10.0, 0.25 * 2**attempt) * (0.5 + float(dice.random())))
        raise AssertionError("the last attempt returns or raises")

    def _awaited(self, cluster: str, token: str) -> list[InstanceDescription]:
        """The machines that were launched with a token; the listing lags behind, so it is asked again."""
        waited_s, pause_s = 0.0, 0.25
        while True:
            try:
                made = [one for one in self.seen(cluster) if one.get("ClientToken") == token]
            except RunFailed:
                return []  # what may be there has its tags: the reaper finds it
            if made or waited_s >= _SEEN_S:
                return made
            self.sleep(pause_s)
            waited_s, pause_s = waited_s + pause_s, min(4.0, pause_s * 2)

    def _adopted(self, order: LaunchOrder, known: Sequence[InstanceDescription]) -> list[InstanceDescription]:
        """A whole cluster that is there already; what is left of a broken one is ended."""
        whole: list[InstanceDescription] = []
        for token in sorted({str(one.get("ClientToken", "")) for one in known}):
            group = [one for one in known if one.get("ClientToken") == token]
            alive = [one for one in group if not _is_dead(one)]
            if not whole and len(alive) == len(group) == order.count:
                whole = alive
            else:
                self.end([one["InstanceId"] for one in alive])
        return whole


def _is_dead(described: InstanceDescription) -> bool:
    return described["State"]["Name"] in _DEAD


def _failed(order: LaunchOrder, refused: Sequence[tuple[LaunchTarget, Exception]]) -> Exception:
    """One error for all that was tried; its kind tells whether trying again later may help."""
    kinds = [kind_of(error) for _, error in refused]
    if len(refused) == 1 and isinstance(refused[0][1], LaunchFailed):
        return refused[0][1]
    if len(refused) == 1 and kinds == [CONFIG]:
        return _as_launch(refused[0][1], order)
    kind = next(one for one in (CONFIG, TRANSIENT, CAPACITY, PRICE, QUOTA) if one in kinds)
    said = "; ".join(f"{site}: {reason_of(error)}" for site, error in refused)
    what = "spot machines" if order.spot else "machines"
    return LaunchFailed(f"EC2 gave no {order.count}*{order.type} {what} ({said}); {remedy_of(kind)}.", kind)


def _as_launch(error: Exception, order: LaunchOrder) -> LaunchFailed:
    told = translated(error, f"launch {order.count}*{order.type}")
    return LaunchFailed(str(told), kind_of(error))


_METADATA = {"HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceMetadataTags": "enabled"}


def run_request(
    settings: Ec2Settings,
    order: LaunchOrder,
    site: LaunchTarget,
    image: Image,
    script: bytes,
    tags: Mapping[str, str],
) -> dict[str, Any]:
    """The parameters of RunInstances, but for the token: all machines of an order, or none."""
    disk = {
        "VolumeSize": max(image.disk_gb, settings.disk_gb or 0),
        "VolumeType": "gp3",
        # Some images keep their disks, and those would be paid for ever.
        "DeleteOnTermination": True,
    }
    request: dict[str, Any] = {
        "ImageId": image.id,
        "InstanceType": site.type,
        "MinCount": order.count,
        "MaxCount": order.count,
        "UserData": script,
        # With this the switch on the machine, which can only shut it down, ends it for good.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
        # The machine may read its own tags: the lease is one of them.
        "MetadataOptions": _METADATA,
        "TagSpecifications": _tagged(order, tags),
        **_network(settings, site),
    }
    if settings.key:
        request["KeyName"] = settings.key
    if settings.instance_profile:
        word = "Arn" if settings.instance_profile.startswith("arn:") else "Name"
        request["IamInstanceProfile"] = {word: settings.instance_profile}
    if order.spot:
        request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": _spot(settings)}
    return request


def _tagged(order: LaunchOrder, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    kinds = (*TAGGED, SPOT_REQUEST) if order.spot else TAGGED
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]


def _spot(settings: Ec2Settings) -> dict[str, str]:
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if settings.spot_max_usd_per_h is not None:
        options["MaxPrice"] = f"{settings.spot_max_usd_per_h:.6f}"
    return options


def _network(settings: Ec2Settings, site: LaunchTarget) -> dict[str, Any]:
    groups = list(settings.security_groups)
    if site.subnet:
        card = {
            "DeviceIndex": 0,
            "SubnetId": site.subnet,
            "AssociatePublicIpAddress": settings.address == PUBLIC,
            "DeleteOnTermination": True,
        }
        return {"NetworkInterfaces": [{**card, **({"Groups": groups} if groups else {})}]}
    where = {"Placement": {"AvailabilityZone": site.zone}} if site.zone else {}
    return {**where, **({"SecurityGroupIds": groups} if groups else {})}
