"""Half-sent requests: their connections are closed, those of others are not."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from prudent.service.web.connections import GradualServer, connection_type

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
ANSWER = [
    {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]},
    {"type": "http.response.body", "body": b"ok"},
]


async def app(scope: Any, receive: Any, send: Any) -> None:
    for message in ANSWER:
        await send(message)


class Timer:
    def __init__(self, at_s: float, work: Callable[[], None]) -> None:
        self.at_s, self.work, self.cancelled = at_s, work, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A clock that the test moves, and requests that are answered when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []
        self.requests: list[Any] = []

    def call_later(self, wait_s: float, work: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_s + wait_s, work))
        return self.timers[-1]

    def create_task(self, request: Any) -> Future[None]:
        self.requests.append(request)
        return Future()

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        due = [each for each in self.timers if each.at_s <= self.now_s]
        self.timers = [each for each in self.timers if each.at_s > self.now_s]
        for timer in due:
            if not timer.cancelled:
                timer.work()

    def answer(self) -> None:
        with suppress(StopIteration):
            self.requests.pop(0).send(None)


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.said, self.closed, self.paused = b"", False, False

    def write(self, data: Any) -> None:
        self.said += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Line:
    """A connection with a deadline of 10 s, kept for 100 s when it is idle."""

    def __init__(self) -> None:
        self.loop, self.transport = Loop(), Transport()
        config = uvicorn.Config(app, timeout_keep_alive=100, log_config=None)
        self.protocol = connection_type(10.0)(config, ServerState(), {}, _loop=self.loop)
        self.protocol.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD[:-2]])
def test_a_request_that_does_not_come_is_given_up(line: Line, sent: bytes) -> None:
    if sent:
        line.send(sent)
    line.loop.pass_s(9.9)
    assert not line.transport.closed
    line.loop.pass_s(0.2)
    assert line.transport.closed
    assert line.transport.said.startswith(b"HTTP/1.1 408 ")
    assert b"send them faster" in line.transport.said


def test_a_byte_now_and_then_is_not_enough(line: Line) -> None:
    line.send(HEAD[:-2])
    for _ in range(11):
        line.loop.pass_s(1.0)
        if not line.transport.closed:
            line.send(b"X")
    assert line.transport.closed


def test_headers_byte_by_byte_are_looked_at_once_a_second(line: Line) -> None:
    """Hundreds of such connections would otherwise keep the process from answering others."""
    looks = 0
    for number in range(90):
        if not line.transport.paused:
            looks += 1
            line.send(HEAD[:1] if not number else b"X")
        line.loop.pass_s(0.1)
    assert not line.transport.closed
    assert looks <= 4 + 10
    line.loop.pass_s(2.0)
    assert line.transport.closed


def test_headers_in_a_few_pieces_and_the_rest_of_a_body_are_taken_as_they_come(line: Line) -> None:
    for start in range(0, len(HEAD), 12):
        line.send(HEAD[start : start + 12])
        assert not line.transport.paused
    line.loop.answer()
    line.send(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nx")
    line.loop.answer()  # without having read it
    for _ in range(50):
        line.send(b"x" * 1000)
        assert not line.transport.paused


def test_a_body_that_goes_on_after_the_answer_is_cut(line: Line) -> None:
    line.send(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nx")
    line.loop.answer()
    assert line.transport.said.startswith(b"HTTP/1.1 200")
    for _ in range(12):
        line.send(b"x")
        line.loop.pass_s(1.0)
    assert line.transport.closed


def test_who_waits_for_an_answer_or_keeps_the_line_is_not_cut(line: Line) -> None:
    line.loop.pass_s(5.0)
    line.send(HEAD)
    line.loop.pass_s(1000.0)  # as long as it takes to answer
    line.loop.answer()
    line.loop.pass_s(50.0)  # idle is not half-sent
    line.send(HEAD + HEAD)  # the second waits for the first
    line.loop.pass_s(50.0)
    line.loop.answer()
    line.loop.pass_s(50.0)
    line.loop.answer()
    assert not line.transport.closed
    assert line.transport.said.count(b"ok") == 3
    line.send(HEAD[:5])
    line.loop.pass_s(10.0)
    assert line.transport.closed


def test_a_crowd_is_let_in_a_few_at_a_time() -> None:
    """Whoever is connected already is answered in between."""
    ticks, made = 0, list[int]()

    class Noting(connection_type(10.0)):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made.append(ticks)

    async def play() -> None:
        def tick() -> None:
            nonlocal ticks
            ticks += 1
            asyncio.get_running_loop().call_soon(tick)

        with socket.create_server(("127.0.0.1", 0), backlog=200) as listening, ExitStack() as lines:
            for _ in range(50):
                lines.enter_context(socket.create_connection(listening.getsockname(), timeout=120))
            config = uvicorn.Config(app, http=Noting, lifespan="off", log_level="error", backlog=200)
            server = GradualServer(config)
            tick()
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            while len(made) < 50:
                await asyncio.sleep(0)
            server.should_exit = server.force_exit = True
            await serving

    asyncio.run(play())
    assert max(Counter(made).values()) <= 8


def test_on_a_real_server() -> None:
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http=connection_type(0.2), log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    place = server.servers[0].sockets[0].getsockname()
    with socket.create_connection(place, timeout=120) as opened:
        opened.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert opened.recv(1 << 16).startswith(b"HTTP/1.1 408 ")
        assert opened.recv(1 << 16) == b""
    server.should_exit = True
    thread.join()


def test_what_is_loaded_is_not_searched_for_garbage_again() -> None:
    """Everybody would wait meanwhile. In a process of its own: it is for as long as a process lives."""
    code = (
        "import gc, sys; from prudent.service.web.connections import answer_promptly; answer_promptly();"
        "print(gc.get_freeze_count() > len(gc.get_objects()), sys.getswitchinterval())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "True 0.001\n"
