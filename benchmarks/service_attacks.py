"""Attacks against a real service, played all at once: what held, and was anybody else slowed?

python benchmarks/service_attacks.py                      # half a minute
python benchmarks/service_attacks.py --seconds 120
python benchmarks/service_attacks.py --point 4 --only streams,headers

A service is started with its workers, and with users: Mallory, a member, and Vic, a viewer, attack; Alice
works. Every attack says what it got for an answer, and whether that is what was promised. Meanwhile Alice
lists runs twenty times a second, and a meter of its own reads from /proc what every process of the service
holds. Exits with 1 if something did not hold, if Alice waited longer than 200 ms (99th percentile), or if a
process grew beyond its limit.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import multiprocessing
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from prudent.service.settings import Settings, environment_of
from prudent.service.store import runs
from prudent.service.store.store import Store

BAR_MS = 200.0
WEB_MB = 1000.0
"""What the web process may hold: it has no limit of its own, for everything that it holds is limited."""


@dataclass(frozen=True)
class Target:
    """The service as those see it who attack it."""

    port: int
    home: Path
    tokens: dict[str, str]
    until_s: float

    @property
    def going(self) -> bool:
        return time.monotonic() < self.until_s

    def client(self, user: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[user]}"}
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=120, trust_env=False
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


@dataclass
class Outcome:
    """What an attack came to."""

    held: bool
    said: str


@dataclass(frozen=True)
class Attack:
    """One attack; `play` returns when the time is over, with what was answered."""

    point: int
    name: str
    play: Callable[[Target], Outcome]


ATTACKS: list[Attack] = []


def attack(point: int, name: str) -> Callable[[Callable[[Target], Outcome]], Callable[[Target], Outcome]]:
    """Adds a function to those that are played. Points are those of SECURITY.md's list of promises."""

    def add(play: Callable[[Target], Outcome]) -> Callable[[Target], Outcome]:
        ATTACKS.append(Attack(point, name, play))
        return play

    return add


# Point 4: limits that hold


def trained(target: Target, path: str, domain: str = "classification") -> Outcome:
    """Ask for training on a file until the time is over; every run must end with a sentence about limits."""
    document = {"domain": domain, "dataset": {"path": path, "target": "label"}, "budget": "1 trial"}
    ended: Counter[str] = Counter()
    with target.client("mallory") as client:
        while target.going:
            answer = client.post("/v1/runs/train", json=document)
            if answer.status_code == 429:
                time.sleep(1.0)
                continue
            place = answer.json()["url"]
            while (run := client.get(place).json())["status"] in ("queued", "running") and target.going:
                time.sleep(0.3)
            if run["status"] not in ("queued", "running"):
                ended[f"{run['status']}: {run['error']}"] += 1
    limited = [
        said for said in ended if re.search(r"at most|may have|that are read here|memory_mb|succeeded", said)
    ]
    return Outcome(
        bool(ended) and len(limited) == len(ended),
        "; ".join(f"{count} x {said}" for said, count in ended.items()) or "none ended in time",
    )


@attack(4, "libsvm")
def wide_libsvm(target: Target) -> Outcome:
    """24 bytes with the index 3,000,000."""
    (target.home / "data" / "wide.svm").write_text("1 1:1\n0 3000000:1\n1 2:1\n")
    return trained(target, "wide.svm")


@attack(4, "libsvm-rows")
def tall_libsvm(target: Target) -> Outcome:
    """Half a megabyte that is 80 GB as a table."""
    (target.home / "data" / "tall.svm").write_text("1 100000:1\n" + "0 1:1\n1 2:1\n" * 100_000)
    return trained(target, "tall.svm")


@attack(4, "gzip")
def packed(target: Target) -> Outcome:
    """A hundred kilobytes that unpack to fifty megabytes of rows."""
    rows = b"x,label\n" + b"1,yes\n2,no\n" * 4_500_000
    (target.home / "data" / "bomb.csv.gz").write_bytes(gzip.compress(rows, 9))
    return trained(target, "bomb.csv.gz")


@attack(4, "gzip-larger")
def packed_larger(target: Target) -> Outcome:
    """Ten megabytes that unpack to 4 GB."""
    block = gzip.compress(b"1,yes\n2,no\n" * 1_000_000, 9)
    (target.home / "data" / "larger.csv.gz").write_bytes(gzip.compress(b"x,label\n") + block * 400)
    return trained(target, "larger.csv.gz")


@attack(4, "streams")
def streams(target: Target) -> Outcome:
    """900 event streams of one viewer."""
    with target.client("alice") as client:
        run_id = client.post("/v1/runs/train", json={"domain": "misc-functions", "budget": "1 h"}).json()[
            "id"
        ]
    head = (
        f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {target.tokens['vic']}\r\n\r\n"
    )
    seen: Counter[str] = Counter()
    with contextlib.ExitStack() as lines:
        while target.going:
            for _ in range(900):
                line = lines.enter_context(target.connect())
                line.sendall(head.encode())
                seen[line.recv(12).decode()[-3:]] += 1
            time.sleep(2.0)
            lines.close()
    most = Settings(target.home).followers_per_user
    return Outcome(
        seen["429"] > 0 and set(seen) <= {"200", "429"}, f"{dict(seen)}; {most} at a time are served"
    )


