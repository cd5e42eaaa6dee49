"""A mail server that keeps what comes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller


@dataclass
class Post:
    """A mail server's handler that keeps what comes."""

    letters: list[EmailMessage] = field(default_factory=list)
    answer: str = "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - its name there
        if self.answer.startswith("250"):
            self.letters.append(message_from_bytes(envelope.content, policy=policy.default))  # type: ignore[arg-type]
        return self.answer

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, to: str, options: Any) -> str:  # noqa: N802
        if "nobody" in to:
            return "550 No such user"
        envelope.rcpt_tos.append(to)
        return "250 OK"


class MailServer(Controller):
    """Listens before it starts: a port that was only seen to be free may be another's by then."""

    def __init__(self, handler: Post, **how: Any) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        super().__init__(handler, "127.0.0.1", port, ready_timeout=60.0, **how)

    def _create_server(self) -> Any:
        return self.loop.create_server(self._factory_invoker, sock=self._listening)


@contextmanager
def serving(handler: Post, **how: Any) -> Iterator[tuple[Post, int]]:
    controller = MailServer(handler, **how)
    controller.start()
    try:
        yield handler, controller.port
    finally:
        controller.stop()
