"""Readings of machines that are entered: each counts by itself, and is asked once at the end.

The kernel of a machine counts time, faults and bytes anyway, so their difference from the beginning to the
end is all that is needed. Only the peak of memory wants looking: a shell on the machine does so now and then,
in well under a thousandth of a core. What else runs on the machine meanwhile is counted too.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from prudent.cloud.providers.channel import Channel, RemoteProcess, concurrently
from prudent.cloud.readings import Readings
from prudent.core.errors import PrudentError

_LOOK_S = 5
_ASK_S = 5.0
_MB, _KB, _SECTOR, _USUAL_PAGE = 1e6, 1024, 512, 4096.0
_INSIDE = ("lo:", "veth", "docker", "br-", "virbr", "cni", "flannel")

_COUNTERS = """\
sed 's/^/up /' /proc/uptime
grep -hE '^(cpu |pgmajfault |MemTotal:|MemAvailable:)' /proc/stat /proc/vmstat /proc/meminfo
sed 's/^/net /' /proc/net/dev
for disk in /sys/block/*; do
  case $disk in */loop*|*/ram*|*/dm-*|*/md*) ;; *) sed 's/^/disk /' "$disk/stat" ;; esac
done
echo "page $(getconf PAGESIZE || echo 4096)"
"""
"""Whole disks only: partitions and what is stacked on disks would count the same bytes again."""

_BEGIN = f"""\
{{ {_COUNTERS} }} > @FILE@ 2>/dev/null
watch() {{
  most=0
  while [ -e @FILE@ ]; do
    while read -r name value rest; do
      case $name in
        MemTotal:) total=$value ;;
        MemAvailable:) [ $((total - value)) -gt $most ] && {{ most=$((total - value)); echo "peak $most" > @FILE@.peak; }} ;;
      esac
    done < /proc/meminfo
    sleep {_LOOK_S}
  done
}}
{{ [ -r /proc/meminfo ] && watch; }} < /dev/null > /dev/null 2>&1 &
"""  # noqa: E501 - shell
_END = f"""\
cat @FILE@ && echo end && {{ {_COUNTERS} }} 2>/dev/null
cat @FILE@.peak 2>/dev/null
rm -f @FILE@ @FILE@.peak
"""


class Sampler(Protocol):
    """What reads while a run is under way."""

    def end(self) -> Readings | None: ...


@runtime_checkable
class SampledProcess(Protocol):
    """A command on a machine that it shares with others; its own processes can be read from here."""

    def sampler(self) -> Sampler: ...


class MachineSampler:
    """Readings of one machine from now on until `end`; None where it has no /proc or does not answer.

    `name` is that of a file in the machine's workspace, which must not be that of another sampler: the shell
    on the machine looks as long as the file is there. Nobody waits for the machine to begin.
    """

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel, self._file = channel, shlex.quote(name)
        self._beginning = threading.Thread(
            target=self._ask, args=(_BEGIN,), name="prudent-readings", daemon=True
        )
        self._beginning.start()

    def end(self) -> Readings | None:
        self._beginning.join()
        before, parted, after = self._ask(_END).partition("\nend\n")
        return readings_between(before, after) if parted else None

    def _ask(self, script: str) -> str:
        with contextlib.suppress(PrudentError, OSError):
            code, said, _ = self._channel.run(script.replace("@FILE@", self._file), timeout_s=_ASK_S)
            return said if code == 0 else ""
        return ""


def begin_all(channels: Sequence[Channel], processes: Sequence[RemoteProcess], name: str) -> list[Sampler]:
    """Samplers of the machines of a run, or of its processes where machines are shared."""
    shared = [process.sampler() for process in processes if isinstance(process, SampledProcess)]
    if shared:
        return list(shared)
    return [MachineSampler(channel, name) for channel in channels]


def end_all(samplers: Sequence[Sampler]) -> Readings | None:
    """The readings of a run on several machines."""
    return Readings.of_machines(concurrently(lambda sampler: sampler.end(), samplers))


def readings_between(before: str, after: str) -> Readings | None:
    """What a machine did from one state of its counters to another; None where they tell nothing."""
    try:
        old, new = _counters(before), _counters(after)
        used = {name: new[name] - old[name] for name in old}
        lasted_s, page = used["up"], new["page"]
        if lasted_s <= 0 or used["cpu"] <= 0:
            return None
        held_kb = max(new.get("peak", 0.0), new["MemTotal:"] - new["MemAvailable:"])
    except (ValueError, KeyError, IndexError):
        return None
    return Readings(
        cpu_share=min(max(1.0 - used["idle"] / used["cpu"], 0.0), 1.0),
        memory_peak_mb=held_kb * _KB / _MB,
        memory_share=held_kb / new["MemTotal:"],
        paging_mb_s=used["pgmajfault"] * page / _MB / lasted_s,
        disk_read_mb_s=used["read"] * _SECTOR / _MB / lasted_s,
        disk_write_mb_s=used["written"] * _SECTOR / _MB / lasted_s,
        network_mb_s=used["network"] / _MB / lasted_s,
    )


def _counters(said: str) -> Mapping[str, float]:
    """The counters by name: times of all cores in ticks, sectors of all disks, bytes of all networks."""
    found = {**dict.fromkeys(("read", "written", "network"), 0.0), "page": _USUAL_PAGE}
    for words in (line.replace(":", ": ").split() for line in said.splitlines()):
        kind, *rest = words or [""]
        if kind == "cpu":
            # user, nice, system, idle, waiting for disks, interrupts, stolen: guests are in the first two.
            found["cpu"] = float(sum(map(int, rest[:8])))
            found["idle"] = float(sum(map(int, rest[3:5])))
        elif kind == "disk":
            found["read"] += int(rest[2])
            found["written"] += int(rest[6])
        elif kind == "net" and _is_outside(rest[0]):
            found["network"] += int(rest[1]) + int(rest[9])
        elif kind in ("up", "pgmajfault", "MemTotal:", "MemAvailable:", "peak", "page"):
            found[kind] = float(rest[0])
    return found


def _is_outside(interface: str) -> bool:
    """Whether what an interface moves leaves the machine: containers would be counted twice."""
    return interface.endswith(":") and not interface.startswith(_INSIDE)
