"""Point 4, limits that hold: all attacks together, while somebody lists runs and a meter reads memory."""

from __future__ import annotations

import contextlib
import gzip
import json
import multiprocessing
import os
import re
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from attacks.target import Found, Service, ended, form_token
from prudent.service.settings import Settings

BAR_MS = 200.0
USERS = {"fay": "member", "dan": "member", "bob": "member", "lea": "viewer"}
"""Who attack beside Mallory and Vic: no limit of one user is met by another's attack."""
WEB_MB = 1000.0
"""What the web process may hold: it has no limit of its own, for everything that it holds is limited."""
CHECK_MB = 1024.0
_LATER_S = 120.0
"""How long a run of an attack may go on after the time is over."""


@dataclass(frozen=True)
class Target:
    """The service as those see it who attack it in processes of their own."""

    port: int
    settings: Settings
    tokens: dict[str, str]
    until_s: float

    @property
    def going(self) -> bool:
        return time.monotonic() < self.until_s

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.settings.home / "data"

    def client(self, user: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[user]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120, trust_env=False)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


Outcome = tuple[bool, str]
"""Whether the promise held, and what was seen."""


@dataclass(frozen=True)
class Attack:
    name: str
    promise: str
    play: Callable[[Target], Outcome]


ATTACKS: list[Attack] = []


def attack(name: str, promise: str) -> Callable[[Callable[[Target], Outcome]], Callable[[Target], Outcome]]:
    """Adds a function to those that are played; it returns when the time is over."""

    def add(play: Callable[[Target], Outcome]) -> Callable[[Target], Outcome]:
        ATTACKS.append(Attack(name, promise, play))
        return play

    return add


# Data that are larger than they look

_SENTENCE = "each run ends, with a sentence about the limit"


def trained(target: Target, path: str) -> Outcome:
    """Ask for training on a file until the time is over; every run is followed to its end."""
    document = {
        "domain": "classification",
        "dataset": {"path": path, "target": "label"},
        "methods": [{"algorithm": "binomial-logistic-regression"}],
        "budget": "1 trial",
    }
    seen: Counter[str] = Counter()
    with target.client("mallory") as client:
        while target.going or not seen:
            answer = client.post("/v1/runs/train", json=document)
            if answer.status_code == 429:
                time.sleep(1.0)
                continue
            run = _followed(client, answer.json()["url"], target.until_s + _LATER_S)
            seen[f"{run['status']}: {run['error']}"] += 1
    limited = [
        said for said in seen if re.search(r"at most|may have|that are read here|memory_mb|succeeded", said)
    ]
    said = "; ".join(f"{count} x {said}" for said, count in seen.items())
    return bool(seen) and len(limited) == len(seen), said or "none was taken"


def _followed(client: httpx.Client, place: str, until_s: float) -> dict[str, Any]:
    while True:
        run: dict[str, Any] = client.get(place).json()
        if run["status"] not in ("queued", "running"):
            return run
        if time.monotonic() > until_s:
            client.post(f"{place}/cancel")
            return ended(client, place)
        time.sleep(0.3)


@attack("libsvm of 24 bytes, index 3,000,000", _SENTENCE)
def wide_libsvm(target: Target) -> Outcome:
    (target.data / "wide.svm").write_text("1 1:1\n0 3000000:1\n1 2:1\n")
    return trained(target, "wide.svm")


@attack("libsvm of half a MB, 80 GB as a table", _SENTENCE)
def tall_libsvm(target: Target) -> Outcome:
    (target.data / "tall.svm").write_text("1 100000:1\n" + "0 1:1\n1 2:1\n" * 100_000)
    return trained(target, "tall.svm")


@attack("gzip of 100 kB, 50 MB unpacked", _SENTENCE)
def packed(target: Target) -> Outcome:
    block = gzip.compress(b"1,yes\n2,no\n" * 500_000, 9)
    (target.data / "bomb.csv.gz").write_bytes(gzip.compress(b"x,label\n") + block * 9)
    return trained(target, "bomb.csv.gz")


