"""One machine on this computer: a folder, a keeper process that ends it, and the limits it lives in."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.cloud.leases import dead_mans_switch
from prudent.cloud.procfs import ProcessIdentity
from prudent.cloud.providers.local.limits import Limits, group_names, limit
from prudent.cloud.providers.provider import PENDING, RUNNING, Instance, Order
from prudent.core.errors import RunFailed
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
    def place(cls, machines: Path, order: Order, index: int, price: Price, vcpus: int) -> LocalMachine:
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
            self._write("limits.json", limit(names, vcpus, memory_gb, used_cores).to_dict())

    @property
    def vcpus(self) -> int:
        return int(self._read("machine.json")["vcpus"])

    @property
    def limits(self) -> Limits:
        return Limits.from_dict(self._read("limits.json"))

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
        fresh = self.folder / "lease_end.new"
        try:
            fresh.write_text(f"{math.ceil(lease_end_s)}\n")
            os.replace(fresh, self.folder / "lease_end")
        except FileNotFoundError as error:
            raise RunFailed(f"The machine {self.id} is gone; launch another one.") from error

    def end(self) -> None:
        """What its keeper would do when the lease is over, now; harmless when it is gone already."""
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
        """Its keeper: no child of ours, so that it lives on and nobody has to count it when it ends."""
        path, word = str(self.folder / "switch.sh"), f"{dead_mans_switch.MACHINE}={self.id}"
        starting = f'{dead_mans_switch.watch_command(path, str(self.folder), word)}; echo "$!"'
        done = subprocess.run(
            ["/bin/sh", "-c", starting], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
        pid = int(done.stdout)
        return ProcessIdentity.of(pid) or ProcessIdentity(pid, "")

    def _write(self, name: str, said: dict[str, Any]) -> None:
        fresh = self.folder / f"{name}.new"
        fresh.write_text(json.dumps(said), encoding="utf-8")
        os.replace(fresh, self.folder / name)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunFailed(f"The machine {self.id} is gone or damaged; launch another one.") from error
        return said
