"""Bodies within a size and a time, whether they say their length or come in chunks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from prudent.service.security.refusal import Application, Message, Receive, Scope, Send, header, refuse


class _Stopped(Exception):
    """Reading went on after the limit."""


@dataclass
class _Count:
    size: int = 0
    whole: bool = False
    status: int = 0
    answered: bool = False


@dataclass(frozen=True)
class BodyLimit:
    """Refuses bodies over `most_bytes` (413) and those not here after `longest_s` (408).

    What a request says of its length is checked first, and what comes is counted: a chunked body says
    nothing. The application cannot swallow it: its own answer, made of half a body, is replaced.
    """

    app: Application
    most_bytes: int
    longest_s: float = 60.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        said = header(scope, b"content-length")
        if said and not (said.isascii() and said.isdecimal()):
            await refuse(send, 400, "The Content-Length is no number; leave it to your client.")
        elif said and int(said) > self.most_bytes:
            await self._too_large(send)
        else:
            await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        count = _Count()
        until_s = asyncio.get_running_loop().time() + self.longest_s

        async def counted() -> Message:
            if count.status:
                raise _Stopped
            if count.whole:
                return await receive()
            try:
                async with asyncio.timeout_at(until_s):
                    message = await receive()
            except TimeoutError as error:
                count.status = 408
                raise _Stopped from error
            count.size += len(message.get("body", b""))
            count.whole = message["type"] != "http.request" or not message.get("more_body", False)
            if count.size > self.most_bytes:
                count.status = 413
                raise _Stopped
            return message

        async def answered(message: Message) -> None:
            if not count.status or count.answered:
                count.answered = True
                await send(message)

        try:
            await self.app(scope, counted, answered)
        except _Stopped:
            pass
        except Exception:
            if not count.status:
                raise
        if count.status and not count.answered:
            await self._stop(count.status, send)

    async def _stop(self, status: int, send: Send) -> None:
        if status == 413:
            await self._too_large(send)
        else:
            await refuse(send, 408, f"The body was not here after {self.longest_s:g} s; send it faster.")

    async def _too_large(self, send: Send) -> None:
        most = f"{self.most_bytes / 1e6:g} MB"
        closing = {"connection": "close"}  # what is still on its way is not read
        await refuse(send, 413, f"The body is larger than {most}; send less or name a file.", closing)