@attack("gzip of 10 MB, 4 GB unpacked", _SENTENCE)
def packed_larger(target: Target) -> Outcome:
    block = gzip.compress(b"1,yes\n2,no\n" * 1_000_000, 9)
    (target.data / "larger.csv.gz").write_bytes(gzip.compress(b"x,label\n") + block * 400)
    return trained(target, "larger.csv.gz")


# Requests that are many, large or slow


@attack("900 event streams of one viewer", "429 beyond 50 at a time")
def streams(target: Target) -> Outcome:
    with target.client("alice") as client:
        document = {"domain": "misc-functions", "budget": "1 h"}
        run_id = client.post("/v1/runs/train", json=document).json()["id"]
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
    return seen["429"] > 0 and set(seen) <= {"200", "429"}, f"{dict(seen)}"


@attack("300 listings at a time of one viewer", "answered in turn, 429 beyond the line")
def listings(target: Target) -> Outcome:
    head = (
        "GET /v1/runs?limit=500 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Authorization: Bearer {target.tokens['lea']}\r\n\r\n"
    )
    seen: Counter[str] = Counter()
    while target.going:
        with contextlib.ExitStack() as lines:
            opened = [lines.enter_context(target.connect()) for _ in range(300)]
            for line in opened:
                line.sendall(head.encode())
            for line in opened:
                seen[line.recv(12).decode()[-3:]] += 1
    return seen["200"] > 0 and set(seen) <= {"200", "429"}, f"{dict(seen)}"


@attack("seven YAML forms at a time", "4xx, and nobody waits for them")
def forms(target: Target) -> Outcome:
    seen: Counter[int] = Counter()
    rows = "".join(f"  - {{a: {n}, b: [x, y, z]}}\n" for n in range(12_000))

    def send() -> None:
        with httpx.Client(base_url=target.url, timeout=120, trust_env=False) as client:
            client.post("/sign-in", data={"token": target.tokens["fay"]})
            token = form_token(client.get("/submit/tune?as=json").text)
            form = {"csrf": token, "document": f"rows:\n{rows}"}
            while target.going:
                with contextlib.suppress(httpx.HTTPError):
                    seen[client.post("/submit/tune", data=form).status_code] += 1

    _together([send] * 7, target)
    return set(seen) <= {422, 429, 413, 400} and bool(seen), f"{dict(seen)}"


@attack("thirty documents of 7.6 MB at a time", "429 beyond what may wait")
def documents(target: Target) -> Outcome:
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
        with target.client("dan") as client:
            while target.going:
                with contextlib.suppress(httpx.HTTPError):
                    answer = client.post("/v1/runs/tune", content=body)
                    seen[answer.status_code] += 1
                    if answer.status_code == 429:
                        time.sleep(float(answer.headers["retry-after"]) / 4)

    _together([send] * 30, target)
    held = (seen[429] > 0 or seen.total() < 30) and set(seen) <= {202, 413, 422, 429}
    return held, f"{dict(seen)}, {len(body) / 1e6:.1f} MB each"


@attack("JSON that takes fifty times its size", "4xx")
def bombs(target: Target) -> Outcome:
    body = b"[" + b"[]," * 2_500_000 + b"[]]"
    seen: Counter[int] = Counter()
    with target.client("bob") as client:
        while target.going:
            with contextlib.suppress(httpx.HTTPError):
                seen[client.post("/v1/runs/tune", content=body).status_code] += 1
    return set(seen) <= {400, 413, 422, 429}, f"{dict(seen)}"


@attack("500 half-sent headers", "all closed at the deadline")
def headers(target: Target) -> Outcome:
    """Each connection sends half of its headers, and then a byte now and then."""
    opened = [(target.connect(), time.monotonic()) for _ in range(500)]
    lasted_s: list[float] = []
    for line, _ in opened:
        line.sendall(b"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        line.setblocking(False)
    most_s = target.settings.headers_s
    until_s = max(target.until_s, time.monotonic() + 6 * most_s)
    while opened and time.monotonic() < until_s:
        time.sleep(0.2)
        for one in [one for one in opened if _is_closed(one[0])]:
            lasted_s.append(time.monotonic() - one[1])
            one[0].close()
            opened.remove(one)
    for line, _ in opened:
        line.close()
    longest_s = max(lasted_s, default=0.0)
    seen = f"{len(lasted_s)} closed, the last after {longest_s:.1f} s of {most_s:g}; {len(opened)} open"
    return not opened, seen


def _is_closed(line: socket.socket) -> bool:
    try:
        line.send(b"x")
        return line.recv(4096) is not None
    except BlockingIOError:
        return False
    except OSError:
        return True


def _together(work: list[Callable[[], None]], target: Target) -> None:
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(target.until_s - time.monotonic(), 0) + 120)


