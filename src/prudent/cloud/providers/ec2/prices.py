"""What machines on EC2 cost: on demand by the catalog, spot by what was paid last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from prudent.cloud.billing import MINIMUM_S
from prudent.cloud.catalog import Catalog, Machine
from prudent.cloud.providers.ec2.client import Ec2Clients
from prudent.cloud.providers.ec2.errors import ERRORS, translated
from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.core.errors import BadInput, did_you_mean
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
        will cost: the price at launch is what a lease is charged by.
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
        try:
            pages = self._clients.ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=[type_name],
                ProductDescriptions=_SYSTEMS,
                StartTime=datetime.now(UTC),
            )
            entries = [entry for page in pages for entry in page["SpotPriceHistory"]]
        except ERRORS as error:
            raise translated(error, f"tell the spot price of {type_name}") from error
        latest: dict[str, Any] = {}
        for entry in entries:
            known = latest.get(entry["AvailabilityZone"])
            if known is None or entry["Timestamp"] > known["Timestamp"]:
                latest[entry["AvailabilityZone"]] = entry
        return latest
