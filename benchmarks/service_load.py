"""How many submissions a service takes per second, how fast its status page is, and whether its memory grows.

python benchmarks/service_load.py                    # a minute, on SQLite
python benchmarks/service_load.py --seconds 600      # memory over ten minutes
python benchmarks/service_load.py --postgres         # on a PostgreSQL server of its own
python benchmarks/service_load.py --database-url postgresql://user@host/name

The pages that people look at are timed by service_pages.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from prudent.service.settings import Settings
from prudent.service.store import charges, runs
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.store.tables import charges as charges_table
from prudent.service.store.tables import runs as table

BODY = json.dumps({"domain": "misc-functions", "budget": "2 trials"}).encode()


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: bytes = b""
) -> tuple[int, bytes]:
    """One request on a connection that stays open: a client that costs little beside what it measures."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    header = await reader.readuntil(b"\r\n\r\n")
    status = int(header[9:12])
    length = next(
        int(line.split(b":")[1])
        for line in header.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    return status, await reader.readexactly(length)


async def load(port: int, clients: int, seconds: float, rate_per_s: float) -> tuple[list[float], float, int]:
    """Submissions of many clients at a steady rate (as fast as they can with 0); latencies, seconds, errors.

    With a rate, latency is counted from when a request was due, so that a server that stalls cannot hide it.
    """
    took_s: list[float] = []
    errors = 0
    began_s = time.perf_counter()
    until_s = began_s + seconds
    due = iter(range(10**12))

    async def client() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (now_s := time.perf_counter()) < until_s:
            if rate_per_s:
                now_s = began_s + next(due) / rate_per_s
                if now_s >= until_s:
                    break
                await asyncio.sleep(max(now_s - time.perf_counter(), 0))
            status, _ = await ask(reader, writer, "POST", "/v1/runs/train", BODY)
            took_s.append(time.perf_counter() - now_s)
            errors += status != 202
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return took_s, time.perf_counter() - began_s, errors


async def pages(port: int, count: int) -> list[float]:
    """How long the list of runs takes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took_s = []
    for _ in range(count):
        began_s = time.perf_counter()
        status, _ = await ask(reader, writer, "GET", "/v1/runs?limit=50")
        assert status == 200
        took_s.append(time.perf_counter() - began_s)
    writer.close()
    return took_s


def fill(store: Store, count: int) -> None:
    """Store so many ended runs of twenty users over a month, each with what it cost."""
    now_s, document = time.time(), json.loads(BODY)
    for start in range(0, count, 5000):
        rows, paid = [], []
        for number in range(start, min(start + 5000, count)):
            kind = ("train", "tune", "schedule")[number % 3]
            made_s = now_s - (count - number) * 30 * 86400 / count
            new = NewRun(kind, f"user{number % 20}", document, "rest", "x", created_s=made_s)
            status = "failed" if number % 12 == 5 else "cancelled" if number % 50 == 7 else "succeeded"
            rows.append(
                {
                    "id": new.id, "kind": kind, "status": status, "user": new.user, "title": f"old {number}",
                    "document": BODY.decode(), "front": "rest", "body_hash": "x", "priority": 0,
                    "created_s": made_s, "started_s": made_s + 1, "ended_s": made_s + 60, "progress": 1.0,
                    "waiting": "", "spent_usd": 0.02, "attempts": 1, "fence": 1, "cancel": False,
                    "error": "The data have no rows; give some." if status == "failed" else "", "folder": "",
                }
            )  # fmt: skip
            paid.append(
                {
                    "run": new.id, "label": "trial 1", "user": new.user, "kind": kind, "usd": 0.02,
                    "day": charges.today(made_s), "price_date": "", "at_s": made_s,
                }
            )  # fmt: skip
        store.write(_insert, rows, paid)


def _insert(connection: Connection, rows: list[dict[str, Any]], paid: list[dict[str, Any]]) -> None:
    connection.execute(table.insert(), rows)
    connection.execute(charges_table.insert(), paid)


@contextlib.contextmanager
def database(url: str | None, postgres: bool) -> Iterator[str | None]:
    """The database to measure: the one that is named, a PostgreSQL server of our own, or SQLite (None)."""
    if not postgres:
        yield url
        return
    from service_chaos import Postgres

    with tempfile.TemporaryDirectory(prefix="prudent-pg-") as name:
        server = Postgres(Path(name))
        try:
            yield server.url
        finally:
            server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def memory_mb(pid: int) -> float:
    pages_ = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages_ * os.sysconf("SC_PAGE_SIZE") / 1e6


def processor_s(pid: int) -> float:
    """What a process has used of the processor: says the same however busy the machine is."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def start(settings: Settings, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "prudent.cli.main", "serve", "--open", "--home", str(settings.home)]
    much = "1000000000"
    unlimited = dict.fromkeys(("RATE_PER_S", "WAITING", "WAITING_PER_USER"), much)
    environment = {**os.environ, **{f"PRUDENT_{name}": value for name, value in unlimited.items()}}
    if settings.database_url:
        environment["PRUDENT_DATABASE_URL"] = settings.database_url
    process = subprocess.Popen(
        [*command, "--port", str(port), "--workers", "0"], env=environment, stdout=subprocess.DEVNULL
    )
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return process
    raise SystemExit("The service did not start.")


def measure(said: argparse.Namespace, settings: Settings) -> None:
    settings.create()
    with Store(settings.database) as store:
        fill(store, said.stored)
        before = store.read(runs.counts)["queued"]
    port = free_port()
    process = start(settings, port)
    try:
        asyncio.run(load(port, 4, 1.0, 0))  # warm
        memory = [memory_mb(process.pid)]
        took_s: list[float] = []
        spent_s = errors = 0.0
        used_s = processor_s(process.pid)
        while spent_s < said.seconds:
            part = asyncio.run(load(port, said.clients, min(15.0, said.seconds - spent_s), said.rate))
            took_s += part[0]
            spent_s, errors = spent_s + part[1], errors + part[2]
            memory.append(memory_mb(process.pid))
        used_s = processor_s(process.pid) - used_s
        shown_s = asyncio.run(pages(port, 50))
    finally:
        process.terminate()
        process.wait()
    with Store(settings.database) as store:
        kept = store.read(runs.counts)["queued"] - before
    kind = "SQLite" if settings.database_url is None else "PostgreSQL"
    print(f"{kind}, cores {os.cpu_count()}, load average {os.getloadavg()[0]:.1f}, {said.stored} runs stored")
    print(
        f"submissions: {len(took_s)} in {spent_s:.1f} s = {len(took_s) / spent_s:.0f}/s, errors {errors:.0f}"
    )
    print(
        f"latency: median {statistics.median(took_s) * 1e3:.1f} ms, "
        f"99 % {percentile(took_s, 0.99) * 1e3:.1f} ms, worst {max(took_s) * 1e3:.1f} ms"
    )
    print(f"processor time of the web process: {used_s / len(took_s) * 1e3:.2f} ms a submission")
    print(f"kept: {kept} (all of them, and those of the warm-up)")
    print(
        f"list of 50 runs: median {statistics.median(shown_s) * 1e3:.1f} ms, "
        f"99 % {percentile(shown_s, 0.99) * 1e3:.1f} ms"
    )
    first, middle, last = memory[0], memory[len(memory) // 2], memory[-1]
    print(
        f"memory of the web process, MB: {first:.0f} at the start, {middle:.0f} in the middle, {last:.0f} at "
        f"the end; all: {' '.join(f'{held:.0f}' for held in memory)}"
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=15)
    words.add_argument("--clients", type=int, default=32)
    words.add_argument(
        "--rate", type=float, default=200, help="submissions per second; 0 for as many as can be"
    )
    words.add_argument("--stored", type=int, default=100_000, help="runs stored before")
    words.add_argument("--database-url")
    words.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    said = words.parse_args()
    with database(said.database_url, said.postgres) as url, tempfile.TemporaryDirectory() as name:
        measure(said, Settings(Path(name), database_url=url))


if __name__ == "__main__":
    main()
