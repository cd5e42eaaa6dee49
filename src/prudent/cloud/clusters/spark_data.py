"""Files where the machines of a Spark cluster can read them.

A driver and its executors name a file by one path. Where the machines see the file at the path that it has
here, nothing is done. Elsewhere its bytes are streamed to each machine, and both sides get a link of the same
name that leads to their own: nothing is copied on this computer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

from prudent.cloud.clusters.spark_host import SparkHost
from prudent.core.errors import RunFailed

_ROOT = Path("/tmp")  # the one folder that every machine has, under the same name
_ASKED = 200


def sees(host: SparkHost, parts: Sequence[Path]) -> bool:
    """Whether a machine sees files at the paths that they have here, with the same sizes."""
    step = max(len(parts) // _ASKED, 1)
    asked = list(parts)[::step]
    words = [
        f"[ -r {path} ] && [ $(wc -c < {path}) -eq {part.stat().st_size} ]"
        for part in asked
        for path in [shlex.quote(str(part.absolute()))]
    ]
    return host.channel.run(" && ".join(words), timeout_s=60.0)[0] == 0


def shares(host: SparkHost, folder: Path) -> bool:
    """Whether a machine writes to the same folder as we do."""
    marker = folder / f".prudent-{secrets.token_hex(8)}"
    marker.touch()
    try:
        return host.channel.run(f"[ -w {shlex.quote(str(marker.absolute()))} ]", timeout_s=60.0)[0] == 0
    finally:
        marker.unlink()


class Carried:
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
