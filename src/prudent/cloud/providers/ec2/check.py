"""What would go wrong on EC2, quotas included: asked before anything is launched or paid."""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prudent.cloud.catalog import cluster_text, parse_cluster
from prudent.cloud.providers.ec2.boot import Ec2Images, public_key
from prudent.cloud.providers.ec2.client import (
    ERRORS,
    Ec2Clients,
    code_of,
    new_session,
    remedy_of,
    translated,
    translating,
)
from prudent.cloud.providers.ec2.prices import Ec2Prices
from prudent.cloud.providers.ec2.settings import PRIVATE, Ec2Settings
from prudent.cloud.providers.provider import QUOTA
from prudent.core.errors import BadInput, PrudentError, did_you_mean

_DRY = "DryRunOperation"


@dataclass(frozen=True)
class Ec2Check:
    """Every question that can be asked for free. `dry_run` asks EC2 to launch a type without doing it."""

    settings: Ec2Settings
    clients: Ec2Clients
    images: Ec2Images
    prices: Ec2Prices
    dry_run: Callable[[str], None]

    def problems(self, types: Sequence[str], spot: bool = False) -> list[str]:
        """One sentence each, with its remedy. Without credentials nothing else can be asked."""
        first = list(self._region()) or list(_told(self._credentials))
        if first:
            return first
        misplaced = list(self._subnets())
        found = [*misplaced, *self._groups(), *self._keys(), *self._profile()]
        if not types:
            found += list(_told(self._image_alone))
        quota = Ec2Quota(self.settings.region, self.clients, self.prices)
        for count, name in map(parse_cluster, types):
            wrong = list(self._type(name, not misplaced))
            found += wrong or quota.problems(name, count, spot)
            if not wrong and not found:  # what is known to be wrong would only be said again
                found += list(_told(lambda name=name: self._launchable(name)))  # type: ignore[misc]
        return list(dict.fromkeys(found))

    def _region(self) -> Iterator[str]:
        known = new_session().get_available_regions("ec2")
        region = self.settings.region
        if region not in known and did_you_mean(region, known):
            yield f'There is no region "{region}".{did_you_mean(region, known)} Mend it in the EC2 settings.'

    def _credentials(self) -> None:
        with translating("tell who we are"):
            self.clients.sts.get_caller_identity()

    def _subnets(self) -> Iterator[str]:
        for subnet in self.settings.subnets:
            yield from _told(lambda subnet=subnet: self.images.zone(subnet))  # type: ignore[misc]
        if self.settings.zones:
            yield from _told(self._zones)

    def _zones(self) -> None:
        with translating("list its zones"):
            found = self.clients.ec2.describe_availability_zones()["AvailabilityZones"]
        names = [zone["ZoneName"] for zone in found]
        for zone in self.settings.zones:
            if zone not in names:
                raise BadInput(
                    f'{self.settings.region} has no zone "{zone}".{did_you_mean(zone, names)} Correct zones '
                    "in the EC2 settings."
                )

    def _groups(self) -> Iterator[str]:
        groups = self.settings.security_groups
        if not groups:
            yield (
                "No security group is named, and the default one lets nobody in; write security_groups: "
                '[sg-…] into the EC2 settings ("prudent infra aws" makes one).'
            )
            return
        described = []
        for group in groups:
            try:
                described += self.clients.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
            except ERRORS as error:
                yield str(translated(error, f"find the security group {group}"))
        if len(described) == len(groups):
            yield from self._port(described)

    def _port(self, groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        port = self.settings.port
        rules = [rule for group in groups for rule in group["IpPermissions"] if _covers(rule, port)]
        names = ", ".join(self.settings.security_groups)
        if not rules:
            yield f"The security group {names} lets nobody in at port {port}; open it for your own address."
            return
        ranges = [one["CidrIp"] for rule in rules for one in rule.get("IpRanges", ())]
        others = any(
            rule.get(key) for rule in rules for key in ("UserIdGroupPairs", "PrefixListIds", "Ipv6Ranges")
        )
        ours = _own_address()
        # From behind a router our public address is not seen from here; the private one is.
        if self.settings.address == PRIVATE and ours and not others and not _within(ours, ranges):
            yield (
                f"The security group {names} opens port {port} for {', '.join(ranges)}, not for this "
                f"computer ({ours}); add it."
            )

    def _keys(self) -> Iterator[str]:
        settings = self.settings
        if settings.key:
            try:
                self.clients.ec2.describe_key_pairs(KeyNames=[settings.key])
            except ERRORS as error:
                yield str(translated(error, f"find the key pair {settings.key}"))
        if settings.key_file is not None and not settings.key_file.is_file():
            yield f"There is no key file {settings.key_file}; correct key_file in the EC2 settings."
        elif not settings.key and not public_key(settings):
            yield (
                "No key lets us in: write key: (a key pair of EC2), or key_file: (a private key with its "
                ".pub beside it) into the EC2 settings."
            )

    def _profile(self) -> Iterator[str]:
        name = self.settings.instance_profile
        if not name or name.startswith("arn:"):
            return
        try:
            self.clients.iam.get_instance_profile(InstanceProfileName=name)
        except ERRORS as error:
            if code_of(error) == "NoSuchEntity":
                yield f'There is no instance profile "{name}"; correct it, or make it with prudent infra aws.'
            # Who may not look may still be allowed to use it: the dry run tells.

    def _image_alone(self) -> None:
        if self.settings.image.startswith("ami-"):
            with translating(f"find the image {self.settings.image}"):
                self.clients.ec2.describe_images(ImageIds=[self.settings.image])

    def _type(self, name: str, placed: bool) -> Iterator[str]:
        for one in (name, *self.settings.alternatives.get(name, ())):
            wrong = list(_told(lambda one=one: self.prices.machine(one)))  # type: ignore[misc]
            wrong = wrong or list(_told(lambda one=one: self.images.image(one)))  # type: ignore[misc]
            if placed and not wrong:
                wrong = list(_told(lambda one=one: self._offered(one)))  # type: ignore[misc]
            yield from wrong

    def _offered(self, name: str) -> None:
        zones = [*map(self.images.zone, self.settings.subnets), *self.settings.zones]
        with translating(f"tell where {name} is offered"):
            found = self.clients.ec2.describe_instance_type_offerings(
                LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [name]}]
            )["InstanceTypeOfferings"]
        offered = sorted(one["Location"] for one in found)
        if not offered:
            raise BadInput(f"{name} is not offered in {self.settings.region}; choose another type or region.")
        if zones and not set(zones) & set(offered):
            raise BadInput(
                f"{name} is not offered in {', '.join(zones)}, only in {', '.join(offered)}; "
                "choose one of those."
            )

    def _launchable(self, name: str) -> None:
        try:
            self.dry_run(name)
        except ERRORS as error:
            if code_of(error) != _DRY:
                raise translated(error, f"launch {name}") from error


