"""A day of a busy service, in minutes: how many workers do so many requests want?

python benchmarks/service_day.py                             # 10,000 requests, on SQLite
python benchmarks/service_day.py --workers 12 --database-url postgresql://…
python benchmarks/service_day.py --train-s 300 --machine m5.2xlarge

Time is simulated, and so is the work; who is next is not. Every request is put into a real store, and
claimed, finished and taken over by the functions that workers call, in the order in which things happen:
users take turns, nobody has more runs under way than `per_user`, a worker that dies is missed for
`takeover_s`, and its runs go on behind the last trial that ended. The day has office hours; workers are spot
machines, which are taken back now and then.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from prudent.cloud.catalog import Catalog
from prudent.core.seeds import rng_for
from prudent.core.units import format_duration
from prudent.service.settings import Settings
from prudent.service.store import claims, events, runs
from prudent.service.store.runs import NewRun, RunRow
from prudent.service.store.store import Store

DAY_S = 86_400.0
BUSY = [1, 1, 1, 1, 1, 1, 2, 4, 7, 9, 10, 9, 7, 9, 10, 9, 8, 6, 4, 3, 2, 2, 1, 1]
"""How many come in each hour of the day, against each other."""
SHARES = {"train": 0.7, "tune": 0.2, "schedule": 0.1}
SPREAD = 1.0
"""Of the logarithm of a run's length: one in twenty takes five times the median or more."""
DOWN_S, LOST_S = 90.0, 10.0
"""Until another machine is up in the place of one that was taken back; what of a run is done again then."""


@dataclass
class Clock:
    """Stands for the module `time` in the store."""

    now_s: float = 0.0

    def time(self) -> float:
        return self.now_s


@dataclass
class Day:
    """A day on so many workers; `run` answers what was seen."""

    arguments: argparse.Namespace
    store: Store
    clock: Clock
    workers: int
    seed: int = 7
    ahead: list[tuple[float, int, str, Any]] = field(default_factory=list)
    free: dict[str, int] = field(default_factory=dict)
    left_s: dict[str, float] = field(default_factory=dict)
    waited_s: list[float] = field(default_factory=list)
    under_way: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    queued: int = 0
    longest: int = 0
    busy_s: float = 0.0
    kills: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def run(self) -> dict[str, Any]:
        rng = rng_for(self.seed, "service day")
        for at_s, user, kind, length_s in arrivals(self.arguments, rng):
            self.at(at_s, "arrives", (user, kind, length_s))
        for number in range(self.workers):
            self.free[f"worker-{number}"] = self.arguments.concurrency
            self.fate(f"worker-{number}", 0.0, rng)
        began_s, done = time.process_time(), 0
        while done < self.arguments.requests:
            self.clock.now_s, _, what, about = heapq.heappop(self.ahead)
            if what == "arrives":
                self.arrives(*about)
            elif what == "ends":
                done += self.ends(*about)
            elif what == "dies":
                self.dies(about, rng)
            elif what == "missed":
                self.missed(about)
            elif what == "is back":
                self.free[about] = self.arguments.concurrency
            self.hand_out()
        return self.seen(time.process_time() - began_s)

    def at(self, moment_s: float, what: str, about: Any) -> None:
        heapq.heappush(self.ahead, (moment_s, next(self._numbers), what, about))

    def fate(self, worker: str, since_s: float, rng: np.random.Generator) -> None:
        if self.arguments.taken_back_h:
            self.at(since_s + rng.exponential(self.arguments.taken_back_h * 3600), "dies", worker)

    def arrives(self, user: str, kind: str, length_s: float) -> None:
        document = {"domain": "regression"}
        new = NewRun(kind, user, document, "rest", "hash", created_s=self.clock.now_s)
        run, _ = self.store.write(runs.insert, new)
        self.left_s[run.id] = length_s
        self.queued += 1
        self.longest = max(self.longest, self.queued)

    def hand_out(self) -> None:
        for worker in sorted(self.free, key=lambda name: -self.free[name]):
            while self.queued and self.free[worker]:
                run = self.store.write(claims.claim, worker, self.arguments.per_user)
                if run is None:
                    return
                self.begins(worker, run)

    def begins(self, worker: str, run: RunRow) -> None:
        self.queued -= 1
        self.free[worker] -= 1
        if run.attempts == 1:
            self.waited_s.append(self.clock.now_s - run.created_s)
        self.under_way[run.id] = (worker, run.fence, self.clock.now_s)
        self.at(self.clock.now_s + self.left_s[run.id], "ends", (run.id, run.fence))

    def ends(self, run_id: str, fence: int) -> int:
        if self.under_way.get(run_id, ("", 0, 0.0))[1] != fence:
            return 0  # its worker died meanwhile
        worker, _, began_s = self.under_way.pop(run_id)
        self.store.write(runs.finish, run_id, fence, "succeeded")
        self.busy_s += self.clock.now_s - began_s
        self.free[worker] += 1
        return 1

    def dies(self, worker: str, rng: np.random.Generator) -> None:
        self.kills += 1
        del self.free[worker]
        for run_id, (whose, _, began_s) in list(self.under_way.items()):
            if whose == worker:
                del self.under_way[run_id]
                done_s = self.clock.now_s - began_s
                self.busy_s += done_s
                self.left_s[run_id] -= max(done_s - LOST_S, 0.0)
        self.at(self.clock.now_s + self.arguments.takeover_s, "missed", worker)
        self.at(self.clock.now_s + DOWN_S, "is back", worker)
        self.fate(worker, self.clock.now_s + DOWN_S, rng)

    def missed(self, worker: str) -> None:
        self.queued += len(self.store.write(claims.release_worker, worker, 99))

    def seen(self, took_s: float) -> dict[str, Any]:
        machine = Catalog.load(None)[self.arguments.machine]
        slots = self.workers * self.arguments.concurrency
        kept = self.store.read(runs.counts)
        assert kept["succeeded"] == self.arguments.requests, kept
        at = statistics.quantiles(self.waited_s, n=100, method="inclusive")
        return {
            "workers": self.workers,
            "median_s": at[49],
            "p95_s": at[94],
            "worst_s": max(self.waited_s),
            "longest queue": self.longest,
            "busy": self.busy_s / (slots * max(DAY_S, self.clock.now_s)),
            "taken back": self.kills,
            "usd": self.workers * machine.price.usd_per_h * 24,
            "store_ms": took_s * 1000 / self.arguments.requests,
        }