@attack(4, "forms")
def forms(target: Target) -> Outcome:
    """Seven YAML forms at a time, each as large as a form may be."""
    seen: Counter[int] = Counter()

    def send() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{target.port}", timeout=120, trust_env=False) as client:
            client.post("/sign-in", data={"token": target.tokens["mallory"]})
            page = client.get("/submit/tune?as=json").text
            token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
            rows = "".join(f"  - {{a: {n}, b: [x, y, z]}}\n" for n in range(12_000))
            form = {"csrf": token, "document": f"rows:\n{rows}"}
            while target.going:
                with contextlib.suppress(httpx.HTTPError):
                    seen[client.post("/submit/tune", data=form).status_code] += 1

    together([send] * 7, target)
    return Outcome(set(seen) <= {422, 429, 413, 400} and bool(seen), f"{dict(seen)}")


@attack(4, "documents")
def documents(target: Target) -> Outcome:
    """Thirty documents of 7.6 MB at a time."""
    table = "vm,n,time_s,price_usd_per_h\n" + "".join(f"a,{n},{n + 5},1\n" for n in range(415_000))
    document = {
        "table": {"csv": table},
        "parameters": ["vm", "n"],
        "goal": "minimise cost_usd",
        "budget": "$1",
    }
    body = json.dumps(document).encode()
    seen: Counter[int] = Counter()

    def send() -> None:
        with target.client("mallory") as client:
            while target.going:
                with contextlib.suppress(httpx.HTTPError):
                    answer = client.post("/v1/runs/tune", content=body)
                    seen[answer.status_code] += 1
                    if answer.status_code == 429:
                        time.sleep(float(answer.headers["retry-after"]) / 4)

    together([send] * 30, target)
    return Outcome(
        seen[429] > 0 and set(seen) <= {202, 413, 422, 429}, f"{dict(seen)}, {len(body) / 1e6:.1f} MB each"
    )


@attack(4, "bombs")
def bombs(target: Target) -> Outcome:
    """JSON whose values take fifty times its size in memory."""
    body = b"[" + b"[]," * 2_500_000 + b"[]]"
    seen: Counter[int] = Counter()
    with target.client("mallory") as client:
        while target.going:
            with contextlib.suppress(httpx.HTTPError):
                seen[client.post("/v1/runs/tune", content=body).status_code] += 1
    return Outcome(set(seen) <= {400, 413, 422, 429}, f"{dict(seen)}")


@attack(4, "headers")
def headers(target: Target) -> Outcome:
    """500 connections of which each sends half of its headers, and then a byte now and then."""
    opened = [(target.connect(), time.monotonic()) for _ in range(500)]
    lasted_s: list[float] = []
    for line, _ in opened:
        line.sendall(b"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        line.setblocking(False)
    most_s = Settings(target.home).headers_s
    while opened and target.going:
        time.sleep(0.2)
        left = []
        for line, began_s in opened:
            try:
                line.send(b"x")
                closed = line.recv(4096) is not None
            except BlockingIOError:
                closed = False
            except OSError:
                closed = True
            if closed:
                lasted_s.append(time.monotonic() - began_s)
                line.close()
            else:
                left.append((line, began_s))
        opened = left
    for line, _ in opened:
        line.close()
    longest_s = max(lasted_s, default=0.0)
    return Outcome(
        not opened,
        f"{len(lasted_s)} closed, the last after {longest_s:.1f} s of {most_s:g}; {len(opened)} still open",
    )


# Points 1, 2, 3 and 5 have their attacks here.


def together(work: list[Callable[[], None]], target: Target) -> None:
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(target.until_s - time.monotonic(), 0) + 120)


# The service, and those who measure


@contextlib.contextmanager
def service(settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "prudent.cli.main", "serve"]
    environment = {**os.environ, **environment_of(settings)}
    with (settings.home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(90)
        process.kill()
        process.wait()


def wait_until_ready(port: int) -> None:
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
            answer = httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False)
            if answer.json()["workers"]:
                return
        time.sleep(0.2)
    raise SystemExit("The service is not ready.")


def add_user(home: Path, name: str, role: str) -> str:
    command = [sys.executable, "-m", "prudent.cli.main", "users", "add", name, "--role", role]
    said = subprocess.run(
        [*command, "--home", str(home), "--json"], check=True, capture_output=True, text=True
    )
    return str(json.loads(said.stdout)["token"])


