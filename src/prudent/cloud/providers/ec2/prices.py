"""What machines on EC2 cost: by the catalog, by the spot history, and by the lists that AWS publishes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from prudent.cloud.billing import MINIMUM_S
from prudent.cloud.catalog import Catalog, Machine
from prudent.cloud.providers.ec2.client import Ec2Clients, new_session, translating
from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.core.errors import BadInput, RunFailed, did_you_mean
from prudent.core.money import Price

_SYSTEMS = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]


class Ec2Prices:
    """The prices of one region."""

    def __init__(self, settings: Ec2Settings, clients: Ec2Clients) -> None:
        self._settings, self._clients = settings, clients
        self.catalog = Catalog.load(settings.prices, settings.region)

    def machine(self, type_name: str) -> Machine:
        """What the catalog knows of a type; BadInput if it is not there."""
        if type_name in self.catalog:
            return self.catalog[type_name]
        names = [machine.name for machine in self.catalog]
        raise BadInput(
            f'There is no price for the machine type "{type_name}".{did_you_mean(type_name, names)} Choose '
            'one of "prudent prices", or add it to a list of your own (prices: FILE.csv in the EC2 settings).'
        )

    def on_demand(self, type_name: str) -> Price:
        """By the catalog, with its date; a list of another region says so."""
        machine = self.machine(type_name)
        price = machine.price
        if machine.region and machine.region != self._settings.region and "not" not in price.source:
            price = replace(price, source=f"{price.source}, not {self._settings.region}")
        return price

    def spot(self, type_name: str, zones: Sequence[str] = ()) -> tuple[Price, str]:
        """The last spot price, in the cheapest of these zones (of all, if none is named), and that zone.

        Spot machines are billed at the price of the moment, so this is what they cost now, not what they
        will cost. A lease is charged by the price at its launch.
        """
        self.machine(type_name)
        latest = self._latest(type_name)
        chosen = {zone: entry for zone, entry in latest.items() if not zones or zone in zones}
        if not chosen:
            where = " or ".join(zones) or self._settings.region
            raise BadInput(f"There is no spot price for {type_name} in {where}; choose another type or zone.")
        zone = min(chosen, key=lambda name: (float(chosen[name]["SpotPrice"]), name))
        entry = chosen[zone]
        date = entry["Timestamp"].astimezone(UTC).date().isoformat()
        return Price(float(entry["SpotPrice"]), date, f"spot aws {zone}", MINIMUM_S), zone

    def _latest(self, type_name: str) -> dict[str, Any]:
        """The last entry of each zone. A history that starts now holds the prices that are valid now."""
        with translating(f"tell the spot price of {type_name}"):
            entries = _spot_history(self._clients.ec2, [type_name], StartTime=datetime.now(UTC))
        latest: dict[str, Any] = {}
        for entry in entries:
            known = latest.get(entry["AvailabilityZone"])
            if known is None or entry["Timestamp"] > known["Timestamp"]:
                latest[entry["AvailabilityZone"]] = entry
        return latest


COLUMNS = ("name", "vcpus", "memory_gb", "family", "gpus", "price_usd_per_h", "date", "region")
SPOT_COLUMNS = ("name", "zone", "time", "price_usd_per_h")
_PRICING_REGION = "us-east-1"
"""The Price List of all regions is asked for in a few of them only."""
_ASKED = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


@dataclass(frozen=True)
class PriceList:
    """AWS's own lists for one region."""

    region: str
    profile: str = ""

    def on_demand(self, date: str) -> list[tuple[object, ...]]:
        """A row for each machine type, in the columns `COLUMNS`, dated `date`; sorted by name."""
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in {**_ASKED, "regionCode": self.region}.items()
        ]
        rows: dict[str, tuple[object, ...]] = {}
        try:
            with translating("tell its prices"):
                client = self._client("pricing", _PRICING_REGION)
                pages = client.get_paginator("get_products").paginate(
                    ServiceCode="AmazonEC2", Filters=filters
                )
                for page in pages:
                    for text in page["PriceList"]:
                        row = _row(json.loads(text), date, self.region)
                        if row is not None:
                            rows[str(row[0])] = row
        except (KeyError, ValueError, TypeError) as error:
            raise RunFailed(f"AWS's price list cannot be understood ({error!r}); try again later.") from error
        if not rows:
            raise BadInput(
                f'AWS has no prices for a region "{self.region}"; name one such as eu-west-1 with --region.'
            )
        return [rows[name] for name in sorted(rows)]

    def spot(self, types: Sequence[str], days: float) -> list[tuple[object, ...]]:
        """What spot machines of these types have cost, in the columns `SPOT_COLUMNS`; sorted."""
        now = datetime.now(UTC)
        with translating("tell its spot prices"):
            client, since = self._client("ec2", self.region), now - timedelta(days=days)
            entries = _spot_history(client, list(types), StartTime=since, EndTime=now)
        return sorted(
            (
                entry["InstanceType"],
                entry["AvailabilityZone"],
                entry["Timestamp"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                entry["SpotPrice"],
            )
            for entry in entries
        )

    def _client(self, service: str, region: str) -> Any:
        from botocore.config import Config

        config = Config(retries={"mode": "standard", "total_max_attempts": 6}, connect_timeout=10.0)
        try:
            return new_session(self.profile).create_client(service, region_name=region, config=config)
        except ValueError as error:  # a region or an endpoint that is no word of an address
            raise BadInput(f"{str(error).rstrip('.')}; name a region such as eu-west-1.") from error


def _spot_history(client: Any, types: list[str], **span: datetime) -> list[dict[str, Any]]:
    pages = client.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=types, ProductDescriptions=_SYSTEMS, **span
    )
    return [entry for page in pages for entry in page["SpotPriceHistory"]]


def _row(offer: Mapping[str, Any], date: str, region: str) -> tuple[object, ...] | None:
    """A machine type of the list; None for what is not a machine, or is not billed by the hour."""
    facts = offer["product"]["attributes"]
    name, rate = facts.get("instanceType", ""), _usd_per_h(offer)
    if "." not in name or rate is None:
        return None
    memory = facts.get("memory", "").replace(",", "").split()
    return (
        name,
        int(facts["vcpu"]),
        float(memory[0]) if len(memory) == 2 and memory[1] == "GiB" else "",
        name.split(".", maxsplit=1)[0],
        int(facts.get("gpu", "0") or 0),
        rate,
        date,
        region,
    )


def _usd_per_h(offer: Mapping[str, Any]) -> float | None:
    """The one price above zero that is for an hour."""
    found = {
        float(part["pricePerUnit"]["USD"])
        for part in _dimensions(offer)
        if part.get("unit") in ("Hrs", "Hours")
    }
    paid = {rate for rate in found if rate > 0 and math.isfinite(rate)}
    return paid.pop() if len(paid) == 1 else None


def _dimensions(offer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for term in offer.get("terms", {}).get("OnDemand", {}).values():
        for part in term["priceDimensions"].values():
            if "USD" in part.get("pricePerUnit", {}):
                yield part
