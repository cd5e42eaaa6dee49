"""The dead-man's switch: what a machine runs so that it ends without us.

The run's own clean-up needs the run, and the reaper needs a computer that is on. The switch needs
neither: a POSIX shell script on the machine itself, which ends the cluster's processes there, or
the machine, when nobody has renewed the lease.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from functools import cache
from importlib import resources

CLUSTER, MACHINE = "PRUDENT_CLUSTER", "PRUDENT_MACHINE"
"""Everything that a command starts on a machine carries these in its environment."""

CLEAN, POWER_OFF = "clean", "poweroff"


@cache
def script() -> str:
    """The switch, to be put on a machine."""
    return resources.files("prudent.cloud.leases").joinpath("switch.sh").read_text(encoding="utf-8")


def cluster_environment(
    cluster: str, machine: str, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables for a command's environment; inside another cluster both are carried.

    >>> cluster_environment("c1", "c1-0", {"PRUDENT_CLUSTER": "c0"})
    {'PRUDENT_CLUSTER': 'c0:c1', 'PRUDENT_MACHINE': 'c1-0'}
    """
    outer = environment or {}
    return {
        name: f"{outer[name]}:{value}" if outer.get(name) else value
        for name, value in ((CLUSTER, cluster), (MACHINE, machine))
    }


def watch_command(path: str, folder: str, word: str, ending: str = CLEAN, *also: str) -> str:
    """A shell command that starts the switch, at `path` on the machine, and does not wait for it.

    `word` is `PRUDENT_MACHINE=<id>` (or `PRUDENT_CLUSTER=<id>`); `folder` holds `lease_end`, and is
    removed at the end with everything in it, then each of `also` (a lock, say).
    """
    name, _, value = word.partition("=")
    carrying = f"{name}={shlex.quote(value)}"
    words = shlex.join(["sh", path, "watch", folder, word, ending, *also])
    quiet = "</dev/null >/dev/null 2>&1 &"
    return (
        f"if command -v setsid >/dev/null; then {carrying} setsid {words} {quiet} "
        f"else {carrying} nohup {words} {quiet} fi"
    )


def renew_command(folder: str, left_s: float) -> str:
    """A shell command that makes the lease end in `left_s` seconds by the machine's own clock.

    The clocks of two machines differ, so the machine is told how long the lease still lasts, not until when.

    >>> renew_command("/m/1", 60)
    'echo $(($(date +%s) + 60)) > /m/1/lease_end.new && mv /m/1/lease_end.new /m/1/lease_end'
    """
    end = shlex.quote(f"{folder}/lease_end")
    fresh = shlex.quote(f"{folder}/lease_end.new")
    return f"echo $(($(date +%s) + {max(math.ceil(left_s), 0)})) > {fresh} && mv {fresh} {end}"