@dataclass
class Meter:
    """Reads what every process below the service holds; knows nothing of Prudent's own limits."""

    pid: int
    most_mb: dict[str, float] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(0.25):
            with contextlib.suppress(psutil.Error):
                for process in [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        self._note(process)

    def _note(self, process: psutil.Process) -> None:
        words = " ".join(process.cmdline())
        names = {
            "work.child": "run",
            "engines.local.server": "trial",
            "web.checking": "check",
            "worker": "worker",
        }
        name = next(
            (name for word, name in names.items() if word in words),
            "web" if process.pid == self.pid else "other",
        )
        held = process.memory_info()
        private_mb = (held.rss - held.shared) / 1e6
        self.most_mb[name] = max(self.most_mb.get(name, 0.0), private_mb)


def listing(target: Target) -> list[float]:
    """How long Alice waits for the list of runs, counted from when she asked."""
    took_s = []
    with target.client("alice") as client:
        while target.going:
            began_s = time.perf_counter()
            assert client.get("/v1/runs").status_code == 200
            took_s.append(time.perf_counter() - began_s)
            time.sleep(max(0.05 - took_s[-1], 0))
    return took_s


def played(attack: Attack, target: Target, told: Any) -> None:
    os.nice(10)  # attackers have computers of their own; here they shall not take the service's
    try:
        told.put((attack.name, attack.play(target)))
    except Exception as error:  # noqa: BLE001 - an attack that breaks is told, too
        told.put((attack.name, Outcome(False, f"{type(error).__name__}: {error}")))


def play(settings: Settings, attacks: list[Attack], seconds: float) -> bool:
    tokens = {
        name: add_user(settings.home, name, role)
        for name, role in (("mallory", "member"), ("vic", "viewer"), ("alice", "member"))
    }
    with service(settings) as process:
        wait_until_ready(settings.port)
        quiet = listing(Target(settings.port, settings.home, tokens, time.monotonic() + 3))
        target = Target(settings.port, settings.home, tokens, time.monotonic() + seconds)
        meter = Meter(process.pid)
        threading.Thread(target=meter.run, daemon=True).start()
        told: Any = multiprocessing.SimpleQueue()
        enemies = [
            multiprocessing.Process(target=played, args=(each, target, told), daemon=True) for each in attacks
        ]
        for enemy in enemies:
            enemy.start()
        took_s = listing(target)
        outcomes = dict(told.get() for _ in enemies)
        meter.over.set()
        with target.client("alice") as client:
            well = client.get("/ready").status_code == 200
    return report(settings, attacks, outcomes, meter, quiet, took_s, well)


def report(
    settings: Settings,
    attacks: list[Attack],
    outcomes: dict[str, Outcome],
    meter: Meter,
    quiet: list[float],
    took_s: list[float],
    well: bool,
) -> bool:
    print(f"cores {os.cpu_count()}, load average {os.getloadavg()[0]:.1f}")
    for each in attacks:
        found = outcomes[each.name]
        held = "held" if found.held else "DID NOT HOLD"
        print(f"point {each.point}, {each.name}: {held} ({found.said[:600]})")
    at_99_ms = percentile(took_s, 0.99) * 1e3
    for name, values in (("before", quiet), ("during all attacks", took_s)):
        print(
            f"GET /v1/runs {name}: {len(values)} times, median {statistics.median(values) * 1e3:.0f} ms, "
            f"99 % {percentile(values, 0.99) * 1e3:.0f} ms, worst {max(values) * 1e3:.0f} ms"
        )
    limits = {
        "run": settings.run_memory_mb,
        "trial": settings.run_memory_mb,
        "check": 1024.0,
        "web": WEB_MB,
        "worker": WEB_MB,
    }
    grown = []
    for name, held_mb in sorted(meter.most_mb.items()):
        limit_mb = limits.get(name, settings.run_memory_mb) * 1.048576  # limits are in MiB
        print(f"largest process of kind {name}: {held_mb:.0f} MB of {limit_mb:.0f}")
        grown += [name] if held_mb > limit_mb else []
    with Store(settings.database) as store:
        print(f"runs kept: {store.read(runs.counts)}; ready at the end: {'yes' if well else 'NO'}")
    return all(found.held for found in outcomes.values()) and at_99_ms < BAR_MS and not grown and well


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=30.0)
    words.add_argument("--point", type=int, help="only attacks on this point")
    words.add_argument("--only", help="names of attacks, separated by commas")
    words.add_argument("--memory-mb", type=float, help="of a run; a share of the machine otherwise")
    said = words.parse_args()
    names = said.only.split(",") if said.only else [each.name for each in ATTACKS]
    attacks = [each for each in ATTACKS if each.name in names and said.point in (None, each.point)]
    with tempfile.TemporaryDirectory(prefix="prudent-attacks-") as name:
        settings = Settings(Path(name), port=free_port(), memory_mb=said.memory_mb)
        settings.create()
        if not play(settings, attacks, said.seconds):
            raise SystemExit("Something did not hold.")


if __name__ == "__main__":
    main()
