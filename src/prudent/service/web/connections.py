"""Connections that nobody holds open for nothing.

uvicorn waits for ever for a request that has begun: whoever sends half of its headers, or goes on with a body
after the answer, a byte now and then, keeps the connection. Here such a request has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_AT_A_TIME = 8
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
)
_BODY = (
    b'{"type": "about:blank", "title": "Request Timeout", "status": 408, '
    b'"detail": "The headers were not here in time; send them faster."}'
)


class Connection(H11Protocol):
    """A connection on which requests must come whole, up to their body, within `longest_s`.

    The time runs from when the connection is made or the first byte after an answer comes, until an
    application has the request. How long a body may take is up to the layer that reads it, and how long an
    idle connection is kept to uvicorn.
    """

    longest_s = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._mind()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind()

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

    def _mind(self) -> None:
        if self._is_at_work or self.transport.is_closing():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.longest_s, self._give_up)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            if self.cycle is None:
                self.transport.write(_TOO_SLOW % (len(_BODY), _BODY))
            self.transport.close()


class Front(uvicorn.Server):
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
    return type("Connection", (Connection,), {"longest_s": longest_s})


def raise_open_files() -> None:
    """Let this process have as many connections as the system allows; by default it is a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