def arrivals(arguments: argparse.Namespace, rng: np.random.Generator) -> list[tuple[float, str, str, float]]:
    """When who asks for what, and how long it would take undisturbed."""
    weights = np.array(BUSY, dtype=float)
    hours = rng.choice(24, size=arguments.requests, p=weights / weights.sum())
    moments = np.sort((hours + rng.random(arguments.requests)) * 3600)
    # A few ask often: the n-th user 1/n as often as the first.
    often = 1 / np.arange(1, arguments.users + 1)
    users = rng.choice(arguments.users, size=arguments.requests, p=often / often.sum())
    kinds = rng.choice(list(SHARES), size=arguments.requests, p=list(SHARES.values()))
    medians = {"train": arguments.train_s, "tune": arguments.tune_s, "schedule": arguments.schedule_s}
    return [
        (float(at_s), f"user-{user}", str(kind), medians[kind] * math.exp(SPREAD * rng.standard_normal()))
        for at_s, user, kind in zip(moments, users, kinds, strict=True)
    ]


def one_day(arguments: argparse.Namespace, workers: int) -> dict[str, Any]:
    clock = Clock()
    for module in (runs, claims, events):
        module.time = clock  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory(prefix="prudent-day-") as folder:
        url = arguments.database_url or f"sqlite:///{folder}/store.db"
        with Store(Settings(Path(folder), database_url=url).database) as store:
            return Day(arguments, store, clock, workers).run()


def read_arguments() -> argparse.Namespace:
    said = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    said.add_argument("--requests", type=int, default=10_000)
    said.add_argument("--workers", type=int, nargs="*", default=[8, 12, 16])
    said.add_argument("--concurrency", type=int, default=4, help="runs at a time per worker")
    said.add_argument("--per-user", type=int, default=8)
    said.add_argument("--users", type=int, default=200)
    said.add_argument("--train-s", type=float, default=60.0, help="the median length of such a run")
    said.add_argument("--tune-s", type=float, default=180.0)
    said.add_argument("--schedule-s", type=float, default=15.0)
    said.add_argument("--taken-back-h", type=float, default=12.0, help="hours a worker lasts; 0 for ever")
    said.add_argument("--takeover-s", type=float, default=20.0)
    said.add_argument("--machine", default="m5.xlarge", help="what a worker runs on")
    said.add_argument("--database-url", help="an empty PostgreSQL database; SQLite otherwise")
    return said.parse_args()


def main() -> None:
    arguments = read_arguments()
    print(f"{arguments.requests:,} requests of {arguments.users} users in a day")
    print("workers  waits: median        95 %     longest  queue  busy  taken back  $ a day")
    for workers in arguments.workers:
        said = one_day(arguments, workers)
        waits = "".join(f"{format_duration(said[name]):>12}" for name in ("median_s", "p95_s", "worst_s"))
        print(
            f"{workers:7} {waits}  {said['longest queue']:5}  {said['busy']:4.0%}  {said['taken back']:10}"
            f"  {said['usd']:7.2f}"
        )
    print(f"Processor time for a request in the store and this simulation: {said['store_ms']:.1f} ms")


if __name__ == "__main__":
    main()
