"""Memory: how much there is, how much this process may use, and how much a run holds.

Two limits work together. RLIMIT_DATA is kept by the kernel for each process: an allocation beyond it fails in
that moment, with a MemoryError that can be told. It counts private memory only, so neither libraries nor
mapped files, and, unlike RLIMIT_AS, not the address space that Java and torch reserve and never use. But it
is for each process alone, and does not count shared memory. So what a process and all below it hold together
is looked at as well (`held_mb`), by somebody outside who can end them.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Iterator
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


def hold(most_mb: float) -> None:
    """Let allocations beyond `most_mb` fail, in this process and in those it starts."""
    if math.isfinite(most_mb):
        limit = int(most_mb * _MB)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def held_mb(pid: int) -> float:
    """What a process and all below it hold in memory, without mapped files; 0 if it is gone."""
    return sum(_resident_mb(each) for each in below(pid))


def exact_mb(pid: int) -> float:
    """The same, with pages that several of them share counted once; takes longer to find out."""
    return sum(_proportional_mb(each) for each in below(pid))


def below(pid: int) -> Iterator[int]:
    """A process and all that it has started, directly or not."""
    yield pid
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                    yield from below(int(child))


def _resident_mb(pid: int) -> float:
    return _sum_mb(Path(f"/proc/{pid}/status"), ("RssAnon:", "RssShmem:")) or 0.0


def _proportional_mb(pid: int) -> float:
    found = _sum_mb(Path(f"/proc/{pid}/smaps_rollup"), ("Pss_Anon:", "Pss_Shmem:"))
    return _resident_mb(pid) if found is None else found


def _sum_mb(path: Path, names: tuple[str, ...]) -> float | None:
    """The sum of some lines in kB; None where they cannot be read, as those of another user's process."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    found = [int(words[1]) / 1024 for words in lines if len(words) > 1 and words[0] in names]
    return sum(found) if found else None
