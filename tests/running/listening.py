"""What the processes of a test listen at, as the system tells; `only_loopback` is the fixture for it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_EVERY_S = 0.25
_LISTENS = "0A"
_TABLES = {"tcp": 4, "tcp6": 16, "udp": 4, "udp6": 16}
"""The tables of the system, and how many bytes an address has there."""


@dataclass(frozen=True)
class Port:
    """A port at which a process waits for others."""

    address: str
    number: int
    pid: int
    program: str

    @property
    def on_loopback(self) -> bool:
        return _is_loopback(self.address)


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
        """Whose a socket is takes long to find out: that is only asked for new ones beyond loopback."""
        known: set[str] = set()
        while not self._over.wait(_EVERY_S):
            beyond = {name for name, (address, _) in _sockets().items() if not _is_loopback(address)}
            if beyond - known:
                self.look()
            known |= beyond

    def _read(self) -> set[Port]:
        sockets = _sockets()
        return {port for process in self._processes() for port in ports_of(process, sockets)}

    def _processes(self) -> list[psutil.Process]:
        own = psutil.Process()
        found = {one.pid: one for one in [own, *own.children(recursive=True)]}
        for pid in psutil.pids() if self._mark else ():
            with contextlib.suppress(OSError, psutil.Error):
                if pid not in found and self._mark in Path(f"/proc/{pid}/environ").read_bytes():
                    found[pid] = psutil.Process(pid)
        return list(found.values())


def ports_of(process: psutil.Process, sockets: Mapping[str, tuple[str, int]] | None = None) -> Iterator[Port]:
    """What one process listens at."""
    sockets = _sockets() if sockets is None else sockets
    with contextlib.suppress(psutil.Error, OSError):
        for entry in os.scandir(f"/proc/{process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(entry.path)
                if name in sockets:
                    yield Port(*sockets[name], process.pid, " ".join(process.cmdline())[:200])


def words_of(processes: Iterable[psutil.Process]) -> list[str]:
    """The words of their commands; none of those that have ended meanwhile."""
    found: list[str] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.cmdline()
    return found


def _sockets() -> dict[str, tuple[str, int]]:
    """All sockets of the computer that wait for others: address and port, by the name that the system has."""
    found = {}
    for table, size in _TABLES.items():
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, remote, state, *_, inode = line.split()[:10]
            waits = state == _LISTENS if table.startswith("tcp") else set(remote) <= set("0:")
            if waits:
                address, _, port = local.partition(":")
                found[f"socket:[{inode}]"] = (_address(address, size), int(port, 16))
    return found


def _address(text: str, size: int) -> str:
    """An address as people write it; the system has it in words of four bytes, the last byte first."""
    turned = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, 2 * size, 8))
    return str(ipaddress.ip_address(turned))


def _is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
