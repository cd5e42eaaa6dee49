"""Bodies within a size and a time, whether they say their length or come in chunks."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from prudent.service.security.refusal import Application, Message, Receive, Scope, Send, header, refuse

_SMALL = 1 << 16
_PER_USER, _IN_ALL = 4, 16


class _Stopped(Exception):
    """Reading went on after the limit."""


@dataclass
class _Count:
    size: int = 0
    whole: bool = False
    status: int = 0
    answered: bool = False
    user: str = ""
    held: int = 0
    begun_s: float | None = None

    def deadline_s(self, longest_s: float) -> float:
        """When it must be here. The time runs from the first read: who waits for a turn is not slow."""
        if self.begun_s is None:
            self.begun_s = asyncio.get_running_loop().time()
        return self.begun_s + longest_s


class Held:
    """Bytes of large bodies that are held at this moment, of each user and in all."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    def add(self, user: str, size: int) -> None:
        self._bytes[user] += size
        if not self._bytes[user]:
            del self._bytes[user]

    def exceeds(self, user: str, most_of_user: int, most: int) -> bool:
        return self._bytes[user] > most_of_user or self._bytes.total() > most


@dataclass(frozen=True)
class BodyLimit:
    """Refuses bodies over `most_bytes` (413) and those not here `longest_s` after they are first read (408).

    Forms are for people, and to read one takes long: they may have `most_form_bytes`. Of large bodies a few
    are held at a time; a user who sends more at once is asked to wait (429).

    What a request says of its length is checked first, and what comes is counted: a chunked body says
    nothing. The application cannot swallow it: its own answer, made of half a body, is replaced.
    """

    app: Application
    most_bytes: int
    longest_s: float = 60.0
    most_form_bytes: int = 1_000_000
    held: Held = field(default_factory=Held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        said = header(scope, b"content-length")
        if said and not (said.isascii() and said.isdecimal()):
            await refuse(send, 400, "The Content-Length is no number; leave it to your client.")
        elif said and int(said) > self._most(scope):
            await self._too_large(scope, send)
        else:
            await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        count, most = _Count(), self._most(scope)
        said = int(header(scope, b"content-length") or 0)

        async def counted() -> Message:
            if count.status:
                raise _Stopped
            if count.whole:
                return await receive()
            self._hold(scope, count, max(count.size, said))
            try:
                async with asyncio.timeout_at(count.deadline_s(self.longest_s)):
                    message = await receive()
            except TimeoutError as error:
                count.status = 408
                raise _Stopped from error
            count.size += len(message.get("body", b""))
            count.whole = message["type"] != "http.request" or not message.get("more_body", False)
            if count.size > most:
                count.status = 413
                raise _Stopped
            self._hold(scope, count, max(count.size, said))
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
        finally:
            self.held.add(count.user, -count.held)
        if count.status and not count.answered:
            await self._stop(count.status, scope, send)

    def _most(self, scope: Scope) -> int:
        is_form = header(scope, b"content-type").startswith("application/x-www-form-urlencoded")
        return min(self.most_bytes, self.most_form_bytes) if is_form else self.most_bytes

    def _hold(self, scope: Scope, count: _Count, size: int) -> None:
        """Count what is held of a large body, or will be; by now it is known whose it is."""
        if size <= max(_SMALL, count.held):
            return
        if not count.held:
            count.user = str(getattr(scope.get("state", {}).get("user"), "name", ""))
        self.held.add(count.user, size - count.held)
        count.held = size
        if self.held.exceeds(count.user, _PER_USER * self.most_bytes, _IN_ALL * self.most_bytes):
            count.status = 429
            raise _Stopped

    async def _stop(self, status: int, scope: Scope, send: Send) -> None:
        if status == 413:
            await self._too_large(scope, send)
        elif status == 429:
            later = {"retry-after": "2", "connection": "close"}
            await refuse(send, 429, "Too much is being sent at a time; send large bodies one by one.", later)
        else:
            await refuse(send, 408, f"The body was not here after {self.longest_s:g} s; send it faster.")

    async def _too_large(self, scope: Scope, send: Send) -> None:
        most = f"{self._most(scope) / 1e6:g} MB"
        closing = {"connection": "close"}  # what is still on its way is not read
        await refuse(send, 413, f"The body is larger than {most}; send less or name a file.", closing)
