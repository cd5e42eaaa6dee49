"""Commands that share a connection: what becomes of one is not a matter of the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from prudent.cloud.providers.ssh.process import CommandSession, open_session


class Ending:
    """A connection on which every command ends at once, before it has read anything."""

    def __init__(self, closed: bool) -> None:
        self._closed = closed

    async def create_session(
        self, made: type[CommandSession], command: str, encoding: None
    ) -> tuple[None, CommandSession]:
        del command, encoding
        session = made()
        session.exit_status_received(3)
        session.connection_lost(None)
        return None, session

    def is_closed(self) -> bool:
        return self._closed


def _open(closed: bool) -> CommandSession:
    connection: Any = Ending(closed)
    return asyncio.run(open_session(connection, "exit 3", b"not read"))


def test_a_command_that_ends_before_it_has_read_its_input_has_an_exit_code() -> None:
    assert _open(closed=False).code.result(0) == 3


def test_a_connection_that_goes_is_told() -> None:
    with pytest.raises(BrokenPipeError):
        _open(closed=True)
