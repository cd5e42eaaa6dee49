"""A run's events as they happen, for browsers and programs that follow it (server-sent events)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from prudent.service.store import events, runs
from prudent.service.store.events import Event
from prudent.service.store.store import Store, Unavailable

LOOK_S, SIGN_S = 0.25, 15.0
"""How often new events are looked for, and how often a silent line is shown to be alive."""


async def follow(store: Store, run_id: str, after: int = 0, look_s: float = LOOK_S) -> AsyncIterator[str]:
    """Events after a number, until the run has ended and all was said."""
    said_s = time.monotonic()
    yield "retry: 2000\n\n"
    while True:
        try:
            run = await store.read_soon(runs.get, run_id)  # first: what it says last is then among the events
            found = await store.read_soon(events.since, run_id, after)
        except Unavailable:
            found, run = [], None
            await asyncio.sleep(2.0)
            yield ": the database is away\n\n"
            continue
        for event in found:
            after = event.number
            yield written(event)
        if found:
            said_s = time.monotonic()
            continue
        if run is None or run.ended:
            return
        if time.monotonic() - said_s > SIGN_S:
            said_s = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(look_s)


def written(event: Event) -> str:
    """An event as the protocol has it.

    >>> print(written(Event("r", 3, 1.0, "progress", {"progress": 0.5})), end="")
    id: 3
    event: progress
    data: {"number": 3, "at_s": 1.0, "kind": "progress", "data": {"progress": 0.5}}
    <BLANKLINE>
    """
    return f"id: {event.number}\nevent: {event.kind}\ndata: {json.dumps(event.to_dict())}\n\n"
