"""The provider of machines on this computer: for small jobs, for rehearsals, and for tests.

Each machine has a folder, limits of its type's size, and a dead-man's switch that ends it when its lease is
over. They are priced by the catalog, so that a rehearsal tells what the real thing would cost.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from prudent.cloud.catalog import Catalog, Machine, parse_cluster
from prudent.cloud.providers.local.channel import LocalChannel
from prudent.cloud.providers.local.machine import LocalMachine
from prudent.cloud.providers.provider import CONFIG, TRANSIENT, Instance, LaunchFailed, LaunchOrder, Offer
from prudent.core.errors import BadInput, RunFailed
from prudent.core.processes import kill_point

_AT_ONCE = 8
_NOTES_S = 24 * 3600.0


class LocalProvider:
    """A provider of machines that are folders under `HOME/machines`.

    >>> from pathlib import Path
    >>> LocalProvider(Path("home")).offer("m5.large").vcpus
    2
    """

    name = "local"

    def __init__(self, home: Path, catalog: Path | None = None) -> None:
        self.home = Path(home).absolute()
        self._machines = self.home / "machines"
        self._ended = self._machines / ".ended"
        self._catalog_path = None if catalog is None else Path(catalog).absolute()

    @classmethod
    def of(cls, setting: Any, home: Path, folder: Path = Path()) -> LocalProvider:
        """`where: local`, or `where: {local: prices.csv}` with a price list of one's own."""
        if setting is not None and not isinstance(setting, str):
            raise BadInput(
                f"local: {setting!r} is not a price list; write where: local, or {{local: FILE.csv}}."
            )
        return cls(home, folder / setting if setting else None)

    @cached_property
    def _catalog(self) -> Catalog:
        """Read when a price is asked for: to end machines takes no price list."""
        return Catalog.load(self._catalog_path)

    def catalog(self) -> Catalog:
        """The types of the price list."""
        return self._catalog

    @property
    def settings(self) -> dict[str, str]:
        return {self.name: str(self._catalog_path or "")}

    def check(self, types: Sequence[str] = (), spot: bool = False) -> list[str]:
        complaints = []
        cores, gb = os.cpu_count() or 1, _memory_gb()
        for word in types:
            try:
                _, name = parse_cluster(word)
                machine = self._catalog[name]
            except BadInput as error:
                complaints.append(str(error))
                continue
            if machine.vcpus > cores or machine.memory_gb > gb:
                complaints.append(
                    f"{name} has {machine.vcpus} vCPUs and {machine.memory_gb:g} GB, this computer {cores} "
                    f"and {gb:.0f} GB: times measured here will not hold there; choose a smaller type."
                )
        try:
            self._machines.mkdir(parents=True, exist_ok=True)
            if not os.access(self._machines, os.W_OK):
                raise PermissionError(0, "Permission denied")
        except OSError as error:
            complaints.append(
                f"Cannot write {self._machines} ({error.strerror}); name another folder with PRUDENT_HOME."
            )
        return complaints

    def offer(self, type_name: str, spot: bool = False) -> Offer:
        machine = self._catalog[type_name]
        return Offer(type_name, machine.price, machine.vcpus, machine.memory_gb)

    def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        machine = self._catalog[order.type]
        if order.count < 1:
            raise LaunchFailed(f"Cannot launch {order.count} machines; ask for 1 or more.", CONFIG)
        try:
            self._ended.mkdir(parents=True, exist_ok=True)
            with self._launching():
                placed = []
                if not (self._machines / f"{order.cluster}-0").exists():
                    order.check_price(machine.price)
                for index in range(order.count):
                    placed.append(self._launch_one(order, index, machine))
                    if index == 0:
                        kill_point("launch.partial")
        except LaunchFailed:
            raise
        except (OSError, RunFailed) as error:
            self.terminate([one for one in self.list() if one.cluster == order.cluster])
            raise LaunchFailed(
                f"The machines of {order.cluster} could not be made ({error}); make room in {self.home}.",
                TRANSIENT,
            ) from error
        launched = [one.instance() for one in placed]
        return tuple(one for one in launched if one is not None)

    def ready(self, instances: Sequence[Instance], timeout_s: float) -> tuple[Instance, ...]:
        found = []
        for asked in instances:
            machine = self._machine(asked)
            one = machine.instance()
            if one is None or not machine.alive:
                raise LaunchFailed(f"The machine {asked.id} is gone; launch it again.", TRANSIENT)
            found.append(one)
        return tuple(found)

    def list(self) -> tuple[Instance, ...]:
        self._sweep()
        found = [machine.instance() for machine in self._all()]
        known = [one for one in found if one is not None]
        return tuple(sorted(known, key=lambda one: (one.launched_s, one.cluster, one.index)))

    def renew(self, instances: Sequence[Instance], lease_end_s: float) -> None:
        for one in instances:
            self._machine(one).renew(lease_end_s)

    def terminate(self, instances: Sequence[Instance]) -> None:
        if instances:
            with ThreadPoolExecutor(min(_AT_ONCE, len(instances))) as several:
                list(several.map(lambda one: self._machine(one).end(), instances))

    def channel(self, instance: Instance) -> LocalChannel:
        return LocalChannel(self._machine(instance), instance.cluster)

    def preempt(self, instance: Instance, why: str = "taken back by its owner") -> None:
        """Take a machine away as the owner of a spot machine would: to rehearse what follows."""
        notes = self._machines / ".preempted"
        notes.mkdir(parents=True, exist_ok=True)
        (notes / instance.id).write_text(why, encoding="utf-8")
        self.terminate([instance])

    def preempted(self, instance: Instance) -> str | None:
        try:
            return (self._machines / ".preempted" / instance.id).read_text(encoding="utf-8")
        except OSError:
            return None

    def ended_s(self, cluster: str) -> dict[str, float]:
        """As the switches of its machines have noted it, for a day."""
        found = {}
        for path in self._ended.glob(f"{glob.escape(cluster)}-*"):
            if path.name.rpartition("-")[0] == cluster:
                with contextlib.suppress(OSError):
                    found[path.name] = path.stat().st_mtime
        return found

    def _launch_one(self, order: LaunchOrder, index: int, kind: Machine) -> LocalMachine:
        machine = LocalMachine(self._machines / f"{order.cluster}-{index}")
        if not machine.folder.exists():
            machine = LocalMachine.place(self._machines, order, index, kind.price, kind.vcpus)
        used = Counter(core for other in self._all() for core in _cores_of(other))
        machine.start(kind.vcpus, kind.memory_gb, used)
        return machine

    def _machine(self, instance: Instance) -> LocalMachine:
        return LocalMachine(self._machines / instance.id)

    def _all(self) -> Sequence[LocalMachine]:
        if not self._machines.is_dir():
            return []
        names = [path for path in self._machines.iterdir() if not path.name.startswith(".")]
        return [LocalMachine(path) for path in sorted(names) if path.suffix != ".gone"]

    def _sweep(self) -> None:
        """Remove what was being made or removed when somebody was killed."""
        if not self._machines.is_dir():
            return
        old_s = time.time() - _NOTES_S
        leftovers = [*self._machines.glob("*.gone"), *self._machines.glob(".*.new")]
        for path in (*leftovers, *self._machines.glob(".preempted/*"), *self._ended.glob("*")):
            with contextlib.suppress(OSError):
                if path.suffix == ".gone" or path.stat().st_mtime < old_s:
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    @contextlib.contextmanager
    def _launching(self) -> Iterator[None]:
        """One launch at a time, so that the same order twice makes one cluster."""
        handle = os.open(self._machines / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _cores_of(machine: LocalMachine) -> tuple[int, ...]:
    try:
        return machine.limits.cores
    except RunFailed:
        return ()


def _memory_gb() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    except (ValueError, OSError):
        return float("inf")
