"""Deadlines for connections: a request must arrive within a time.

uvicorn waits for ever for a request that has begun: whoever sends half of its headers, or goes on with a body
after the answer, a byte now and then, keeps the connection. Here such a request has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import socket
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_AT_A_TIME = 8
_PIECES, _PAUSE_S = 4, 1.0
_SWITCH_S = 0.001
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
)
_BODY = (
    b'{"type": "about:blank", "title": "Request Timeout", "status": 408, '
    b'"detail": "The headers were not here in time; send them faster."}'
)


class DeadlineConnection(H11Protocol):
    """A connection on which requests must come whole, up to their body, within `longest_s`.

    The time runs from when the connection is made or the first byte after an answer comes, until an
    application has the request. How long a body may take is up to the layer that reads it, and how long an
    idle connection is kept to uvicorn.

    Headers that come in more than a few pieces are looked at once a second: to look at every byte of hundreds
    of slow ones would delay everybody.
    """

    longest_s = 10.0
    _deadline: asyncio.TimerHandle | None = None
    _pieces = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()
        if self._deadline is not None and (self.cycle is None or not self.cycle.more_body):
            self._take_time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_at_work:  # the next request came together with the last one
            self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    @property
    def _is_at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _set_deadline(self) -> None:
        if self._is_at_work or self.transport.is_closing():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.longest_s, self._give_up)

    def _take_time(self) -> None:
        self._pieces += 1
        if self._pieces > _PIECES:
            self.flow.pause_reading()
            self.loop.call_later(_PAUSE_S, self.flow.resume_reading)

    def _forget(self) -> None:
        self._pieces = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            if self.cycle is None:
                self.transport.write(_TOO_SLOW % (len(_BODY), _BODY))
            self.transport.close()


class GradualServer(uvicorn.Server):
    """Takes a few new connections at a time, and answers in between those who are connected already.

    As many as a server may have waiting are otherwise taken at once, and everybody else waits until the
    requests of all of them were looked at.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        waiting = self.config.backlog
        self.config.backlog = _AT_A_TIME
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(waiting)  # the others wait in the kernel, and are not refused


def connection_type(longest_s: float) -> type[Any]:
    """The class that uvicorn makes a connection of, with this deadline."""
    return type("Connection", (DeadlineConnection,), {"longest_s": longest_s})


def answer_promptly() -> None:
    """Let the thread that answers wait neither for those that compute nor for the garbage collector.

    A thread that computes lets it run after a millisecond, not after five. What is loaded by now stays for
    good, and is not searched for garbage again: that takes a tenth of a second each time.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()


def raise_open_files() -> None:
    """Let this process have as many connections as the system allows; by default it is a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
