"""One machine on this computer: a folder, the limits it lives in, and a dead-man's switch that ends it.

A control group (version 1 or 2) holds all processes of a machine together to its vCPUs and memory.
Where this user may make none, each process is bound to as many cores, and to the memory by itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.cloud.leases import dead_mans_switch
from prudent.cloud.processes import ProcessIdentity
from prudent.cloud.providers.provider import PENDING, RUNNING, Instance, LaunchOrder
from prudent.core.errors import RunFailed
from prudent.core.files import write_whole
from prudent.core.money import Price

ADDRESS = "127.0.0.1"
_GRACE_S = 1


@dataclass(frozen=True)
class LocalMachine:
    """A folder `HOME/machines/<id>`; what is said of it is read from there each time."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @classmethod
    def place(cls, machines: Path, order: LaunchOrder, index: int, price: Price, vcpus: int) -> LocalMachine:
        """Make a machine that is not there yet: all of its folder appears at once."""
        machine = cls(machines / f"{order.cluster}-{index}")
        fresh = machines / f".{machine.id}.{os.getpid()}.new"
        (fresh / "workspace").mkdir(parents=True)
        said = {
            "cluster": order.cluster,
            "run": order.run,
            "owner": order.owner,
            "type": order.type,
            "index": index,
            "spot": order.spot,
            "launched_s": time.time(),
            "price": price.to_dict(),
            "vcpus": vcpus,
        }
        (fresh / "machine.json").write_text(json.dumps(said), encoding="utf-8")
        (fresh / "lease_end").write_text(f"{math.ceil(order.lease_end_s)}\n")
        (fresh / "switch.sh").write_text(dead_mans_switch.script(), encoding="utf-8")
        os.replace(fresh, machine.folder)
        return machine

    def start(self, vcpus: int, memory_gb: float, used_cores: dict[int, int]) -> None:
        """Set its limits and start its keeper, each unless that is done already."""
        if not (self.folder / "keeper.json").exists():
            keeper = self._keep()
            self._write("keeper.json", keeper.to_dict())
        if not (self.folder / "limits.json").exists():
            names = group_names(self.id)
            # Noted before they are made: whoever ends the machine removes those that there are.
            noted = dict.fromkeys(str(group) for places in names.values() for group in places)
            (self.folder / "groups").write_text("".join(f"{group}\n" for group in noted))
            self._write("limits.json", make_limits(names, vcpus, memory_gb, used_cores).to_dict())

    @property
    def vcpus(self) -> int:
        return int(self._read("machine.json")["vcpus"])

    @property
    def limits(self) -> MachineLimits:
        return MachineLimits.from_dict(self._read("limits.json"))

    @property
    def alive(self) -> bool:
        """Whether commands can run there: it was started, its keeper lives, and its end has not begun."""
        with contextlib.suppress(RunFailed):
            said = self._read("keeper.json")
            started = ProcessIdentity(int(said["pid"]), str(said["started"])).alive
            return (
                started and (self.folder / "limits.json").exists() and not (self.folder / "ending").exists()
            )
        return False

    def instance(self) -> Instance | None:
        """What `list` tells of it; None if it is gone meanwhile."""
        with contextlib.suppress(RunFailed, OSError, ValueError):
            said = self._read("machine.json")
            state = RUNNING if (self.folder / "keeper.json").exists() else PENDING
            return Instance(
                id=self.id,
                provider="local",
                type=said["type"],
                cluster=said["cluster"],
                run=said["run"],
                owner=said["owner"],
                index=said["index"],
                state=state,
                address=ADDRESS,
                launched_s=said["launched_s"],
                lease_end_s=float((self.folder / "lease_end").read_text()),
                price=Price.from_dict(said["price"]),
                spot=said["spot"],
            )
        return None

    def renew(self, lease_end_s: float) -> None:
        try:
            write_whole(self.folder / "lease_end", f"{math.ceil(lease_end_s)}\n")
        except FileNotFoundError as error:
            raise RunFailed(f"The machine {self.id} is gone; launch another one.") from error

    def end(self) -> None:
        """Do now what its keeper does at the end of the lease; harmless when the machine is gone already."""
        # The script as an argument: the machine's own copy may be gone already.
        words = ["/bin/sh", "-c", dead_mans_switch.script(), "switch.sh", "end", str(self.folder)]
        done = subprocess.run(
            [*words, f"{dead_mans_switch.MACHINE}={self.id}", dead_mans_switch.CLEAN],
            env={**os.environ, "PRUDENT_SWITCH_GRACE_S": str(_GRACE_S)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if self.folder.exists():
            raise RunFailed(
                f"The machine {self.id} could not be removed ({done.stderr.strip() or 'no reason given'}); "
                f"see who may write {self.folder.parent}."
            )

    def _keep(self) -> ProcessIdentity:
        """Start its keeper, which is no child of ours: it outlives us, and nobody has to reap it."""
        path, word = str(self.folder / "switch.sh"), f"{dead_mans_switch.MACHINE}={self.id}"
        starting = f'{dead_mans_switch.watch_command(path, str(self.folder), word)}; echo "$!"'
        done = subprocess.run(
            ["/bin/sh", "-c", starting], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
        pid = int(done.stdout)
        return ProcessIdentity.of(pid) or ProcessIdentity(pid, "")

    def _write(self, name: str, said: dict[str, Any]) -> None:
        write_whole(self.folder / name, json.dumps(said))

    def _read(self, name: str) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunFailed(f"The machine {self.id} is gone or damaged; launch another one.") from error
        return said


_PERIOD_US = 100_000
_CONTROLLERS = ("cpu", "memory")
_JOIN = """
command=$1; shift
for group; do echo 0 > "$group/cgroup.procs" || exit 125; done
exec /bin/sh -c "$command"
"""
_BIND = """
import os, resource, sys
cores, limit, command = sys.argv[1:]
if cores: os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
if limit != "0": resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
os.execv("/bin/sh", ["/bin/sh", "-c", command])
"""


@dataclass(frozen=True)
class MachineLimits:
    """The limits of a machine: its control groups, and cores and bytes where no group could be made."""

    groups: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    memory_bytes: int = 0

    def arguments(self, command: str) -> list[str]:
        """The arguments that run a shell command within these limits; all that it starts inherits them."""
        words = ["/bin/sh", "-c", command]
        if self.cores or self.memory_bytes:
            cores = ",".join(str(core) for core in self.cores)
            words = [sys.executable, "-ISc", _BIND, cores, str(self.memory_bytes), command]
        if self.groups:
            # Joined by the process itself before it becomes the command: nothing can escape in between.
            inner = f"exec {shlex.join(words)}" if self.cores or self.memory_bytes else command
            words = ["/bin/sh", "-c", _JOIN, "sh", inner, *self.groups]
        return words

    def to_dict(self) -> dict[str, Any]:
        return {"groups": list(self.groups), "cores": list(self.cores), "memory_bytes": self.memory_bytes}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> MachineLimits:
        return cls(tuple(said["groups"]), tuple(said["cores"]), int(said["memory_bytes"]))


def group_names(machine: str) -> dict[str, tuple[Path, ...]]:
    """Per controller, where a group for this machine could be made, best place first."""
    return {
        controller: tuple(
            parent / f"prudent-{machine.removeprefix('prudent-')}" for parent in _parents(controller)
        )
        for controller in _CONTROLLERS
    }


def make_limits(
    names: Mapping[str, tuple[Path, ...]], vcpus: int, memory_gb: float, used_cores: Mapping[int, int]
) -> MachineLimits:
    """Make the groups that can be made, and choose cores and bytes in place of the others.

    `used_cores` tells how many machines are bound to each core already; the least used are taken.
    """
    memory_bytes = int(memory_gb * 1024**3)
    asked = {"cpu": vcpus * _PERIOD_US, "memory": memory_bytes}
    made: dict[str, Path] = {}
    for controller, amount in asked.items():
        for group in names.get(controller, ()) if amount else ():
            if _make(group, controller, amount):
                made[controller] = group
                break
    groups = tuple(dict.fromkeys(str(group) for group in made.values()))
    cores = () if "cpu" in made else _cores(vcpus, used_cores)
    return MachineLimits(groups, cores, 0 if "memory" in made else memory_bytes)


def _cores(vcpus: int, used: Mapping[int, int]) -> tuple[int, ...]:
    if not hasattr(os, "sched_getaffinity"):
        return ()
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (used.get(core, 0), core))
    return () if vcpus >= len(cores) else tuple(sorted(cores[:vcpus]))


def _make(group: Path, controller: str, amount: int) -> bool:
    """Whether there is a group now that limits, and that a process of ours could join."""
    made = not group.exists()
    with contextlib.suppress(OSError):
        if (group.parent / "cgroup.subtree_control").exists():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.subtree_control").write_text(f"+{controller}")
        group.mkdir(exist_ok=True)
        for name, value in _settings(controller, amount):
            if (group / name).exists():
                (group / name).write_text(value)
                if _can_join(group):
                    _weigh(group, controller, amount)
                    return True
                break
    if made:
        with contextlib.suppress(OSError):
            group.rmdir()
    return False


def _settings(controller: str, amount: int) -> tuple[tuple[str, str], ...]:
    """The file of either version, and what it wants."""
    if controller == "cpu":
        return ("cpu.max", f"{amount} {_PERIOD_US}"), ("cpu.cfs_quota_us", str(amount))
    return ("memory.max", str(amount)), ("memory.limit_in_bytes", str(amount))


def _weigh(group: Path, controller: str, amount: int) -> None:
    """Weigh a group by its vCPUs: on a busy computer it would otherwise get no more than a single process."""
    vcpus = amount // _PERIOD_US
    weights = (("cpu.weight", 100 * vcpus), ("cpu.shares", 1024 * vcpus)) if controller == "cpu" else ()
    for name, weight in weights:
        with contextlib.suppress(OSError):
            if (group / name).exists():
                (group / name).write_text(str(min(weight, 10_000) if name == "cpu.weight" else weight))


def _can_join(group: Path) -> bool:
    joining = ["/bin/sh", "-c", 'echo 0 > "$0/cgroup.procs"', str(group)]
    return subprocess.run(joining, check=False, capture_output=True).returncode == 0


def _parents(controller: str, proc: Path = Path("/proc")) -> Iterator[Path]:
    """The groups under which this process may hope to make one: its own, and those around it."""
    try:
        mounts = [line.split() for line in (proc / "mounts").read_text().splitlines()]
        own = [line.split(":", 2) for line in (proc / "self" / "cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, where, kind, options, *_ in mounts:
        if kind == "cgroup" and controller in options.split(","):
            inside = next((path for _, names, path in own if controller in names.split(",")), "/")
            yield _within(Path(where), inside)
        elif kind == "cgroup2":
            here = _within(Path(where), next((path for number, _, path in own if number == "0"), "/"))
            yield from (here, *(up for up in here.parents if Path(where) in (up, *up.parents)))


def _within(mount: Path, inside: str) -> Path:
    """The path below the mount: in a container the kernel often tells the path on the host."""
    path = mount / inside.lstrip("/")
    return path if path.is_dir() else mount
