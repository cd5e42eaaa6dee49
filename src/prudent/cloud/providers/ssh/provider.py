"""The provider of hosts that one can log in to by SSH, used by one cluster at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from prudent.cloud.catalog import Catalog, parse_cluster
from prudent.cloud.leases import dead_mans_switch
from prudent.cloud.providers.channel import LOST, attempts, concurrently, on_all
from prudent.cloud.providers.provider import (
    CAPACITY,
    CONFIG,
    TRANSIENT,
    Instance,
    LaunchFailed,
    LaunchOrder,
    Offer,
)
from prudent.cloud.providers.ssh import host_folder as folder
from prudent.cloud.providers.ssh.channel import SshChannel
from prudent.cloud.providers.ssh.connection import CLOSED, LoginFailed
from prudent.cloud.providers.ssh.host_folder import SAME, TAKEN, HostTags
from prudent.cloud.providers.ssh.inventory import Host, Inventory
from prudent.core.errors import BadInput, PrudentError, RunFailed
from prudent.core.processes import kill_point

TakenHosts: TypeAlias = dict[str, Instance]
Refusals: TypeAlias = list[tuple[str, str]]

_TAKE_S = 60.0
_END_S = 30.0
_log = logging.getLogger(__name__)


class HostsProvider:
    """Hosts as machines to rent: taken whole, under a lease, and left as they were found.

    What a host is used for is written on the host itself (see `host_folder`), so that every process that
    has the inventory sees the same.
    """

    name = "hosts"

    def __init__(self, inventory: Inventory, path: Path) -> None:
        self.inventory = inventory
        self._path = path
        self._launching = threading.Lock()

    @classmethod
    def of(cls, setting: Any, home: Path, beside: Path = Path()) -> HostsProvider:
        """The provider of an inventory file, found beside `beside`."""
        del home
        if not isinstance(setting, (str, Path)) or not str(setting):
            raise BadInput(f"{setting!r} names no inventory; write where: {{hosts: inventory.yaml}}.")
        path = (beside / Path(setting).expanduser()).absolute()
        return cls(Inventory.read(path), path)

    @property
    def settings(self) -> dict[str, str]:
        return {"hosts": str(self._path)}

    def catalog(self) -> Catalog:
        """The types that can be had here."""
        return self.inventory.catalog()

    def check(self, types: Sequence[str] = (), spot: bool = False) -> list[str]:
        wrong, names = [], set()
        for word in types:
            try:
                count, name = parse_cluster(word)
                names.add(name)
                self._enough(count, name)
            except (BadInput, LaunchFailed) as error:
                wrong.append(str(error))
        hosts = [host for host in self.inventory.hosts if not types or host.type in names]
        return wrong + [said for said in concurrently(self._check, hosts) if said]

    def offer(self, type_name: str, spot: bool = False) -> Offer:
        hosts = self.inventory.of_type(type_name)
        if spot:
            raise BadInput("Hosts of one's own have no spot price; leave spot out.")
        machine = hosts[0].machine
        return Offer(type_name, machine.price, machine.vcpus, machine.memory_gb, available=len(hosts))

    def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        hosts = self._enough(order.count, order.type)
        order.check_price(hosts[0].machine.price)
        with self._launching:
            found, refused = self._take(order, hosts)
        if len(found) == order.count:
            return tuple(sorted(found.values(), key=lambda one: one.index))
        self.terminate(list(found.values()))
        raise _refusal(order, refused)

    def ready(self, instances: Sequence[Instance], timeout_s: float) -> tuple[Instance, ...]:
        """Check that the hosts are still ours: they are up already when they are taken."""
        del timeout_s
        for why in concurrently(self.preempted, instances):
            if why is not None:
                raise LaunchFailed(f"A host did not become ready: {why}.", TRANSIENT)
        return tuple(instances)

    def list(self) -> tuple[Instance, ...]:
        """What all reachable hosts know of themselves; RunFailed if none can be reached.

        On a host that cannot be reached the dead-man's switch ends what it was used for.
        """
        answers = attempts(self._list, self.inventory.hosts)
        wrong = [answer for answer in answers if isinstance(answer, PrudentError)]
        if len(wrong) == len(answers):
            raise wrong[0]
        for error in wrong:
            _log.warning("%s", error)
        return tuple(one for answer in answers if not isinstance(answer, PrudentError) for one in answer)

    def renew(self, instances: Sequence[Instance], lease_end_s: float) -> None:
        def renew(instance: Instance) -> None:
            host = self._host(instance)
            left_s = lease_end_s - time.time()
            script = folder.renew_script(self.inventory.folder, instance.id, lease_end_s, left_s)
            with self._enter(host) as way:
                code, _, err = way.shell(script)
            if code != 0:
                why = err.strip() or "it is over"
                raise RunFailed(f"The lease on {host.name} could not be renewed ({why}); launch again.")

        on_all(renew, instances)

    def terminate(self, instances: Sequence[Instance]) -> None:
        """Ends all that can be reached, then complains about the others: their switches will end them."""
        on_all(self._end, instances)

    def channel(self, instance: Instance) -> SshChannel:
        host, base = self._host(instance), self.inventory.folder
        return SshChannel(
            host.login,
            folder.workspace(base, instance.id),
            dead_mans_switch.cluster_environment(instance.cluster, instance.id),
            folder.ours_test(base, instance.id),
        )

    def preempted(self, instance: Instance) -> str | None:
        host = self._host(instance)
        try:
            with self._enter(host) as way:
                code, _, _ = way.shell(folder.ours_test(self.inventory.folder, instance.id))
        except LoginFailed as error:
            return str(error).rstrip(".")
        return None if code == 0 else f"the lease on {host.name} is over"

    def ended_s(self, cluster: str) -> dict[str, float]:
        """As the switches on the hosts have noted it, for a day; nothing unless all of them answer."""
        try:
            answers = concurrently(lambda host: self._ended_s(host, cluster), self.inventory.hosts)
        except PrudentError:
            return {}
        return {name: end_s for answer in answers for name, end_s in answer.items()}

    # Inside

    def _ended_s(self, host: Host, cluster: str) -> dict[str, float]:
        with self._enter(host) as way:
            _, out, _ = way.shell(folder.ended_script(self.inventory.folder, cluster))
        now_s = time.time()
        ages_s = folder.ages_s(out)
        ours = [name for name in ages_s if name.rpartition("@")[0].rpartition("-")[0] == cluster]
        return {name: now_s - ages_s[name] for name in ours}

    def _enough(self, count: int, type_name: str) -> Sequence[Host]:
        """All hosts of a type, if there are so many."""
        hosts = self.inventory.of_type(type_name)
        if len(hosts) < count:
            raise LaunchFailed(
                f"The inventory has {len(hosts)} hosts of type {type_name}, not {count}; ask for fewer, or "
                "add hosts.",
                CONFIG,
            )
        return hosts

    def _take(self, order: LaunchOrder, hosts: Sequence[Host]) -> tuple[TakenHosts, Refusals]:
        """Take as many hosts as wanted, in rounds: for each that refuses the next round asks another one."""
        refused: Refusals = []
        # What an earlier launch of the same order took comes first, for it may have found others busy.
        listed = attempts(self._list, hosts)
        had = [one for answer in listed if not isinstance(answer, PrudentError) for one in answer]
        found = {one.id: one for one in had if one.cluster == order.cluster}
        free = [host for host in hosts if host.name not in {_place(one) for one in found.values()}]
        while len(found) < order.count and free:
            used = {one.index for one in found.values()}
            missing = [index for index in range(order.count) if index not in used]
            round_ = [(index, free.pop(0)) for index in missing if free]
            for answer in concurrently(lambda pair: self._take_one(order, *pair), round_):
                if isinstance(answer, Instance):
                    found[answer.id] = answer
                    kill_point("launch.partial")
                else:
                    refused.append(answer)
        return found, refused

    def _take_one(self, order: LaunchOrder, index: int, host: Host) -> Instance | tuple[str, str]:
        """The machine; or why the host refuses, and the kind of that reason."""
        now_s = time.time()
        tags = HostTags(f"{order.cluster}-{index}@{host.name}", order, index, now_s, host.machine.price)
        script = folder.take_script(self.inventory.folder, tags, order.lease_end_s - now_s)
        try:
            with self._enter(host) as way:
                code, out, err = way.shell(script, _TAKE_S)
        except LoginFailed as error:
            return str(error), TRANSIENT if error.kind == CLOSED else CONFIG
        except PrudentError as error:
            return str(error), TRANSIENT
        if code != 0:
            why = err.strip().splitlines()[-1:] or ["lost"]
            kind = CAPACITY if code == 75 else TRANSIENT if code == LOST else CONFIG
            return f"{host.name} cannot be used ({why[0]}); free some space there, or check its folder.", kind
        word, lease, said = out.split("\n")[:3]
        there = HostTags.read(lease, said)
        if word in (TAKEN, SAME):
            return there.instance(host.login.address)
        until = time.strftime("%H:%M:%S", time.localtime(there.order.lease_end_s))
        return (
            f"{host.name} is used by {there.order.owner} (run {there.order.run}) until {until} at least",
            CAPACITY,
        )

    def _list(self, host: Host) -> Sequence[Instance]:
        with self._enter(host) as way:
            code, out, _ = way.shell(folder.list_script(self.inventory.folder))
        if code != 0:
            raise RunFailed(f"{host.name} did not say what it is used for; check that it runs.")
        lines = out.splitlines()
        return [
            HostTags.read(lease, said).instance(host.login.address)
            for lease, said in zip(lines[::2], lines[1::2], strict=False)
        ]

    def _end(self, instance: Instance) -> None:
        host = self._host(instance)
        with self._enter(host) as way:
            code, _, err = way.shell(folder.end_script(self.inventory.folder, instance.id), _END_S)
        if code != 0:
            raise RunFailed(
                f"The folder of {instance.id} on {host.name} could not be removed ({err.strip()[-200:]}); "
                "remove it there."
            )

    def _check(self, host: Host) -> str | None:
        try:
            with self._enter(host) as way:
                _, out, _ = way.shell(folder.check_script(self.inventory.folder))
        except PrudentError as error:
            return str(error)
        word, _, what = out.strip().partition(" ")
        place = f"the folder {self.inventory.folder} on {host.name}"
        sentences = {
            "lacks": f"{host.name} has no {what}; install it there.",
            "folder": f"{place.capitalize()} cannot be made; make it writable, or name another folder.",
            "full": f"The disk is full or not writable: {place} takes no more; free some space there.",
        }
        return sentences.get(word, None if word == "fine" else f"{host.name} does not run commands; try ssh.")

    def _host(self, instance: Instance) -> Host:
        host = self.inventory.named(_place(instance))
        if host is None:
            raise BadInput(
                f"{instance.id} is on a host that the inventory {self._path} no longer lists; add it again."
            )
        return host

    def _enter(self, host: Host) -> SshChannel:
        return SshChannel(replace(host.login, name=host.name))


def _place(instance: Instance) -> str:
    return instance.id.rpartition("@")[2]


def _refusal(order: LaunchOrder, refused: Refusals) -> LaunchFailed:
    """The error of an order that failed; of the kinds of refusals the most hopeful one counts."""
    kinds = [kind for _, kind in refused]
    kind = next((kind for kind in (CAPACITY, TRANSIENT, CONFIG) if kind in kinds), TRANSIENT)
    said = "; ".join(why.rstrip(".") for why, _ in refused[:3])
    more = f"; and {len(refused) - 3} more" if len(refused) > 3 else ""
    remedy = "wait, or ask for fewer machines" if kind == CAPACITY else "then start it again"
    return LaunchFailed(
        f"No {order.count} hosts of type {order.type} could be had: {said}{more}; {remedy}.", kind
    )
