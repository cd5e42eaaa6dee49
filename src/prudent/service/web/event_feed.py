"""Runs' events as they happen, for browsers and programs that follow them (server-sent events).

One poller asks the database for all runs that anybody follows, however many follow them. What it finds is
written once for all. Who begins with older events, or has fallen behind, reads them from the database, and
only a few do so at a time: those who ask for something else shall not wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from prudent.service.security.middleware import Receive, Scope, Send
from prudent.service.store import events, runs
from prudent.service.store.events import EventRow
from prudent.service.store.store import Store, StoreUnavailable
from prudent.service.web.problem import HttpProblem

LOOK_S, SIGN_S = 0.25, 15.0
"""How often new events are looked for, and how often a silent line is shown to be alive."""
_KEPT, _READERS, _TOGETHER = 500, 2, 200
_AWAY_S = 2.0
_LATER = {"retry-after": "10"}


@dataclass
class _FollowedRun:
    """A run that somebody follows: its latest events, and how far they go."""

    followers: int = 0
    last: int | None = None
    """The number of the latest event; None before the first update."""
    ended: bool = False
    latest: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def since(self, after: int) -> list[tuple[int, str]] | None:
        """Events after a number, if they are all among the latest; those that were told are not looked at."""
        if self.last is None or after < self.last - len(self.latest):
            return None
        new = list(takewhile(lambda event: event[0] > after, reversed(self.latest)))
        return new[::-1]


class EventFeed:
    """Who follows which runs; use it from one event loop."""

    def __init__(
        self, store: Store, most: int = 500, most_per_user: int = 50, look_s: float = LOOK_S
    ) -> None:
        self._store, self._most, self._most_per_user, self._look_s = store, most, most_per_user, look_s
        self._followers: Counter[str] = Counter()
        self._runs: dict[str, _FollowedRun] = {}
        self._readers = asyncio.Semaphore(_READERS)
        self._poller: asyncio.Task[None] | None = None
        self._away = False

    def add_follower(self, user: str) -> None:
        """Count a follower of the user, until `remove_follower`; HttpProblem if too many follow."""
        if self._followers[user] >= self._most_per_user:
            raise HttpProblem(
                429,
                f"You are following {self._followers[user]} runs at a time, as many as one may; close some.",
                headers=_LATER,
            )
        if self._followers.total() >= self._most:
            raise HttpProblem(429, "Too many people are following runs; try again later.", headers=_LATER)
        self._followers[user] += 1

    def remove_follower(self, user: str) -> None:
        self._followers[user] -= 1
        self._followers += Counter()  # forgets those who have none

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[str]:
        """Events after a number, until the run has ended and its last event was sent."""
        yield "retry: 2000\n\n"
        followed = self._join(run_id)
        said_s = time.monotonic()
        try:
            while True:
                found = followed.since(after)
                if found is None and followed.last is not None:
                    found = await self._older(run_id, after)
                    if not found:
                        await asyncio.sleep(self._look_s)
                        continue
                if found:
                    after, said_s = found[-1][0], time.monotonic()
                    yield "".join(
                        text for _, text in found
                    )  # each part goes through all layers of the service
                elif followed.ended and followed.last is not None and after >= followed.last:
                    return
                elif time.monotonic() - said_s > SIGN_S:
                    said_s = time.monotonic()
                    yield ": the database is away\n\n" if self._away else ": still here\n\n"
                else:
                    await self._change(followed)
        finally:
            self._leave(run_id, followed)

    async def _change(self, followed: _FollowedRun) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SIGN_S):
                await followed.changed.wait()

    async def _older(self, run_id: str, after: int) -> list[tuple[int, str]]:
        async with self._readers:
            try:
                found = await self._store.read_async(events.since, run_id, after)
            except StoreUnavailable:
                return []
        return [(event.number, encode_event(event)) for event in found]

    def _join(self, run_id: str) -> _FollowedRun:
        followed = self._runs.setdefault(run_id, _FollowedRun())
        followed.followers += 1
        if self._poller is None or self._poller.done():
            self._poller = asyncio.ensure_future(self._poll())
        return followed

    def _leave(self, run_id: str, followed: _FollowedRun) -> None:
        followed.followers -= 1
        if not followed.followers and self._runs.get(run_id) is followed:
            del self._runs[run_id]

    async def _poll(self) -> None:
        """Ask the database for all followed runs, as long as anybody follows one."""
        while self._runs:
            known = {run_id: followed.last for run_id, followed in self._runs.items()}
            try:
                updates = await self._store.read_async(_read_updates, known)
                self._away = False
            except StoreUnavailable:
                self._away = True
                await asyncio.sleep(_AWAY_S)
                continue
            for run_id, update in updates.items():
                self._publish(run_id, update)
            await asyncio.sleep(self._look_s)

    def _publish(self, run_id: str, update: _RunUpdate) -> None:
        followed = self._runs.get(run_id)
        if followed is None:
            return
        new = update.last != followed.last or update.ended != followed.ended
        followed.latest.extend((event.number, encode_event(event)) for event in update.new)
        followed.last, followed.ended = update.last, update.ended
        if new:
            followed.changed.set()
            followed.changed = asyncio.Event()


@dataclass(frozen=True)
class _RunUpdate:
    last: int
    ended: bool
    new: Sequence[EventRow] = ()


def _read_updates(connection: Connection, known: dict[str, int | None]) -> dict[str, _RunUpdate]:
    """How followed runs stand, with their new events; one that is gone has ended."""
    ids = list(known)
    found: dict[str, _RunUpdate] = {}
    for start in range(0, len(ids), _TOGETHER):
        some = ids[start : start + _TOGETHER]
        # First how they stand: what an ended run says last is then among the events.
        statuses = runs.statuses(connection, some)
        lasts = events.lasts(connection, some)
        for run_id in some:
            before, last = known[run_id], lasts.get(run_id, 0)
            new = (
                events.since(connection, run_id, before, _KEPT)
                if before is not None and last > before
                else []
            )
            ended = statuses.get(run_id, runs.FAILED) in runs.ENDED
            found[run_id] = _RunUpdate(new[-1].number if new else last, ended, new)
    return found


class EventStream(StreamingResponse):
    """What one follower is told; has a seat for as long as it lasts."""

    def __init__(
        self, feed: EventFeed, user: str, told: AsyncIterator[str], headers: Mapping[str, str]
    ) -> None:
        super().__init__(told, media_type="text/event-stream", headers=headers)
        self._feed, self._user = feed, user
        feed.add_follower(user)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.remove_follower(self._user)


def encode_event(event: EventRow) -> str:
    """An event as the protocol has it.

    >>> print(encode_event(EventRow("r", 3, 1.0, "progress", {"progress": 0.5})), end="")
    id: 3
    event: progress
    data: {"number": 3, "at_s": 1.0, "kind": "progress", "data": {"progress": 0.5}}
    <BLANKLINE>
    """
    return f"id: {event.number}\nevent: {event.kind}\ndata: {json.dumps(event.to_dict())}\n\n"
