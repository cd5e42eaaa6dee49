"""Many follow runs: one asks the database for all of them, and there is an end to how many may."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest

from prudent.service.settings import Settings
from prudent.service.store import events, runs
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.web import event_feed as module
from prudent.service.web.app import create_app
from prudent.service.web.event_feed import EventFeed
from prudent.service.web.problem import HttpProblem


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store(settings.database) as opened:
        yield opened


def new_run(store: Store) -> str:
    return store.write(runs.insert, NewRun("train", "ada", {}, "rest", "hash"))[0].id


def counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often which question is asked of the database."""
    asked: Counter[str] = Counter()
    before = store.read_async

    async def read_async(question: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        asked[question.__name__] += 1
        return await before(question, *args, **kwargs)

    monkeypatch.setattr(store, "read_async", read_async)
    return asked


async def gathered(feed: EventFeed, run_id: str, after: int = 0) -> list[str]:
    said = [text async for text in feed.follow(run_id, after)]
    return [line[7:] for text in said for line in text.splitlines() if line.startswith("event: ")]


def test_one_asks_for_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = [new_run(store) for _ in range(3)]
    asked = counted(store, monkeypatch)
    feed = EventFeed(store, look_s=0.01)

    async def all_of_them() -> list[list[str]]:
        followers = [asyncio.ensure_future(gathered(feed, run_id, 1)) for run_id in followed * 50]
        # What is said before the first look would be older events for all of them.
        while {one.last for one in feed._runs.values()} in (set(), {None}):
            await asyncio.sleep(0.01)
        for number in range(20):
            for run_id in followed:
                await store.write_async(events.append, run_id, f"step{number}")
        for run_id in followed:
            await store.write_async(runs.end, run_id, "succeeded")
        return await asyncio.gather(*followers)

    began_s = time.monotonic()
    found = asyncio.run(all_of_them())
    looks = (time.monotonic() - began_s) / 0.01 + 10
    assert found == [[*(f"step{number}" for number in range(20)), "succeeded"]] * 150
    # As often as the poller looks, not as often as there are followers.
    assert asked["_read_updates"] <= looks
    assert set(asked) == {"_read_updates"}


def test_events_that_came_together_are_told_together(store: Store) -> None:
    """Each part that is sent goes through every layer of the service, for each who follows."""
    run_id = new_run(store)
    for number in range(30):
        store.write(events.append, run_id, f"step{number}")
    store.write(runs.end, run_id, "succeeded")

    async def parts() -> list[str]:
        return [text async for text in EventFeed(store, look_s=0.01).follow(run_id)]

    first, *told = asyncio.run(parts())
    assert first == "retry: 2000\n\n"
    assert [text.count("event: ") for text in told] == [32]


def test_older_events_are_read_by_a_few_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 5)
    run_id = new_run(store)
    for number in range(30):
        store.write(events.append, run_id, f"step{number}")
    store.write(runs.end, run_id, "failed")
    at_once = most = 0
    before = store.read_async

    async def read_async(question: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal at_once, most
        at_once += question is events.since
        most = max(most, at_once)
        try:
            return await before(question, *args, **kwargs)
        finally:
            at_once -= question is events.since

    monkeypatch.setattr(store, "read_async", read_async)
    feed = EventFeed(store, look_s=0.01)

    async def everybody() -> list[list[str]]:
        return await asyncio.gather(
            *(gathered(feed, run_id, after) for after in (0, 10, 29) for _ in range(9))
        )

    found = asyncio.run(everybody())
    whole = ["queued", *(f"step{number}" for number in range(30)), "failed"]
    assert found == [whole] * 9 + [whole[10:]] * 9 + [whole[29:]] * 9
    assert 1 <= most <= 2


def test_a_run_that_is_removed_ends_its_streams(store: Store) -> None:
    run_id = new_run(store)
    feed = EventFeed(store, look_s=0.01)

    async def followed() -> list[str]:
        follower = asyncio.ensure_future(gathered(feed, run_id))
        await store.write_async(runs.end, run_id, "failed")
        await store.write_async(runs.remove, run_id)
        return await asyncio.wait_for(follower, 60)

    assert asyncio.run(followed())[-1:] in ([], ["queued"], ["failed"])


def test_seats_are_limited_for_one_and_for_all(store: Store) -> None:
    feed = EventFeed(store, most=3, most_per_user=2)
    feed.add_follower("ada")
    feed.add_follower("ada")
    with pytest.raises(HttpProblem, match="You are following 2 runs") as error:
        feed.add_follower("ada")
    assert (error.value.status, dict(error.value.headers or {})) == (429, {"retry-after": "10"})
    feed.add_follower("bob")
    with pytest.raises(HttpProblem, match="Too many people are following"):
        feed.add_follower("eve")
    feed.remove_follower("ada")
    feed.add_follower("eve")


def test_who_hangs_up_makes_room(serving: Any, settings: Settings, store: Store) -> None:
    run_id = new_run(store)
    place = f"/v1/runs/{run_id}/events"
    app = create_app(replace(settings, followers_per_user=2), store)
    with serving(app) as client, ExitStack() as streams:
        lines = [streams.enter_context(client.stream("GET", place)).iter_lines() for _ in range(2)]
        assert [next(each) for each in lines] == ["retry: 2000"] * 2
        full = client.get(place)
        assert (full.status_code, full.headers["retry-after"]) == (429, "10")
        assert client.get("/v1/runs").status_code == 200
        streams.close()
        until_s = time.monotonic() + 120
        while not _may_follow(client, place):
            assert time.monotonic() < until_s
            time.sleep(0.05)


def _may_follow(client: httpx.Client, place: str) -> bool:
    with client.stream("GET", place) as stream:
        return stream.status_code == 200
