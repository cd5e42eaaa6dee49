"""`where:` in a job file: the command runs on machines that are rented for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prudent.cloud.catalog import Catalog
from prudent.cloud.home_folder import default_home
from prudent.cloud.providers.provider import Provider
from prudent.cloud.providers.registry import provider_of
from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput
from prudent.tuning.job_kinds import JobDocument, space_of
from prudent.tuning.jobs.cluster_command import LEASE_S, ClusterCommandJob
from prudent.tuning.jobs.declared import declared_fraction, declared_measures
from prudent.tuning.jobs.machines import MachineSelection
from prudent.tuning.jobs.rentals import KEEP_S

_LEAST_LEASE_S = 10.0


def command_on_machines(
    said: JobDocument, where: KeyPath, folder: Path, name: str, logs: Path | None
) -> ClusterCommandJob:
    """The job of a file that says where its machines are."""
    provider = _provider(said, where, folder)
    space = space_of(said, where, folder, _catalog(said["where"], provider, folder))
    price, measures = said.get("price"), where.texts(said, "measures")
    with where / "price":
        MachineSelection.of(price, space)
    with where / "measures":
        declared_measures(measures)
    fraction = where.text(said, "fraction", "") or None
    with where / "fraction":
        declared_fraction(fraction, space)
    with where / "setup":
        if said.get("setup") is not None:
            raise BadInput(
                "Rented machines are paid for from their launch on, as long as it takes; remove it."
            )
    lease_s = where.seconds(said, "lease", LEASE_S)
    with where / "lease":
        if lease_s < _LEAST_LEASE_S:
            raise BadInput(
                f"A lease of {lease_s:g} s is over before it is renewed; give {_LEAST_LEASE_S:g} s."
            )
    timeout_s = where.seconds(said, "timeout", -1.0)
    with where:
        return ClusterCommandJob(
            where.need(said, "command", "write the shell command to run."),
            space,
            provider,
            measures,
            price,
            fraction,
            directory=folder / where.text(said, "directory", "."),
            logs=logs,
            worker=said.get("worker"),
            fetch=where.texts(said, "fetch"),
            exclude=where.texts(said, "exclude"),
            keep_s=where.seconds(said, "keep", KEEP_S),
            lease_s=lease_s,
            spot=where.flag(said, "spot", False),
            grace_s=where.seconds(said, "grace", 5.0),
            environment={key: str(value) for key, value in where.mapping(said, "environment").items()},
            timeout_s=None if timeout_s < 0 else timeout_s,
            name=name,
        )


def _catalog(place: Any, provider: Provider, folder: Path) -> Catalog | None:
    """The types that can be had at a place, where it has types of its own."""
    own = getattr(provider, "catalog", None)
    if callable(own):
        found: Catalog = own()
        return found
    prices = place.get("local") if isinstance(place, Mapping) else None
    return Catalog.load(folder / prices) if isinstance(prices, str) else None


def _provider(said: JobDocument, where: KeyPath, folder: Path) -> Provider:
    place: Any = said["where"]
    with where / "where":
        if not isinstance(place, (str, Mapping)):
            raise BadInput(f"{place!r} is no place; write where: local, or where: {{hosts: inventory.yaml}}.")
        return provider_of(place, default_home(), folder)
