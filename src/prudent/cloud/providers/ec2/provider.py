"""The provider of machines of Amazon EC2, on demand or spot.

Everything is in the tags: another process, on another computer with the same credentials, sees the same
machines with their clusters, leases and prices.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from prudent.cloud.catalog import Catalog
from prudent.cloud.leases.dead_mans_switch import cluster_environment, renew_command
from prudent.cloud.providers.channel import Channel
from prudent.cloud.providers.ec2.boot import LEASE, Ec2Images, HostKey, new_host_key, user_data
from prudent.cloud.providers.ec2.check import Ec2Check
from prudent.cloud.providers.ec2.client import Ec2Clients, translating
from prudent.cloud.providers.ec2.fleet import Ec2Fleet, Ec2Readiness, interruption_reason
from prudent.cloud.providers.ec2.launch import Launcher, LaunchTarget, launch_targets, run_request, token_of
from prudent.cloud.providers.ec2.prices import Ec2Prices
from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.cloud.providers.ec2.tags import HOST_KEY, ended_s, in_order, instance_of, tag_map, tags_of
from prudent.cloud.providers.provider import Instance, LaunchOrder, Offer
from prudent.core.errors import BadInput, PrudentError, RunFailed
from prudent.core.money import Price

_LOGIN_S = 10.0
_DRY_LEASE_S = 60.0


def open_channel(login: Any, workspace: str, environment: Mapping[str, str]) -> Channel:
    """Log in to a machine by SSH."""
    from prudent.cloud.providers.ssh.channel import SshChannel

    return SshChannel(login, workspace, environment)


class Ec2Provider:
    """The provider for `where: {ec2: aws.yaml}`."""

    name = "ec2"

    def __init__(
        self, settings: Ec2Settings, file: Path, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.file, self.place = file, settings
        self.clients = Ec2Clients(settings)
        self._fleet = Ec2Fleet(self.clients, sleep)
        self._images = Ec2Images(settings, self.clients)
        self._prices = Ec2Prices(settings, self.clients)
        self._launcher = Launcher(
            lambda: self.clients.launching, self._request, self._fleet.of_clusters, self._fleet.end_ids, sleep
        )
        self._wait = Ec2Readiness(self._fleet, settings.address, self.channel, sleep)
        self._host_keys: dict[str, str] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, setting: Any, home: Path, folder: Path) -> Ec2Provider:
        """The provider that a file of settings describes."""
        if not isinstance(setting, (str, Path)):
            raise BadInput("EC2 needs its settings; write where: {ec2: aws.yaml}, as prudent infra aws does.")
        file = (folder / Path(setting).expanduser()).absolute()
        return cls(Ec2Settings.read(file), file)

    @property
    def settings(self) -> dict[str, str]:
        return {self.name: str(self.file)}

    def catalog(self) -> Catalog:
        """The types that have a price here."""
        return self._prices.catalog

    def check(self, types: Sequence[str] = (), spot: bool = False) -> list[str]:
        try:
            asked = Ec2Check(self.place, self.clients, self._images, self._prices, self._dry_run)
            return asked.problems(types, spot)
        except PrudentError as error:
            return [str(error)]

    def offer(self, type_name: str, spot: bool = False) -> Offer:
        machine = self._prices.machine(type_name)
        price, zone = self._price(type_name, spot, self._zones() if spot else ())
        return Offer(type_name, price, machine.vcpus, machine.memory_gb, zone=zone)

    def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        if order.count < 1:
            raise BadInput(f"Cannot launch {order.count} machines; order one or more.")
        self._prices.machine(order.type)
        places = launch_targets(self.place, order.type, self._images.zone)
        made = self._launcher.launch(order, places)
        return in_order(instance_of(one, self.place.address) for one in made)

    def ready(self, instances: Sequence[Instance], timeout_s: float) -> tuple[Instance, ...]:
        return self._wait.until_ready(instances, timeout_s) if instances else ()

    def list(self) -> tuple[Instance, ...]:
        return in_order(instance_of(one, self.place.address) for one in self._fleet.ours())

    def renew(self, instances: Sequence[Instance], lease_end_s: float) -> None:
        """On the tags, which the machine reads too; and by SSH, in case it cannot."""
        self._fleet.lease([one.id for one in instances], lease_end_s)
        if instances:
            with ThreadPoolExecutor(min(16, len(instances))) as several:
                list(several.map(lambda one: self._renew_there(one, lease_end_s), instances))

    def terminate(self, instances: Sequence[Instance]) -> None:
        self._fleet.end(instances)

    def channel(self, instance: Instance) -> Channel:
        try:
            from prudent.cloud.providers.ssh.connection import Login
        except ImportError as error:
            raise _lacks(error) from error
        login = Login(
            instance.address,
            user=self.place.login,
            port=self.place.port,
            key=self.place.key_file,
            host_key=self._host_key(instance),
            name=instance.id,
            timeout_s=_LOGIN_S,
        )
        return open_channel(
            login, f"prudent-{instance.cluster}", cluster_environment(instance.cluster, instance.id)
        )

    def preempted(self, instance: Instance) -> str | None:
        for one in self._fleet.by_id([instance.id]):
            why = interruption_reason(one)
            if why:
                return f"EC2 took {instance.id} away ({why})."
            if request := one.get("SpotInstanceRequestId"):
                return self._interruption(instance.id, str(request))
        return None

    def ended_s(self, cluster: str) -> dict[str, float]:
        """As EC2 remembers it, for about an hour."""
        ends = {one["InstanceId"]: ended_s(one) for one in self._fleet.of_clusters(cluster)}
        return {machine: end_s for machine, end_s in ends.items() if end_s is not None}

    def _interruption(self, machine: str, request: str) -> str | None:
        """EC2 marks a spot request two minutes before it takes the machine."""
        with translating(f"tell the state of {request}"):
            found = self.clients.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[request])
        for one in found["SpotInstanceRequests"]:
            code = str(one.get("Status", {}).get("Code", ""))
            if code.startswith(("marked-for-", "instance-terminated-", "instance-stopped-")):
                if code == "instance-terminated-by-user":
                    return None
                return f"EC2 takes {machine} away ({code}: {one['Status'].get('Message', '')})."
        return None

    def _renew_there(self, instance: Instance, lease_end_s: float) -> None:
        if not instance.address:
            return
        with contextlib.suppress(PrudentError), self.channel(instance) as way:
            way.run(renew_command(LEASE, lease_end_s - time.time()), timeout_s=_LOGIN_S)

    def _host_key(self, instance: Instance) -> str:
        with self._lock:
            known = self._host_keys.get(instance.id)
        if known is None:
            described = self._fleet.by_id([instance.id])
            if not described:
                raise RunFailed(f"EC2 does not know {instance.id} any more; launch again.")
            known = tag_map(described[0]).get(HOST_KEY, "")
            with self._lock:
                self._host_keys[instance.id] = known
        if not known:
            raise RunFailed(f"{instance.id} has lost its tag {HOST_KEY}; it cannot be trusted: end it.")
        return known

    def _zones(self) -> Sequence[str]:
        return [*map(self._images.zone, self.place.subnets), *self.place.zones]

    def _price(self, type_name: str, spot: bool, zones: Sequence[str]) -> tuple[Price, str]:
        return self._prices.spot(type_name, zones) if spot else (self._prices.on_demand(type_name), "")

    def _request(self, order: LaunchOrder, site: LaunchTarget, notes: Sequence[str]) -> dict[str, Any]:
        """What is asked of EC2, without the token."""
        try:
            host_key: HostKey = new_host_key()
        except ImportError as error:
            raise _lacks(error) from error
        price, _ = self._price(site.type, order.spot, [site.zone] if site.zone else [])
        replace(order, type=site.type).check_price(price)
        tags = tags_of(order, price, notes, host_key.public, self.place.tags)
        script = user_data(self.place, order.lease_end_s, host_key)
        return run_request(self.place, order, site, self._images.image(site.type), script, tags)

    def _dry_run(self, type_name: str) -> None:
        """Ask EC2 for one machine without getting it; it answers with an error in any case."""
        order = LaunchOrder("check", "check", "check", type_name, 1, time.time() + _DRY_LEASE_S)
        site = next(iter(launch_targets(self.place, type_name, self._images.zone)))
        request = self._request(order, site, ())
        token = token_of(order, site, 0)
        self.clients.launching.run_instances(**request, ClientToken=token, DryRun=True)


def _lacks(error: ImportError) -> RunFailed:
    return RunFailed(
        f'Machines there are entered with {error.name}; install it: pip install "prudent[hosts]".'
    )
