"""Attacks against a real service: what held, and was anybody else slowed?

python benchmarks/service_attacks.py                      # all points, two minutes or so
python benchmarks/service_attacks.py --point 4 --seconds 120
python benchmarks/service_attacks.py --point 4 --only streams,headers

Each point has a service of its own (`prudent serve`, with a worker and users). Mallory, a member, Vic, a
viewer, and Kim, a commander, attack; Alice works. Points: 1 what listens, 2 fail closed, 3 roles are walls,
4 limits that hold (all attacks together, while Alice lists runs twenty times a second), 5 mail and secrets.
What is looked at is not what Prudent says of itself, but ports, processes, files and answers.

Attackers of point 4 give way to the service as its own work does: they need processors, and in earnest have
others. The service and its workers run as they always do.

Prints a line for each attack, and exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from attacks import access, leaks, limits, ports, walls
from attacks.target import Found, free_port, serving
from prudent.service.settings import Settings

USERS = {"mallory": "member", "vic": "viewer", "kim": "commander", "alice": "member"}


def listens(folder: Path, said: argparse.Namespace) -> Iterator[Found]:
    with serving(Settings(folder / "home", port=free_port(), warm=False), USERS) as service:
        yield from ports.play(service, folder)


def closed(folder: Path, said: argparse.Namespace) -> Iterator[Found]:
    yield from access.play(Settings(folder / "home", warm=False), folder)


def roles(folder: Path, said: argparse.Namespace) -> Iterator[Found]:
    settings = Settings(
        folder / "home",
        port=free_port(),
        warm=False,
        memory_mb=walls.MEMORY_MB,
        command_file_mb=walls.FILE_MB,
        command_processes=walls.PROCESSES,
    )
    with serving(settings, USERS, environment=walls.SECRETS) as service:
        yield from walls.play(service)


def held(folder: Path, said: argparse.Namespace) -> Iterator[Found]:
    words = said.only.split(",") if said.only else [""]
    chosen = [each for each in limits.ATTACKS if any(word in each.name for word in words)]
    settings = Settings(folder / "home", port=free_port(), memory_mb=said.memory_mb, concurrency=3)
    with serving(settings, {**USERS, **limits.USERS}) as service:
        yield from limits.play(service, chosen, said.seconds)


def secrets(folder: Path, said: argparse.Namespace) -> Iterator[Found]:
    home = folder / "home"
    home.mkdir(mode=0o755)
    (home / "old.txt").write_text("left by somebody")
    home.chmod(0o755)
    (home / "old.txt").chmod(0o644)
    with leaks.Letterbox() as box:
        settings = Settings(
            home,
            port=free_port(),
            warm=False,
            smtp_host="127.0.0.1",
            smtp_port=box.port,
            smtp_security="none",
            smtp_from="prudent@example.org",
        )
        with serving(settings, {**USERS, leaks.SENDER: "member"}) as service:
            yield from leaks.play(service, box)
        box.shutdown()


POINTS: dict[int, Callable[[Path, argparse.Namespace], Iterator[Found]]] = {
    1: listens,
    2: closed,
    3: roles,
    4: held,
    5: secrets,
}


def played(point: int, said: argparse.Namespace) -> Iterator[Found]:
    """What came of a point; one that cannot be played to its end is broken."""
    with tempfile.TemporaryDirectory(prefix="prudent-attacks-", dir="/tmp") as name:
        Path(name).chmod(0o755)  # so that another account gets as far as the home
        try:
            yield from POINTS[point](Path(name), said)
        except Exception as error:  # noqa: BLE001 - whatever stops an attack is told
            yield Found(point, "to the end", "all are played", f"{type(error).__name__}: {error}", False)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=30.0, help="how long those of point 4 go on")
    words.add_argument(
        "--point", type=int, choices=POINTS, action="append", help="only this; may be said again"
    )
    words.add_argument("--only", help="words in the names of attacks on point 4, separated by commas")
    words.add_argument("--memory-mb", type=float, default=2000.0, help="of a run of point 4")
    said = words.parse_args()
    found: list[Found] = []
    print("| point | attack | should hold | seen | |\n|---|---|---|---|---|", flush=True)
    for point in said.point or POINTS:
        for one in played(point, said):
            found.append(one)
            word = "held" if one.held else "BROKEN"
            seen = " ".join(one.seen.split()).replace("|", "/")
            print(f"| {one.point} | {one.attack} | {one.promise} | {seen} | {word} |", flush=True)
    broken = sum(not one.held for one in found)
    print(f"\n{len(found)} promises, {broken} broken (cores {os.cpu_count()}, load {os.getloadavg()[0]:.1f})")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
