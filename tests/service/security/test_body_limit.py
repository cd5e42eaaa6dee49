"""How much a body may hold and how long it may take; and what the service reads for others by default."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.service.security.data_locations import policy_of
from prudent.service.security.middleware import BodyLimitMiddleware


def _ask(parts: list[bytes], most_bytes: int = 10, longest_s: float = 60.0, gone_after_s: float = 0.0) -> Any:
    """Send a body in parts to an application that reads it, then waits until the client has gone."""
    said: list[Any] = []
    read: list[Any] = []
    left = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts, 1)
    ]

    async def receive() -> Any:
        if left:
            return left.pop(0)
        await asyncio.sleep(gone_after_s)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        said.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not read or read[-1]["type"] == "http.request":
            read.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})

    limit = BodyLimitMiddleware(app, most_bytes=most_bytes, longest_s=longest_s)
    asyncio.run(limit({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, send))
    return said[0]["status"], b"".join(message.get("body", b"") for message in read)


def test_a_body_that_is_as_large_as_allowed_arrives_whole() -> None:
    assert _ask([b"12345", b"67890"]) == (200, b"1234567890")


def test_the_parts_of_a_body_count_together() -> None:
    status, read = _ask([b"12345", b"67890", b"1"])
    assert (status, read) == (413, b"1234567890")


def test_a_body_that_does_not_come_is_waited_for_in_vain() -> None:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    limit = BodyLimitMiddleware(app, most_bytes=10, longest_s=0.01)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    asyncio.run(limit(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
    assert said[0]["status"] == 408


def test_who_waits_for_a_turn_is_not_slow() -> None:
    """Nothing of a body is read before its turn comes, however long that takes."""
    said: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.3)
        read = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [], "read": read["body"]})

    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"12", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    limit = BodyLimitMiddleware(app, most_bytes=10, longest_s=0.2)
    asyncio.run(limit({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, send))
    assert (said[0]["status"], said[0]["read"]) == (200, b"12")


def _hold(limit: BodyLimitMiddleware, user: str, size: int, done: asyncio.Event, read: list[str]) -> Any:
    """A body of that size, which its application holds until it is done."""
    scope = {"type": "http", "headers": [(b"content-length", str(size).encode())], "user": user, "done": done}

    async def receive() -> Any:
        read.append(user)
        return {"type": "http.request", "body": b"x" * size, "more_body": False}

    async def run() -> int:
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        await limit(scope, receive, send)
        return int(said[0]["status"])

    return run()


def test_a_user_holds_a_few_large_bodies_at_a_time() -> None:
    """A fifth is refused before it is read; others are not, and there is room when some are done."""
    size, read = 100_000, []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {"user": SimpleNamespace(name=scope["user"])}
        await receive()
        await scope["done"].wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def run() -> None:
        limit, done = BodyLimitMiddleware(app, most_bytes=size), asyncio.Event()
        held = [asyncio.ensure_future(_hold(limit, "ada", size, done, read)) for _ in range(4)]
        await asyncio.sleep(0)
        assert await _hold(limit, "ada", size, done, read) == 429
        assert read == ["ada"] * 4
        other = asyncio.ensure_future(_hold(limit, "bob", size, done, read))
        await asyncio.sleep(0)
        done.set()
        assert await asyncio.gather(*held, other) == [200] * 5
        assert await _hold(limit, "ada", size, done, read) == 200

    asyncio.run(run())


def test_an_answer_may_take_longer_than_its_body() -> None:
    # The time is for the body. It is here; the client stays on the line for longer.
    assert _ask([b"1"], longest_s=0.02, gone_after_s=0.1) == (200, b"1")


def test_a_client_that_goes_before_its_body_is_whole_is_told_apart() -> None:
    async def run() -> list[str]:
        seen = []

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def app(scope: Any, receive: Any, send: Any) -> None:
            for _ in range(2):
                seen.append((await receive())["type"])  # noqa: PERF401

        async def send(message: Any) -> None:
            raise AssertionError("There is nobody to answer.")

        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        await BodyLimitMiddleware(app, most_bytes=10, longest_s=60.0)(scope, receive, send)
        return seen

    assert asyncio.run(run()) == ["http.disconnect"] * 2


def test_by_default_others_read_no_files_and_ten_gigabytes_at_most(tmp_path: Path) -> None:
    policy = policy_of()
    assert (policy.largest_mb, policy.longest_s) == (10_000.0, 1800.0)
    assert (policy.private, policy.schemes) == (False, {"http", "https", "s3"})
    assert (policy.roots, policy.networks, policy.buckets) == ((), (), None)
    named = policy_of([tmp_path / "a" / ".."], ["10.1.2.3/16"], [])
    assert named.schemes == {"http", "https", "s3", "file"}
    assert (named.roots, named.buckets) == ((tmp_path.resolve(),), ())
    with pytest.raises(BadInput, match=r"10\.1\.0\.0/16"):
        policy_of(networks=["10.1/33"])


def test_a_body_has_a_minute_and_a_form_a_megabyte() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    limit = BodyLimitMiddleware(app, most_bytes=10)
    assert (limit.longest_s, limit.most_form_bytes) == (60.0, 1_000_000)
