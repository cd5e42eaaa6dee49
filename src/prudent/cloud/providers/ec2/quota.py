"""How many vCPUs an account may run on EC2 at a time: asked before a launch is refused for it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prudent.cloud.cluster import cluster_text
from prudent.cloud.providers.ec2.client import Ec2Clients
from prudent.cloud.providers.ec2.errors import ERRORS, code_of, remedy_of
from prudent.cloud.providers.ec2.prices import Ec2Prices
from prudent.cloud.providers.provider import QUOTA

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Family:
    """Machine types that share a quota; AWS has one for each market, counted in vCPUs."""

    name: str
    types: str
    on_demand: str
    spot: str = ""


FAMILIES = (
    Family("F", r"f\d", "L-74FC7D96", "L-88CF9481"),
    Family("G and VT", r"(g|gr|vt)\d", "L-DB2E81BA", "L-3819A6DF"),
    Family("Inf", r"inf\d", "L-1945791B", "L-B5D1601B"),
    Family("P", r"p\d", "L-417A185B", "L-7212CCBC"),
    Family("X", r"x\d", "L-7295265B", "L-E3A00192"),
    Family("Trn", r"trn\d", "L-2C3B7624", "L-6B0D517C"),
    Family("DL", r"dl\d", "L-6E869C2A", "L-85EED4F7"),
    Family("Standard", r"(a|c|d|h|i|im|is|m|r|t|z)\d", "L-1216C47A", "L-34B43A08"),
)


def family_of(type_name: str) -> Family | None:
    """The types with which one shares its quota; None where it is counted in another way.

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
        """Why so many machines of a type will be refused. Who may not ask for the quota is only warned."""
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

    def _used(self, family: Family, spot: bool) -> int:
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
        """By the price list, which knows the types of ours; of others EC2 tells how they were set up."""
        if described["InstanceType"] in self.prices.catalog:
            return self.prices.catalog[described["InstanceType"]].vcpus
        options = described.get("CpuOptions") or {}
        return int(options.get("CoreCount", 1)) * int(options.get("ThreadsPerCore", 1))
