"""How long the pages of the dashboard take with 100,000 runs stored: the list of runs must be there in 50 ms.

python benchmarks/service_pages.py                    # on SQLite
python benchmarks/service_pages.py --postgres         # on a PostgreSQL server of its own

Each page is asked for on one connection, as a browser does, with a pause now and then so that counts that are
kept for a moment are counted again, too. Exits with 1 if the median of the list, or of a run's page, is above
50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import Connection

from prudent.service.settings import Settings
from prudent.service.store import charges, runs, trials
from prudent.service.store.charges import Charge
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table
from prudent.service.store.trials import TrialRow
from service_load import ask, database, fill, free_port, memory_mb, percentile, processor_s, start

BAR_MS = 50.0
BARRED = ("list of runs", "list, refreshed", "a run", "a run, refreshed")


def busy_run(connection: Connection, count: int) -> str:
    """A run with so many trials and charges."""
    document = {"domain": "regression", "dataset": {"path": "cars.csv"}}
    run, _ = runs.insert(connection, NewRun("train", "user1", document, "rest", "busy", title="cars"))
    began = table.update().where(table.c.id == run.id)
    connection.execute(began.values(status="running", fence=1, started_s=time.time() - 60, progress=0.4))
    for number in range(1, count + 1):
        details = {"metric": "rmse", "value": 1 + 10 / number}
        settings = {"numTrees": number, "maxDepth": 5, "featureSubsetStrategy": "sqrt"}
        trial = TrialRow(
            run.id, number, "random-forest", settings, "finished", -1 - 10 / number, 0.01, 2.0, 0.01, details
        )
        trials.record(connection, trial, 1)
        charges.record(
            connection, Charge(run.id, f"trial {number}", "user1", "train", 0.01, 0.096, "2026-01-01")
        )
    return run.id


def places(store: Store, run: str) -> dict[str, str]:
    """What is asked for, by name."""
    middle = store.read(runs.page, 50).next
    return {
        "list of runs": "/runs",
        "list, refreshed": "/runs/live",
        "list, next page": f"/runs?after={middle}",
        "list of one user": "/runs?user=user3",
        "list of the failed": "/runs?status=failed",
        "list of one kind of one user": "/runs?user=user3&kind=tune",
        "a run": f"/runs/{run}",
        "a run, refreshed": f"/runs/{run}/live",
        "models": "/models",
        "machines": "/machines",
        "money": "/money",
        "form": "/submit/train",
        "REST: list of 50": "/v1/runs?limit=50",
        "REST: a run": f"/v1/runs/{run}",
        "figures": "/metrics",
    }


async def timed(port: int, path: str, count: int) -> tuple[list[float], int]:
    """How long each of the answers took, and their size."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took_s, size = [], 0
    for number in range(count + 1):
        if number % 20 == 10:
            await asyncio.sleep(2.1)
        began_s = time.perf_counter()
        status, body = await ask(reader, writer, "GET", path)
        took_s.append(time.perf_counter() - began_s)
        assert status == 200, (path, status)
        size = len(body)
    writer.close()
    return took_s[1:], size


def measure(said: argparse.Namespace, settings: Settings) -> bool:
    settings.create()
    with Store(settings.database) as store:
        fill(store, said.stored)
        run = store.write(busy_run, said.trials)
        wanted = places(store, run)
    port = free_port()
    process = start(settings, port)
    fine = True
    kind = "SQLite" if settings.database_url is None else "PostgreSQL"
    try:
        print(
            f"{kind}, {said.stored} runs stored, {said.trials} trials in one; load {os.getloadavg()[0]:.1f}\n"
        )
        print("| page | median ms | 99 % ms | processor ms | kB |\n|---|---|---|---|---|")
        for name, path in wanted.items():
            used_s = processor_s(process.pid)
            took_s, size = asyncio.run(timed(port, path, said.count))
            used_s = processor_s(process.pid) - used_s
            median_ms = statistics.median(took_s) * 1e3
            fine = fine and (name not in BARRED or median_ms <= BAR_MS)
            last_ms, own_ms = percentile(took_s, 0.99) * 1e3, used_s / len(took_s) * 1e3
            print(
                f"| {name} | {median_ms:.1f} | {last_ms:.1f} | {own_ms:.1f} | {size / 1e3:.0f} |", flush=True
            )
        print(f"\nmemory of the web process: {memory_mb(process.pid):.0f} MB")
    finally:
        process.terminate()
        process.wait()
    return fine


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--stored", type=int, default=100_000, help="runs stored before")
    words.add_argument("--trials", type=int, default=200, help="trials of the run whose page is timed")
    words.add_argument("--count", type=int, default=100, help="how often each page is asked for")
    words.add_argument("--database-url")
    words.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    said = words.parse_args()
    with database(said.database_url, said.postgres) as url, tempfile.TemporaryDirectory() as name:
        sys.exit(not measure(said, Settings(Path(name), database_url=url)))


if __name__ == "__main__":
    main()
