"""Requests by three fronts while workers are killed and the database restarts: is any lost, or done twice?

python benchmarks/service_chaos.py --requests 60                  # a minute or so, on SQLite
python benchmarks/service_chaos.py --postgres --requests 1000     # the whole, on a server of its own
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from prudent.service.intake.folders import put_message
from prudent.service.settings import Settings, environment_of
from prudent.service.store import charges, events, runs, trials
from prudent.service.store.store import Store, StoreUnavailable

TABLE = "vm,workers,time_s,price_usd_per_h\n" + "".join(
    f"{vm},{n},{100 / n + speed},{n * price}\n"
    for vm, speed, price in (("a", 30, 1), ("b", 10, 2), ("c", 50, 0.5))
    for n in (1, 2, 4, 8)
)
ENDS = ("succeeded", "failed", "cancelled")


def document(number: int) -> dict[str, Any]:
    return {
        "name": f"chaos-{number}",
        "table": {"csv": TABLE},
        "parameters": ["vm", "workers"],
        "goal": "minimise cost_usd subject to time_s <= 100",
        "strategy": "random",
        "max_trials": 4,
        "seed": number,
    }


class Postgres:
    """A server of our own, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder / "data", free_port()
        root = os.geteuid() == 0
        self._as = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if root else []
        folder.chmod(0o777)
        self._run("initdb", "-D", str(self.folder), "-U", "prudent", "-A", "trust", "-E", "UTF8")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://prudent@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        set_to = "listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200"
        options = f"-p {self.port} " + " ".join(f"-c {each}" for each in set_to)
        self._run(
            "pg_ctl", "-D", str(self.folder), "-l", str(self.folder / "log"), "-w", "-o", options, "start"
        )

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder), "-m", "immediate", "stop")

    def _run(self, *command: str) -> None:
        subprocess.run(
            [*self._as, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


class Chaos:
    """The service, its workers, and what happens to them."""

    def __init__(self, settings: Settings, postgres: Postgres | None, dice: random.Random) -> None:
        self.settings, self.postgres, self.dice = settings, postgres, dice
        self.environment = {**os.environ, **environment_of(settings)}
        self.log = (settings.home / "log").open("ab")
        self.over = threading.Event()
        self.killed = self.restarted = 0
        self.web = self._start("serve", "--open", "--workers", "0")
        self.workers = [self._start("worker") for _ in range(3)]
        self._threads: list[threading.Thread] = []

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "prudent.cli.main", *words]
        return subprocess.Popen(command, env=self.environment, stdout=self.log, stderr=self.log)

    def begin(self, kill_s: float, restart_s: tuple[float, float]) -> None:
        work = [threading.Thread(target=self._kill, args=(kill_s,), daemon=True)]
        if self.postgres is not None:
            work.append(threading.Thread(target=self._restart, args=restart_s, daemon=True))
        self._threads = work
        for thread in work:
            thread.start()

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(60)
        for process in (self.web, *self.workers):
            process.send_signal(signal.SIGTERM)
        for process in (self.web, *self.workers):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
            process.wait()

    def _kill(self, every_s: float) -> None:
        while not self.over.wait(self.dice.uniform(0.5, 1.5) * every_s):
            number = self.dice.randrange(len(self.workers))
            self.workers[number].kill()
            self.workers[number].wait()
            self.killed += 1
            self.workers[number] = self._start("worker")

    def _restart(self, least_s: float, most_s: float) -> None:
        assert self.postgres is not None
        while not self.over.wait(self.dice.uniform(least_s, most_s)):
            self.postgres.stop()
            time.sleep(self.dice.uniform(0.0, 2.0))
            self.postgres.start()
            self.restarted += 1


def by_rest(numbers: list[int], port: int) -> None:
    """Every request until it is accepted, with a key, as a careful client does."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90, trust_env=False) as client:
        for number in numbers:
            while True:
                try:
                    headers = {"Idempotency-Key": f"chaos-{number}"}
                    answer = client.post("/v1/runs/tune", json=document(number), headers=headers)
                    if answer.status_code == 202:
                        break
                    if answer.status_code < 500 and answer.status_code != 429:
                        raise SystemExit(answer.text)
                except httpx.HTTPError:
                    pass
                time.sleep(0.5)


def by_folder(numbers: list[int], folder: Path) -> None:
    for number in numbers:
        part = folder / f"chaos-{number}.part"
        part.write_text(json.dumps(document(number)))
        part.rename(folder / f"chaos-{number}.tune.json")


def by_queue(numbers: list[int], folder: Path) -> None:
    for number in numbers:
        put_message(folder, "tune", document(number))


def everything(store: Store) -> list[runs.RunRow]:
    found: list[runs.RunRow] = []
    cursor = None
    while True:
        page = store.read(runs.page, 500, cursor)
        found += page.runs
        cursor = page.next
        if cursor is None:
            return found


def wait(store: Store, count: int, deadline_s: float) -> None:
    until_s = time.monotonic() + deadline_s
    while time.monotonic() < until_s:
        with contextlib.suppress(StoreUnavailable):
            found = store.read(runs.counts)
            print(f"\r{found}", end="", flush=True)
            if sum(found[status] for status in ENDS) >= count and not found["queued"] + found["running"]:
                break
        time.sleep(1.0)
    print()


def wrong(store: Store, settings: Settings, count: int) -> list[str]:
    """Everything that must not be."""
    found, faults = everything(store), []
    titles = Counter(run.title for run in found)
    faults += [
        f"chaos-{n} has {titles[f'chaos-{n}']} runs" for n in range(count) if titles[f"chaos-{n}"] != 1
    ]
    for run in found:
        ends = [event for event in store.read(events.since, run.id, 0, 10_000) if event.kind in ENDS]
        if run.status != "succeeded" or len(ends) != 1:
            faults.append(f"{run.title}: {run.status}, {len(ends)} outcomes, {run.error}")
            continue
        paid = Counter(charge.label for charge in store.read(charges.of_run, run.id))
        spent = sum(charge.usd for charge in store.read(charges.of_run, run.id))
        result = json.loads((settings.folder_of(run.id) / "result.json").read_text())
        if any(times > 1 for times in paid.values()) or abs(spent - result["spent_usd"]) > 1e-9:
            faults.append(f"{run.title}: paid {spent}, spent {result['spent_usd']}, {paid}")
        if sum(trial.status != trials.RUNNING for trial in store.read(trials.of_run, run.id)) != len(
            result["trials"]
        ):
            faults.append(f"{run.title}: other trials than its result")
        if abs(run.spent_usd - spent) > 1e-9:
            faults.append(f"{run.title}: its sum is not that of its charges")
    return faults


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--requests", type=int, default=1000)
    words.add_argument("--postgres", action="store_true", help="on PostgreSQL, restarted now and then")
    words.add_argument("--kill-every", type=float, default=5.0, help="seconds between two kills")
    words.add_argument("--deadline", type=float, default=3600.0, help="give up after so many seconds")
    words.add_argument("--seed", type=int, default=0)
    said = words.parse_args()
    home, began_s = Path(tempfile.mkdtemp(prefix="prudent-chaos-")), time.monotonic()
    base = Path(tempfile.mkdtemp(prefix="prudent-chaos-pg-", dir="/tmp"))
    postgres = Postgres(base) if said.postgres else None
    settings = Settings(
        home, port=free_port(), database_url=postgres.url if postgres else None, watch=home / "drop",
        queue=f"file://{home}/queue", heartbeat_s=1.0, takeover_s=8.0, tries=20, per_user=100, grace_s=5.0,
    )  # fmt: skip
    settings.create()
    (home / "drop").mkdir()
    chaos = Chaos(settings, postgres, random.Random(said.seed))
    try:
        with Store(settings.database) as store:
            numbers = [list(range(front, said.requests, 3)) for front in range(3)]
            fronts = [
                threading.Thread(target=by_rest, args=(numbers[0], settings.port)),
                threading.Thread(target=by_folder, args=(numbers[1], home / "drop")),
                threading.Thread(target=by_queue, args=(numbers[2], home / "queue")),
            ]
            chaos.begin(said.kill_every, (10.0, 40.0))
            for front in fronts:
                front.start()
            for front in fronts:
                front.join()
            wait(store, said.requests, said.deadline)
            chaos.end()
            faults = wrong(store, settings, said.requests)
    finally:
        chaos.end()
        if postgres is not None:
            postgres.stop()
            shutil.rmtree(base, ignore_errors=True)
    print(
        f"{said.requests} requests by 3 fronts in {time.monotonic() - began_s:.0f} s; workers killed "
        f"{chaos.killed} times, database restarted {chaos.restarted} times: {len(faults)} faults"
    )
    for fault in faults[:20]:
        print(" ", fault)
    if faults:
        raise SystemExit(f"See {home}.")
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
