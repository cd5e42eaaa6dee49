"""Figures for Prometheus: what this process answered, and how many runs and trials are in each state."""

from __future__ import annotations

import bisect
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from prudent.service.security.middleware import Application, Message, Receive, Scope, Send
from prudent.service.store import charges, runs, trials, workers

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestMetrics:
    """Counts answers and how long they took; a layer around the application."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, int], int] = defaultdict(int)
        self._buckets = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def note(self, method: str, path: str, status: int, took_s: float) -> None:
        with self._lock:
            self._counts[method if method in _METHODS else "other", path, status] += 1
            self._buckets[bisect.bisect_left(BOUNDS_S, took_s)] += 1
            self._sum_s += took_s

    def lines(self) -> Iterable[str]:
        with self._lock:
            counts, buckets, sum_s = dict(self._counts), list(self._buckets), self._sum_s
        yield from _series(
            "prudent_http_requests_total", "counter", "Answers by method, path and status.",
            {f'method="{m}",path="{p}",status="{s}"': n for (m, p, s), n in sorted(counts.items())},
        )  # fmt: skip
        name, below = "prudent_http_request_seconds", 0
        yield f"# HELP {name} How long answers took to begin."
        yield f"# TYPE {name} histogram"
        for bound, count in zip((*BOUNDS_S, "+Inf"), buckets, strict=True):
            below += count
            yield f'{name}_bucket{{le="{bound}"}} {below}'
        yield f"{name}_sum {sum_s:.6f}"
        yield f"{name}_count {below}"


_METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")


class MetricsMiddleware:
    """Feeds `RequestMetrics`; paths are counted by their pattern, so that ids make no series."""

    def __init__(self, app: Application, requests: RequestMetrics) -> None:
        self.app, self.requests = app, requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began_s, status = time.perf_counter(), 500

        async def listen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                route = scope.get("route")
                path = getattr(route, "path", "") or "unmatched"
                self.requests.note(scope["method"], path, status, time.perf_counter() - began_s)
            await send(message)

        await self.app(scope, receive, listen)


def database_gauges(connection: Connection) -> list[str]:
    """Runs, trials, workers and money, read from the database."""
    alive = workers.all_(connection)
    by_status = {f'status="{status}"': count for status, count in runs.counts(connection).items()}
    tried = {f'status="{status}"': count for status, count in sorted(trials.counts(connection).items())}
    gauges = (
        ("prudent_runs", "Runs by status.", by_status),
        ("prudent_trials", "Trials by status.", tried),
        ("prudent_spent_usd_today", "Money spent today (UTC).", {"": charges.spent_usd(connection)}),
        ("prudent_workers", "Workers that have not left.", {"": len(alive)}),
        ("prudent_worker_slots", "Runs that workers take at a time.", {"": sum(w.slots for w in alive)}),
        ("prudent_worker_busy", "Runs that workers have now.", {"": sum(w.busy for w in alive)}),
    )
    return [line for name, words, values in gauges for line in _series(name, "gauge", words, values)]


def memory_gauge() -> list[str]:
    """What this process holds in memory."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return []
    held = pages * os.sysconf("SC_PAGE_SIZE")
    return list(_series("process_resident_memory_bytes", "gauge", "Memory of the web process.", {"": held}))


def _series(name: str, kind: str, words: str, values: Mapping[str, float]) -> Iterable[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"
