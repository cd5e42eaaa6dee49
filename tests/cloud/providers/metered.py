"""A meter beside the machines of this computer: it sees their folders come and go, and knows no book.

    with metered(home, file):
        ...
    paid_usd(file)

The meter is a process of its own, so that nothing that befalls the others befalls it:

    python metered.py HOME FILE
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LOOK_S = 0.01


@contextlib.contextmanager
def metered(home: Path, file: Path) -> Iterator[None]:
    """Note every machine of a home from its launch until it is gone, or until this ends."""
    words = [sys.executable, "-S", __file__, str(home), str(file)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as meter:
        assert meter.stdout is not None
        assert meter.stdin is not None
        meter.stdout.readline()  # it looks from here on
        try:
            yield
        finally:
            meter.stdin.close()
    assert meter.returncode == 0


def paid_usd(file: Path) -> float:
    """The bill, as a cloud would write it."""
    machines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return sum(
        max(one["until_s"] - one["from_s"], one["minimum_s"]) * one["usd_per_h"] / 3600 for one in machines
    )


def watch(machines: Path, file: Path) -> None:
    """Look until nobody wants to know any more (the input ends)."""
    with contextlib.suppress(OSError):
        os.nice(-10)  # on a busy computer a meter that waits for its turn tells less
    print("watching", flush=True)
    there: dict[str, dict[str, float]] = {}
    last = False
    while not last:
        last = bool(select.select([sys.stdin], [], [], _LOOK_S)[0])
        now_s = time.time()
        names = {name for name in _listed(machines) if not (name.startswith(".") or name.endswith(".gone"))}
        for name in names - there.keys():
            with contextlib.suppress(OSError):  # gone again already
                there[name] = _launched(machines / name)
        gone = there.keys() if last else there.keys() - names
        with file.open("a") as notes:
            for name in sorted(gone):
                notes.write(json.dumps({"id": name, **there[name], "until_s": now_s}) + "\n")
        there = {name: facts for name, facts in there.items() if name not in gone}


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _launched(machine: Path) -> dict[str, float]:
    said = json.loads((machine / "machine.json").read_text())
    price = said["price"]
    return {
        "usd_per_h": price["usd_per_h"],
        "minimum_s": price.get("minimum_s", 0.0),
        "from_s": said["launched_s"],
    }


if __name__ == "__main__":
    watch(Path(sys.argv[1]) / "machines", Path(sys.argv[2]))
