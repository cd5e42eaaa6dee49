"""Who sends many requests at once waits for themselves; nobody else does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from prudent.service.security.authentication import AuthMiddleware
from prudent.service.security.browser_sessions import BrowserSessions
from prudent.service.security.rate_limits import ConcurrencyLimit, TooManyWaiting
from prudent.service.security.tokens import hash_token, new_token
from prudent.service.store.users import MEMBER, User

TOKENS = {"ada": new_token(), "eve": new_token()}
USERS = [User(name, MEMBER, token_hash=hash_token(token)) for name, token in TOKENS.items()]


async def settled() -> None:
    """Let everything go on that can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Office:
    """A gate before an application that answers when the test says so."""

    def __init__(self, turns: ConcurrencyLimit) -> None:
        self.begun: list[str] = []
        self.answers: list[asyncio.Future[None]] = []
        self.statuses: list[tuple[str, int]] = []
        self.more = asyncio.Event()
        self.gate = AuthMiddleware(self._app, self._accounts, BrowserSessions(b"key" * 11), concurrency=turns)

    async def _accounts(self) -> Sequence[User]:
        return USERS

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.append(f"{scope['state']['user'].name} {scope['path']}")
        answer = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        await answer
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await self.more.wait()
        await send({"type": "http.response.body", "body": b""})

    def ask(self, user: str, path: str, method: str = "GET") -> asyncio.Task[None]:
        headers = [(b"authorization", f"Bearer {TOKENS[user]}".encode())]
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "client": None}

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append((user, message["status"]))

        return asyncio.create_task(self.gate({**scope, "query_string": b""}, receive, send))

    def answer(self) -> None:
        self.answers.pop(0).set_result(None)


def run(play: Callable[[Office], Coroutine[Any, Any, None]], turns: ConcurrencyLimit) -> None:
    async def played() -> None:
        await play(Office(turns))

    asyncio.run(played())


def test_one_user_has_some_turns_and_others_have_theirs() -> None:
    async def play(office: Office) -> None:
        for number in range(4):
            office.ask("eve", f"/{number}")
        office.ask("ada", "/a")
        await settled()
        assert office.begun == ["eve /0", "eve /1", "ada /a"], "ada waits for none of eve's"
        office.answer()
        await settled()
        assert office.begun[3:] == ["eve /2"], "first come, first served"

    run(play, ConcurrencyLimit(at_once=2))


def test_more_than_may_wait_are_asked_to_come_later() -> None:
    async def play(office: Office) -> None:
        for number in range(5):
            office.ask("eve", f"/{number}")
        await settled()
        assert office.statuses == [("eve", 429), ("eve", 429)]
        assert office.begun == ["eve /0"]

    run(play, ConcurrencyLimit(at_once=1, waiting=2))


def test_what_is_still_sent_takes_no_turn() -> None:
    async def play(office: Office) -> None:
        stream = office.ask("eve", "/stream")
        await settled()
        office.answer()
        await settled()
        office.ask("eve", "/next")
        await settled()
        assert not stream.done()
        assert office.begun == ["eve /stream", "eve /next"]

    run(play, ConcurrencyLimit(at_once=1))


def test_who_sends_can_look_meanwhile() -> None:
    async def play(office: Office) -> None:
        office.ask("eve", "/v1/runs/train", "POST")
        office.ask("eve", "/v1/runs/train", "POST")
        office.ask("eve", "/v1/runs")
        await settled()
        assert office.begun == ["eve /v1/runs/train", "eve /v1/runs"]

    run(play, ConcurrencyLimit(at_once=1))


def test_who_leaves_the_line_takes_no_turn_with_them_and_is_forgotten() -> None:
    async def play() -> None:
        turns = ConcurrencyLimit(at_once=1, waiting=5)
        order: list[str] = []

        async def work(name: str, go: asyncio.Event) -> None:
            async with turns.slot("eve"):
                order.append(name)
                await go.wait()

        go = asyncio.Event()
        tasks = [asyncio.create_task(work(name, go)) for name in ("a", "b", "c")]
        await settled()
        tasks[1].cancel()
        go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["a", "c"]
        first = asyncio.create_task(work("d", held := asyncio.Event()))
        await settled()
        second = asyncio.create_task(work("e", held))
        await settled()
        held.set()
        await first  # in this moment the turn is handed to the second
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        async with turns.slot("eve"):
            pass
        assert not turns._taken
        assert not turns._lines

    asyncio.run(play())


def test_an_empty_line_refuses_at_once() -> None:
    async def play() -> None:
        turns = ConcurrencyLimit(at_once=1, waiting=0)
        async with turns.slot("eve"):
            with pytest.raises(TooManyWaiting):
                async with turns.slot("eve"):
                    raise AssertionError

    asyncio.run(play())
