"""Who holds a lease: one process, which cannot be mistaken for another, on one computer."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prudent.cloud.procfs import ProcessIdentity


@dataclass(frozen=True)
class Holder:
    """A process and where it runs.

    `realm` is the computer and, on Linux, the namespace that numbers its processes: two containers
    that share a folder of leases must not take each other's processes for dead.
    """

    pid: int
    started: str
    realm: str

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        identity = ProcessIdentity.of(os.getpid())
        return cls(os.getpid(), identity.started if identity else "", _realm())

    @property
    def alive(self) -> bool | None:
        """Whether it lives; None for one elsewhere, of which nobody here can tell."""
        if self.realm != _realm() or not self.started:
            return None
        return ProcessIdentity(self.pid, self.started).alive

    @property
    def gone(self) -> bool:
        """Whether it surely lives no more; where nobody can tell, the end of the lease decides."""
        return self.alive is False

    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self.started, "realm": self.realm}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Holder:
        return cls(int(values["pid"]), str(values["started"]), str(values["realm"]))


def _realm() -> str:
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}".strip()
