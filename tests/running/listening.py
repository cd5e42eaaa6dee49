"""What the processes of a test listen at, as the system tells; `only_loopback` is the fixture for it."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_EVERY_S = 0.1
_LISTENS = "0A"
_LOOPBACK = ("7F", "00000000000000000000000001000000")
"""How addresses that begin with 127 end in the tables of the system, and ::1."""


@dataclass(frozen=True)
class Port:
    """A port at which a process waits for others."""

    address: str
    number: int
    pid: int
    program: str

    @property
    def on_loopback(self) -> bool:
        found = ipaddress.ip_address(self.address.partition("%")[0])
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return (mapped or found).is_loopback


class Watch:
    """Looks again and again, while the block lasts, at what this process and all below it listen at.

    Processes that were detached are found by the home of the test, which their environment names. What was
    open before the block is nobody's fault here.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._mark = None if home is None else f"PRUDENT_HOME={home}\0".encode()
        self._before = self._read()
        self.seen: set[Port] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def look(self) -> set[Port]:
        """What is listened at now."""
        found = self._read() - self._before
        self.seen |= found
        return found

    @property
    def beyond_loopback(self) -> set[Port]:
        return {port for port in self.seen if not port.on_loopback}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        """Whose a port is takes long to find out: that is only asked for new ones beyond loopback."""
        known: set[str] = set()
        while not self._over.wait(_EVERY_S):
            fresh = _beyond_loopback() - known
            if fresh:
                known |= fresh
                self.look()

    def _read(self) -> set[Port]:
        return {port for process in self._processes() for port in ports_of(process)}

    def _processes(self) -> list[psutil.Process]:
        own = psutil.Process()
        found = {one.pid: one for one in [own, *own.children(recursive=True)]}
        for process in psutil.process_iter() if self._mark else ():
            with contextlib.suppress(OSError):
                if self._mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                    found[process.pid] = process
        return list(found.values())


def _beyond_loopback() -> set[str]:
    """The sockets of the whole computer that others can reach, by the number that the system has for them."""
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, remote, state, *_, inode = line.split()[:10]
            waits = state == _LISTENS if table.startswith("tcp") else set(remote) <= set("0:")
            if waits and not local.partition(":")[0].endswith(_LOOPBACK):
                found.add(inode)
    return found


def ports_of(process: psutil.Process) -> Iterator[Port]:
    """What one process listens at."""
    with contextlib.suppress(psutil.Error, OSError):
        for one in process.net_connections("inet"):
            waits = one.status == psutil.CONN_LISTEN or (one.type == socket.SOCK_DGRAM and not one.raddr)
            if waits and one.laddr:
                program = " ".join(process.cmdline())[:200]
                yield Port(one.laddr.ip, one.laddr.port, process.pid, program)
