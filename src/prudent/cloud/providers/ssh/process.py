"""A command under way by SSH: its session, its streams, and the shell scripts that start and end it.

The scripts are plain POSIX sh, for nothing of ours is installed on the machine.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import io
import shlex
import signal
import threading
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any, cast

import asyncssh

from prudent.cloud.providers.channel import LOST

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class CommandSession(asyncssh.SSHClientSession[bytes]):
    """Receives the output of a command, and its exit code as soon as it arrives.

    A child process that the command leaves behind may keep the output open long after that. The session
    belongs to the event loop; only `close` may be called from other threads.
    """

    def __init__(self) -> None:
        self.code: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._loop = asyncio.get_running_loop()
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._holding = 0
        self.stdout, self.stderr = CommandOutput(self._hold), CommandOutput(self._hold)

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
        """Stop or resume reading. Both streams share one SSH window, so a full one holds up the other."""
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
) -> CommandSession:
    """Begin a command; `stdin` is all that it reads, or None where the caller sends it.

    A command that ends before it has read everything is no error here: its exit code tells, and other
    commands share the connection.
    """
    _, made = await connection.create_session(CommandSession, command, encoding=None)
    session = cast(CommandSession, made)
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

    `sweep` ends them all through another session. `gone` tells whether the machine was given back; it is
    asked when a command fails, which is lost then, not failed.
    """

    def __init__(
        self, session: CommandSession, sweep: Callable[[float], None], gone: Callable[[], bool] | None = None
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


FULL = 1 << 20
"""At most this many unread bytes are kept: a reader that is slow slows the command down."""


class CommandOutput(io.RawIOBase):
    """What a command prints. The loop feeds it, a thread reads it: `read(n)` answers what there is.

    `hold` is called with True when it is full, with False when it was emptied again.
    """

    def __init__(self, hold: Callable[[bool], None]) -> None:
        super().__init__()
        self._hold = hold
        self._held = False
        self._buffer = bytearray()
        self._ended = False
        self._changed = threading.Condition()

    def feed(self, data: bytes) -> None:
        with self._changed:
            if self.closed or self._ended:
                return
            self._buffer += data
            full = len(self._buffer) > FULL and not self._held
            self._held = self._held or full
            self._changed.notify_all()
        if full:
            self._hold(True)

    def finish(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int:
        place = memoryview(into).cast("B")
        with self._changed:
            while not self._buffer and not self._ended and not self.closed:
                self._changed.wait()
            taken = min(len(place), len(self._buffer))
            place[:taken] = self._buffer[:taken]
            del self._buffer[:taken]
            freed = self._held and len(self._buffer) <= FULL // 2
            self._held = self._held and not freed
        if freed:
            self._hold(False)
        return taken

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line, without asking for every byte of it."""
        most = -1 if size is None else size
        line = b""
        while most < 0 or len(line) < most:
            with self._changed:
                while not self._buffer and not self._ended and not self.closed:
                    self._changed.wait()
                at = self._buffer.find(b"\n") + 1
                wanted = at or len(self._buffer)
            part = self.read(wanted if most < 0 else min(wanted, most - len(line))) if wanted else b""
            line += part or b""
            if not part or line.endswith(b"\n"):
                break
        return line

    def close(self) -> None:
        """What comes from now on is thrown away, so that the command is not held up."""
        with self._changed:
            held, self._held = self._held, False
            self._buffer.clear()
            super().close()
            self._changed.notify_all()
        if held:
            self._hold(False)


class CommandInput(io.RawIOBase):
    """What a command reads; `send` returns when it has been taken."""

    def __init__(self, send: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._send = send

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        content = bytes(data)
        self._send(content)
        return len(content)


_END, CUT_OFF = "#whole", 76
_RUN = f'case $s in *{_END}) eval "$s"; exit ;; esac; exit {CUT_OFF}'
READ_SCRIPT = f"exec /bin/sh -c 's=$(cat); exec </dev/null; {_RUN}'"
"""Runs the script (see `complete_script`) that arrives on the standard input. There the list of processes
does not show it: it holds the environment, and that may hold passwords."""

MEMBERS = """
members() {
  heads=' '
  for p in $(grep -lsF -- "$1" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\\n'); do
    tr '\\0' '\\n' 2>/dev/null < /proc/$p/environ | grep -qxF -- "$1" || continue
    state_of $p || continue
    echo $p
    [ "$session" = "$p" ] && heads="$heads$p "
  done 2>/dev/null
  [ "$heads" = ' ' ] && return 0
  for d in /proc/[0-9]*; do
    state_of ${d#/proc/} || continue
    case $heads in *" $session "*) echo ${d#/proc/} ;; esac
  done 2>/dev/null
}
state_of() {
  { read -r line < /proc/$1/stat; } 2>/dev/null || return 1
  set -- ${line##*) }
  session=$4
  case $1 in Z | X) return 1 ;; esac
}
end_all() {
  found=$(members "$1")
  if [ -n "$found" ] && [ "$2" -gt 0 ]; then
    kill -TERM $found 2>/dev/null
    kill -CONT $found 2>/dev/null
    left=$2
    while [ "$left" -gt 0 ] && [ -n "$(members "$1")" ]; do
      sleep 0.05
      left=$((left - 1))
    done
  fi
  left=100
  while [ "$left" -gt 0 ]; do
    found=$(members "$1")
    [ -z "$found" ] && return 0
    kill -KILL $found 2>/dev/null
    sleep 0.02
    left=$((left - 1))
  done
  return 1
}
"""
"""`members NAME=VALUE` lists who carries a variable, and everyone in a session that such a process began (a
child may have cleaned its environment); `end_all NAME=VALUE TICKS` asks them to end, and kills them after so
many twentieths of a second."""


def complete_script(script: str) -> bytes:
    """A script with the mark that `READ_SCRIPT` looks for: one that arrives in part is not begun."""
    return f"{script}\n{_END}\n".encode()


def end_all_script(variable: str, value: str, grace_s: float) -> str:
    """A script that ends all that carry a variable."""
    ticks = max(0, round(grace_s * 20))
    return f"{MEMBERS}\nend_all {shlex.quote(f'{variable}={value}')} {ticks}"


def command_script(command: str, environment: Mapping[str, str], directory: str) -> str:
    """A script that runs a command in a folder with an environment.

    >>> print(command_script("echo hi", {"A": "it's"}, "/tmp"))
    export A='it'"'"'s'
    cd -- /tmp || exit 126
    exec /bin/sh -c 'echo hi'
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines = [
        *exports,
        f"cd -- {shlex.quote(directory)} || exit 126",
        f"exec /bin/sh -c {shlex.quote(command)}",
    ]
    return "\n".join(lines)
