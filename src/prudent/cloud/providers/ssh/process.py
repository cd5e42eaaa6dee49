"""A command under way on a machine that was entered by SSH."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import signal
from collections.abc import Callable
from typing import IO, cast

import asyncssh

from prudent.cloud.providers.channel import LOST
from prudent.cloud.providers.ssh.streams import Inlet


class Session(asyncssh.SSHClientSession[bytes]):
    """Hands on what a command prints, and its exit code as soon as it arrives.

    A child that was left behind may keep the output open for long after that. All of it lives on the loop.
    """

    def __init__(self) -> None:
        self.code: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._loop = asyncio.get_running_loop()
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._holding = 0
        self.stdout, self.stderr = Inlet(self._hold), Inlet(self._hold)

    # Called by asyncssh

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        (self.stdout if datatype is None else self.stderr).feed(data)

    def eof_received(self) -> bool:
        self.stdout.finish()
        self.stderr.finish()
        return True

    def exit_status_received(self, status: int) -> None:
        self._settle(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        del core_dumped, msg, lang
        self._settle(-_number(signal))

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._settle(LOST)
        self._channel = None
        self._may_write.set()
        self.stdout.finish()
        self.stderr.finish()

    # Called by us

    async def send(self, data: bytes) -> None:
        """Hand it input, as fast as it takes it; BrokenPipeError if it is gone."""
        await self._may_write.wait()
        if self._channel is None or self._channel.is_closing():
            raise BrokenPipeError
        self._channel.write(data)

    async def send_eof(self) -> None:
        await self._may_write.wait()
        if self._channel is not None:
            with contextlib.suppress(BrokenPipeError, OSError):
                self._channel.write_eof()

    def close(self) -> None:
        """Let go of it, from any thread."""
        self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _hold(self, full: bool) -> None:
        self._loop.call_soon_threadsafe(self._held, full)

    def _held(self, full: bool) -> None:
        """Both streams share one window, so that one full stream holds up both."""
        self._holding += 1 if full else -1
        if self._channel is not None:
            if self._holding > 0:
                self._channel.pause_reading()
            else:
                self._channel.resume_reading()

    def _settle(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)


async def open_session(
    connection: asyncssh.SSHClientConnection, command: str, stdin: bytes | None
) -> Session:
    """Begin a command; `stdin` is all that it reads, or None where the caller sends it.

    One that ends before it has read everything tells so by its exit code: others share the connection.
    """
    _, made = await connection.create_session(Session, command, encoding=None)
    session = cast(Session, made)
    if stdin is not None:
        try:
            await session.send(stdin)
        except BrokenPipeError:
            if connection.is_closed():
                raise
        await session.send_eof()
    return session


class SshProcess:
    """One command and everything it started.

    `sweep` ends them all through a session of its own; `gone` tells whether the machine was given back,
    which is asked where a command ended badly: then it is lost, not failed.
    """

    def __init__(
        self, session: Session, sweep: Callable[[float], None], gone: Callable[[], bool] | None = None
    ) -> None:
        self._session = session
        self._sweep = sweep
        self._gone = gone
        self._ended_by_us = False
        self._code: int | None = None

    @property
    def stdout(self) -> IO[bytes]:
        return cast(IO[bytes], self._session.stdout)

    @property
    def stderr(self) -> IO[bytes]:
        return cast(IO[bytes], self._session.stderr)

    def wait(self, timeout_s: float | None = None) -> int | None:
        if self._code is None:
            try:
                code = self._session.code.result(timeout_s)
            except concurrent.futures.TimeoutError:
                return None
            lost = code not in (0, LOST) and not self._ended_by_us and self._gone is not None and self._gone()
            self._code = LOST if lost else code
        return self._code

    def end(self, grace_s: float) -> None:
        """Ends what it left behind, too; where the machine is lost, its own switch will do that."""
        if self._session.code.done() and self._session.code.result() == LOST:
            return
        self._ended_by_us = self._ended_by_us or not self._session.code.done()
        self._sweep(grace_s)
        with contextlib.suppress(concurrent.futures.TimeoutError):
            self._session.code.result(5.0)


def _number(name: str) -> int:
    try:
        return int(signal.Signals[f"SIG{name.partition('@')[0]}"])
    except KeyError:
        return int(signal.SIGKILL)
