"""Readings of a command that runs here: its processes are looked at now and then, by a thread beside it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prudent.cloud.processes import OlderProcesses, ProcessInfo, process_file, stat_fields
from prudent.cloud.readings import Readings
from prudent.core.memory import total_mb

_COST = 0.002
"""So much of a core the thread takes at most, by its own clock: where looking takes longer (thousands of
processes) it looks less often."""
_FIRST_S, _MOST_S = 1.0, 5.0
_STARTING_S = 60.0  # no run began so long before its sampler
_GROWTH = 0.25  # of the time that a run has lasted
_MB, _MIB = 1e6, 1 << 20


@dataclass(frozen=True)
class ProcessUsage:
    """What processes have used since they began, together with those that they have waited for.

    Once a process is waited for, its time, faults and bytes count for who waited, so that nothing is lost
    when it ends; its memory (`held_mb`) is given back then.
    """

    cpu_s: float = 0.0
    faults: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    held_mb: float = 0.0

    @classmethod
    def read(cls, pid: int) -> ProcessUsage | None:
        """Those of one process, which may have ended if nobody has waited for it; None where nobody tells."""
        fields = stat_fields(pid)
        if fields is None:
            return None
        disk = dict(line.split(": ", 1) for line in process_file(pid, "io").splitlines())
        return cls(
            sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"),
            int(fields[9]) + int(fields[10]),
            int(disk.get("read_bytes", 0)),
            int(disk.get("write_bytes", 0)),
            int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / _MB,
        )

    @classmethod
    def together(cls, several: Iterable[ProcessUsage | None]) -> ProcessUsage | None:
        """Those of several processes; None where there is none."""
        told = [one for one in several if one is not None]
        if not told:
            return None
        return cls(
            sum(one.cpu_s for one in told),
            sum(one.faults for one in told),
            sum(one.read_bytes for one in told),
            sum(one.written_bytes for one in told),
            sum(one.held_mb for one in told),
        )


class ProcessSampler:
    """Readings of the processes that `members` finds, from now on until `end`.

    `first` is the number of the process that began it all, where nobody waits for it before `end`: it is read
    once more then, when everything that it waited for is counted. Memory is what is resident, pages that
    processes share counted for each; a run that is over before the first look has no readings of it.
    """

    def __init__(self, first: int | None, members: Callable[[OlderProcesses], list[ProcessInfo]]) -> None:
        self._first, self._members = first, members
        self._began_s = time.monotonic()
        self._older = OlderProcesses(time.clock_gettime(time.CLOCK_BOOTTIME) - _STARTING_S)
        self._usage, self._usage_s = ProcessUsage(), 0.0
        self.peak_mb = 0.0
        """The most memory that was seen."""
        self._over = threading.Event()
        self.cost_s = 0.0
        """The processor time that looking has taken."""
        self._thread = threading.Thread(target=self._work, name="prudent-readings", daemon=True)
        self._thread.start()

    def end(self) -> Readings | None:
        """Stop looking; None where nothing could be read."""
        self._over.set()
        self._thread.join()
        if self._first is not None:
            self._take(ProcessUsage.read(self._first))
        if not self._usage_s:
            return None
        usage, lasted_s = self._usage, self._usage_s
        cores, whole_mb = len(os.sched_getaffinity(0)), total_mb() * _MIB / _MB
        peak_mb = min(self.peak_mb, whole_mb) if self.peak_mb else None
        return Readings(
            cpu_share=min(usage.cpu_s / lasted_s / cores, 1.0),
            memory_peak_mb=peak_mb,
            memory_share=None if peak_mb is None else peak_mb / whole_mb,
            paging_mb_s=usage.faults * os.sysconf("SC_PAGE_SIZE") / _MB / lasted_s,
            disk_read_mb_s=usage.read_bytes / _MB / lasted_s,
            disk_write_mb_s=usage.written_bytes / _MB / lasted_s,
        )

    def _work(self) -> None:
        began_s, wait_s = time.thread_time(), _FIRST_S
        while not self._over.wait(wait_s):
            looked_s = time.thread_time()
            self._take(
                ProcessUsage.together(ProcessUsage.read(one.pid) for one in self._members(self._older))
            )
            now_s = time.thread_time()
            self.cost_s = now_s - began_s
            lasted_s = time.monotonic() - self._began_s
            # The next look as well must be paid for by the time that has passed then.
            due_s = (self.cost_s + now_s - looked_s) / _COST
            wait_s = max(min(max(lasted_s * _GROWTH, _FIRST_S), _MOST_S), due_s - lasted_s)

    def _take(self, usage: ProcessUsage | None) -> None:
        """Take what was read as what was used until now, unless processes ended that nobody waited for."""
        if usage is None:
            return
        self.peak_mb = max(self.peak_mb, usage.held_mb)
        if usage.cpu_s >= self._usage.cpu_s:
            self._usage, self._usage_s = usage, time.monotonic() - self._began_s
