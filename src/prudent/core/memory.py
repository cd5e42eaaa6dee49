"""Memory: how much there is, how much this process may use, and how much a run holds.

Two limits work together. RLIMIT_DATA is kept by the kernel for each process: an allocation beyond it fails in
that moment, with a MemoryError that can be told. It counts private memory only, so neither libraries nor
mapped files, and, unlike RLIMIT_AS, not the address space that Java and torch reserve and never use. But it
is for each process alone, and does not count shared memory. So what a process and all below it hold together
is looked at as well (`held_mb`), by somebody outside who can end them. Files in memory, as those in the /tmp
of a sandbox, belong to no process (`files_mb`).
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

_MB = 1 << 20
_GROUP = Path("/sys/fs/cgroup/memory.max")


def total_mb() -> float:
    """The memory of this machine, or of the container that this is."""
    machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _MB
    with contextlib.suppress(OSError, ValueError):
        return min(machine_mb, int(_GROUP.read_text()) / _MB)
    return machine_mb


def limit_mb() -> float:
    """How much private memory this process may have; infinite where nobody has said."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return math.inf if soft == resource.RLIM_INFINITY else soft / _MB


def limit_memory(most_mb: float) -> None:
    """Let allocations beyond `most_mb` fail, in this process and in those it starts."""
    if math.isfinite(most_mb):
        limit = int(most_mb * _MB)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def used_mb(pid: int, files_mb: float = 0.0) -> float:
    """What a process and all below it hold in memory, without mapped files; 0 if it is gone.

    With them there are `files_mb` of files in memory: as far as these are mapped they are not counted twice.
    """
    return _together_mb([_resident_mb(each) for each in process_tree(pid)], files_mb)


def exact_used_mb(pid: int, files_mb: float = 0.0) -> float:
    """The same, with pages that several of them share counted once; takes longer to find out."""
    return _together_mb([_proportional_mb(each) for each in process_tree(pid)], files_mb)


def tmpfs_mb(pid: int) -> float:
    """What is stored in file systems in memory that a process or one below it sees, and we do not."""
    ours = {device for device, _ in _in_memory("self")}
    found: dict[str, float] = {}
    for each in process_tree(pid):
        for device, place in _in_memory(str(each)):
            if device not in ours and device not in found:
                with contextlib.suppress(OSError):
                    disk = os.statvfs(f"/proc/{each}/root{place}")
                    found[device] = (disk.f_blocks - disk.f_bfree) * disk.f_frsize / _MB
    return sum(found.values())


def process_tree(pid: int) -> Iterator[int]:
    """A process and all that it has started, directly or not; each before those that it has started."""
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += _children(found)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


_PrivateAndShared = tuple[float, float]
"""Private memory, and shared memory."""


def _together_mb(held: Sequence[_PrivateAndShared], files_mb: float) -> float:
    return sum(private for private, _ in held) + max(sum(shared for _, shared in held), files_mb)


def _resident_mb(pid: int) -> _PrivateAndShared:
    return _lines_mb(Path(f"/proc/{pid}/status"), "RssAnon:", "RssShmem:") or (0.0, 0.0)


def _proportional_mb(pid: int) -> _PrivateAndShared:
    return _lines_mb(Path(f"/proc/{pid}/smaps_rollup"), "Pss_Anon:", "Pss_Shmem:") or _resident_mb(pid)


def _lines_mb(path: Path, private: str, shared: str) -> _PrivateAndShared | None:
    """Two lines in kB; None where they cannot be read, as those of another user's process."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    found = {words[0]: int(words[1]) / 1024 for words in lines if words and words[0] in (private, shared)}
    return (found.get(private, 0.0), found.get(shared, 0.0)) if found else None


def _in_memory(pid: str) -> Iterator[tuple[str, str]]:
    """The file systems in memory that a process sees: device and place."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
            said, _, kind = line.partition(" - ")
            if kind.startswith("tmpfs "):
                yield said.split()[2], said.split()[4]