def _told(ask: Callable[[], object]) -> Iterator[str]:
    try:
        ask()
    except PrudentError as error:
        yield str(error)


def _covers(rule: Mapping[str, Any], port: int) -> bool:
    protocol = str(rule.get("IpProtocol"))
    if protocol == "-1":
        return True
    return protocol in ("tcp", "6") and rule.get("FromPort", 0) <= port <= rule.get("ToPort", 65535)


def _within(address: str, ranges: Sequence[str]) -> bool:
    ours = ipaddress.ip_address(address)
    return any(ours in ipaddress.ip_network(one, strict=False) for one in ranges)


def _own_address() -> str:
    """The address that this computer speaks to others from; nothing is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return ""


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuotaFamily:
    """Machine types that share a quota; AWS has one for each market, counted in vCPUs."""

    name: str
    types: str
    on_demand: str
    spot: str = ""


FAMILIES = (
    QuotaFamily("F", r"f\d", "L-74FC7D96", "L-88CF9481"),
    QuotaFamily("G and VT", r"(g|gr|vt)\d", "L-DB2E81BA", "L-3819A6DF"),
    QuotaFamily("Inf", r"inf\d", "L-1945791B", "L-B5D1601B"),
    QuotaFamily("P", r"p\d", "L-417A185B", "L-7212CCBC"),
    QuotaFamily("X", r"x\d", "L-7295265B", "L-E3A00192"),
    QuotaFamily("Trn", r"trn\d", "L-2C3B7624", "L-6B0D517C"),
    QuotaFamily("DL", r"dl\d", "L-6E869C2A", "L-85EED4F7"),
    QuotaFamily("Standard", r"(a|c|d|h|i|im|is|m|r|t|z)\d", "L-1216C47A", "L-34B43A08"),
)


def family_of(type_name: str) -> QuotaFamily | None:
    """The family of types that share a quota with this one; None where AWS counts in another way.

    >>> [family.name for name in ("m5.large", "is4gen.xlarge", "g5.xlarge") if (family := family_of(name))]
    ['Standard', 'Standard', 'G and VT']
    >>> family_of("mac1.metal")
    """
    return next((one for one in FAMILIES if re.match(one.types, type_name)), None)


@dataclass(frozen=True)
class Ec2Quota:
    """Compares what is wanted, and what runs already, with what the account may have."""

    region: str
    clients: Ec2Clients
    prices: Ec2Prices

    def problems(self, type_name: str, count: int, spot: bool) -> Iterator[str]:
        """Why `count` machines of a type will be refused; a warning if we may not ask for the quota."""
        family = family_of(type_name)
        code = "" if family is None else family.spot if spot else family.on_demand
        if family is None or not code:
            return
        try:
            said = self.clients.servicequotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)
            most, used = int(said["Quota"]["Value"]), self._used(family, spot)
        except ERRORS as error:
            _log.warning(
                "The vCPU quota for %s could not be looked at (%s); allow servicequotas:GetServiceQuota, as "
                "the policy of prudent infra aws does.",
                type_name,
                code_of(error),
            )
            return
        wanted = count * self.prices.machine(type_name).vcpus
        if wanted + used > most:
            kind = f"{'spot' if spot else 'on-demand'} {family.name} machines"
            yield (
                f"{cluster_text(count, type_name)} needs {wanted} vCPUs, and for {kind} this account has "
                f"{most} in {self.region}, {used} of them in use; {remedy_of(QUOTA)}."
            )

    def _used(self, family: QuotaFamily, spot: bool) -> int:
        pages = self.clients.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        )
        machines = (one for page in pages for held in page["Reservations"] for one in held["Instances"])
        return sum(
            self._vcpus(one)
            for one in machines
            if family_of(one["InstanceType"]) == family and (one.get("InstanceLifecycle") == "spot") == spot
        )

    def _vcpus(self, described: dict[str, Any]) -> int:
        """The vCPUs of a machine: by the price list, or for types that are not in it by its CPU options."""
        if described["InstanceType"] in self.prices.catalog:
            return self.prices.catalog[described["InstanceType"]].vcpus
        options = described.get("CpuOptions") or {}
        return int(options.get("CoreCount", 1)) * int(options.get("ThreadsPerCore", 1))
