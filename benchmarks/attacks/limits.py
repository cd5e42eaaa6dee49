"""Point 4, limits that hold: all attacks together, while somebody lists runs and a meter reads memory."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from typing import Any

from attacks import data_sets, floods
from attacks.crowd import Attack, Outcome, Target, crowd
from attacks.meter import listing, metered, percentile, spread
from attacks.target import Found, Service

ATTACKS = [*data_sets.ATTACKS, *floods.ATTACKS]
BAR_MS = 200.0
USERS = {"fay": "member", "dan": "member", "bob": "member", "lea": "viewer"}
"""Who attack beside Mallory and Vic: no limit of one user is met by another's attack."""
WEB_MB = 1000.0
"""What the web process may hold: it has no limit of its own, for everything that it holds is limited."""
CHECK_MB = 1024.0


def play(service: Service, attacks: list[Attack], seconds: float) -> Iterator[Found]:
    """All attacks together, each in a process of its own; Alice lists runs before and meanwhile."""
    before = Target(service.port, service.settings, service.tokens, time.monotonic() + 5)
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    quiet_s = listing(before)
    target = Target(service.port, service.settings, service.tokens, time.monotonic() + seconds)
    told: Any = multiprocessing.SimpleQueue()
    enemies = multiprocessing.Process(target=crowd, args=(attacks, target, told))
    with metered(service.process.pid) as most_mb:
        enemies.start()
        took_s = listing(target)
        seen = f"{spread(took_s)}; without attacks {spread(quiet_s)}"
        below = percentile(took_s, 0.99) * 1e3 < BAR_MS
        yield Found(4, "all attacks together: GET /v1/runs", f"99 % below {BAR_MS:g} ms", seen, below)
        outcomes: dict[str, Outcome] = dict(told.get() for _ in attacks)
    print(f"load average at the end: {os.getloadavg()[0]:.1f}")
    for each in attacks:
        held, said = outcomes[each.name]
        yield Found(4, each.name, each.promise, said[:400], held)
    yield from _held(service, most_mb)


def _held(service: Service, most_mb: dict[str, float]) -> Iterator[Found]:
    """No process is beyond its limit, and the service goes on."""
    run_mb = service.settings.run_memory_mb
    limits = {"run": run_mb, "trial": run_mb, "check": CHECK_MB, "web": WEB_MB, "worker": WEB_MB}
    for name, held_mb in sorted(most_mb.items()):
        limit_mb = limits.get(name, run_mb) * 1.048576  # limits are in MiB
        promise = f"at most {limit_mb:.0f} MB"
        yield Found(4, f"memory of a process ({name})", promise, f"{held_mb:.0f} MB", held_mb <= limit_mb)
    with service.client("alice") as client:
        status = client.get("/ready").status_code
    yield Found(4, "the service afterwards", "ready", str(status), status == 200)
