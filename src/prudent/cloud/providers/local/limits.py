"""How a machine on this computer is kept to its size: control groups, or cores and memory per process.

A control group (version 1 or 2) holds all processes of a machine together to its vCPUs and memory.
Where this user may make none, each process is bound to as many cores, and to the memory by itself.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
class Limits:
    """What holds a machine: its groups, and for what no group could be made, cores and bytes."""

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
    def from_dict(cls, said: Mapping[str, Any]) -> Limits:
        return cls(tuple(said["groups"]), tuple(said["cores"]), int(said["memory_bytes"]))


def group_names(machine: str) -> dict[str, tuple[Path, ...]]:
    """Per controller, where a group for this machine could be made, best place first."""
    return {
        controller: tuple(
            parent / f"prudent-{machine.removeprefix('prudent-')}" for parent in _parents(controller)
        )
        for controller in _CONTROLLERS
    }


def limit(
    names: Mapping[str, tuple[Path, ...]], vcpus: int, memory_gb: float, used_cores: Mapping[int, int]
) -> Limits:
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
    return Limits(groups, cores, 0 if "memory" in made else memory_bytes)


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
    """On a busy computer a machine gets its part by its vCPUs; a group by itself has that of one process."""
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
    """In a container the path is often that of the host, and the mount is what we may see of it."""
    path = mount / inside.lstrip("/")
    return path if path.is_dir() else mount