# Those who measure


@dataclass
class Meter:
    """Reads what every process below the service holds; knows nothing of Prudent's own limits."""

    pid: int
    most_mb: dict[str, float] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(0.5):
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
    """How long Alice waits for the list of runs, twenty times a second, until the time is over."""
    took_s = []
    with target.client("alice") as client:
        while target.going:
            began_s = time.perf_counter()
            assert client.get("/v1/runs").status_code == 200
            took_s.append(time.perf_counter() - began_s)
            time.sleep(max(0.05 - took_s[-1], 0))
    return took_s


def crowd(attacks: list[Attack], target: Target, told: Any) -> None:
    """All attackers, each in a process; together they get a part of what the service gets of this computer,
    for they have computers of their own."""
    os.setsid()
    Path("/proc/self/autogroup").write_text("19")
    os.nice(19)
    enemies = [multiprocessing.Process(target=played, args=(each, target, told)) for each in attacks]
    for enemy in enemies:
        enemy.start()
    for enemy in enemies:
        enemy.join()


def played(attack: Attack, target: Target, told: Any) -> None:
    try:
        told.put((attack.name, attack.play(target)))
    except Exception as error:  # noqa: BLE001 - an attack that breaks is told, too
        told.put((attack.name, (False, f"{type(error).__name__}: {error}")))


def play(service: Service, attacks: list[Attack], seconds: float) -> Iterator[Found]:
    """All attacks together, each in a process of its own; Alice lists runs before and meanwhile."""
    quiet_until_s = time.monotonic() + 5
    before = Target(service.port, service.settings, service.tokens, quiet_until_s)
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    quiet_s = listing(before)
    target = Target(service.port, service.settings, service.tokens, time.monotonic() + seconds)
    meter = Meter(service.process.pid)
    threading.Thread(target=meter.run, daemon=True).start()
    told: Any = multiprocessing.SimpleQueue()
    enemies = multiprocessing.Process(target=crowd, args=(attacks, target, told))
    enemies.start()
    took_s = listing(target)
    outcomes: dict[str, Outcome] = dict(told.get() for _ in attacks)
    meter.over.set()
    print(f"load average at the end: {os.getloadavg()[0]:.1f}")
    for each in attacks:
        held, said = outcomes[each.name]
        yield Found(4, each.name, each.promise, said[:400], held)
    yield from _measured(service, quiet_s, took_s, meter)


def _measured(service: Service, quiet_s: list[float], took_s: list[float], meter: Meter) -> Iterator[Found]:
    seen = f"{_spread(took_s)}; without attacks {_spread(quiet_s)}"
    held = percentile(took_s, 0.99) * 1e3 < BAR_MS
    yield Found(4, "all of these together: GET /v1/runs", f"99 % below {BAR_MS:g} ms", seen, held)
    run_mb = service.settings.run_memory_mb
    limits = {"run": run_mb, "trial": run_mb, "check": CHECK_MB, "web": WEB_MB, "worker": WEB_MB}
    for name, held_mb in sorted(meter.most_mb.items()):
        limit_mb = limits.get(name, run_mb) * 1.048576  # limits are in MiB
        yield Found(
            4,
            f"memory of a process ({name})",
            f"at most {limit_mb:.0f} MB",
            f"{held_mb:.0f} MB",
            held_mb <= limit_mb,
        )
    with service.client("alice") as client:
        status = client.get("/ready").status_code
    yield Found(4, "the service afterwards", "ready", str(status), status == 200)


def _spread(values_s: list[float]) -> str:
    return (
        f"{len(values_s)} times, median {statistics.median(values_s) * 1e3:.0f} ms, 99 % "
        f"{percentile(values_s, 0.99) * 1e3:.0f} ms, worst {max(values_s) * 1e3:.0f} ms"
    )


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]
