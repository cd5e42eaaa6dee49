"""A machine entered by SSH: commands with everything they start, and files."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import tarfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path, PurePosixPath
from typing import IO, Self, cast

import asyncssh

from prudent.cloud.processes import COOKIE
from prudent.cloud.providers.channel import LOST, inside
from prudent.cloud.providers.ssh.connection import Login, LoginFailed, connect, run_on_loop
from prudent.cloud.providers.ssh.files import (
    LISTING,
    differing,
    local_files,
    pack,
    parse_listing,
    unpack,
)
from prudent.cloud.providers.ssh.process import (
    READ_SCRIPT,
    CommandInput,
    CommandSession,
    SshProcess,
    command_script,
    complete_script,
    end_all_script,
    open_session,
)
from prudent.core.errors import PrudentError, RunFailed

_OPEN_S = 30.0
_DRAIN_S = 2.0
_MOVE_S = 3600.0


class SshChannel:
    """One machine, by SSH. Entering it is done at once: `LoginFailed` tells what is wrong.

    `workspace` is a folder there, from the login's home on if it is not absolute; `environment` is given to
    every command. When a connection breaks, its commands are `LOST`, and the next command makes a new one.
    `ours` is a shell test that succeeds as long as the machine is ours: a command that fails while `ours`
    fails too is `LOST`.
    """

    def __init__(
        self,
        login: Login,
        workspace: str = ".",
        environment: Mapping[str, str] | None = None,
        ours: str | None = None,
    ) -> None:
        self._login = login
        self._ours = ours
        self._environment = dict(environment or {})
        self._lock = threading.Lock()
        self._connections: list[asyncssh.SSHClientConnection] = []
        try:
            self._workspace = self._entered(workspace)
        except BaseException:
            self.close()
            raise

    @property
    def workspace(self) -> str:
        return self._workspace

    def start(
        self, command: str, environment: Mapping[str, str] | None = None, directory: str | None = None
    ) -> SshProcess:
        cookie = secrets.token_hex(16)
        carried = {**self._environment, **(environment or {}), COOKIE: cookie}
        place = self._path(directory or "")
        session = self._open(READ_SCRIPT, complete_script(command_script(command, carried, place)))
        return SshProcess(session, lambda grace_s: self._sweep(cookie, grace_s), self._gone)

    def run(
        self, command: str, environment: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> tuple[int, str, str]:
        process = self.start(command, environment)
        with process.stdout, process.stderr:
            code, out, err = self._drained(process, timeout_s, grace_s=1.0)
        if code is None:
            raise RunFailed(
                f'"{command[:60]}" did not end within {timeout_s:g} s on {self._login.title}; give it '
                "longer, or see what it waits for."
            )
        return code, out.decode(errors="replace"), err.decode(errors="replace")

    def put(self, source: Path, target: str, exclude: Sequence[str] = ()) -> int:
        place = self._path(target)
        files = list(local_files(Path(source), exclude))
        if Path(source).is_file():
            there, name = PurePosixPath(place).parent, PurePosixPath(place).name
            files = [type(file)(file.path, name, file.stamp) for file in files]
            place = str(there)
        code, listed, err = self._bytes(f"mkdir -p -- {_word(place)} && cd -- {_word(place)} && {LISTING}")
        self._demand(code, err, f"The folder {place}")
        wanted = differing(files, parse_listing(listed))
        if not wanted:
            return 0
        session = self._open(f"exec /bin/sh -c {_word(f'cd -- {_word(place)} && exec tar -xpof -')}", None)
        process = SshProcess(session, lambda grace_s: session.close())
        with process.stdout, process.stderr:
            moved = 0
            with contextlib.suppress(BrokenPipeError):
                moved = pack(
                    wanted,
                    cast(IO[bytes], CommandInput(lambda data: run_on_loop(session.send(data)))),
                )
            run_on_loop(session.send_eof())
            ended, _, err = self._drained(process, _MOVE_S)
        self._demand(ended, err, f"Bringing {source}")
        return moved

    def get(self, source: str, target: Path) -> int:
        path = self._path(source)
        code, kind, _ = self.shell(
            f"if [ -d {_word(path)} ]; then echo folder; else [ -f {_word(path)} ]; fi"
        )
        if code == LOST:
            raise self._lost()
        if code != 0:
            raise RunFailed(f'There is no "{source}" on {self._login.title}; check what the command writes.')
        if kind.strip() == "folder":
            return self._fetch(f"exec tar -cf - -C {_word(path)} .", Path(target))
        name = PurePosixPath(path).name
        target = Path(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            moved = self._fetch(
                f"exec tar -chf - -C {_word(str(PurePosixPath(path).parent))} {_word(name)}", part
            )
            os.replace(part / name, target)
        finally:
            with contextlib.suppress(OSError):
                part.rmdir()
        return moved

    def shell(self, script: str, timeout_s: float = 60.0) -> tuple[int, str, str]:
        """Run a script of ours in the login's home, without the environment of commands."""
        code, out, err = self._bytes(script, timeout_s)
        return code, out.decode(errors="replace"), err.decode(errors="replace")

    def close(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            with contextlib.suppress(FutureTimeout, OSError, asyncssh.Error):
                run_on_loop(_closed(connection), timeout_s=_DRAIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside

    def _entered(self, workspace: str) -> str:
        folder = _word(workspace)
        make = "true" if self._ours else f"mkdir -p -- {folder}"  # what was given back must not come again
        code, out, err = self.shell(f"{make} && cd -- {folder} && pwd -P")
        if code == 0:
            return out.strip()
        if self._ours:
            raise RunFailed(f"{self._login.title} is no longer ours: its lease is over; start it again.")
        raise RunFailed(
            f"The folder {workspace} on {self._login.title} cannot be made ({_last(err)}); free some space "
            "there, or make it writable."
        )

    def _fetch(self, command: str, target: Path) -> int:
        session = self._open(f"exec /bin/sh -c {_word(command)}", b"")
        process = SshProcess(session, lambda grace_s: session.close())
        with process.stdout, process.stderr:
            said = _StreamReader(process.stderr)
            try:
                moved = unpack(process.stdout, target)
                while process.stdout.read(1 << 16):
                    pass  # the padding behind the last member
            except tarfile.ReadError:
                moved = 0  # cut off; the exit code tells why
            code = process.wait(_MOVE_S)
            self._demand(code, said.text(), f"Fetching {target.name}")
        return moved

    def _bytes(self, script: str, timeout_s: float = 60.0) -> tuple[int, bytes, bytes]:
        session = self._open(READ_SCRIPT, complete_script(script))
        process = SshProcess(session, lambda grace_s: session.close())
        with process.stdout, process.stderr:
            code, out, err = self._drained(process, timeout_s)
        return LOST if code is None else code, out, err

    def _gone(self) -> bool:
        """Whether the machine was given back meanwhile; one that no longer answers is gone as well."""
        try:
            return self._ours is not None and self.shell(self._ours, 15.0)[0] != 0
        except PrudentError:
            return True

    def _drained(
        self, process: SshProcess, timeout_s: float, grace_s: float = 0.0
    ) -> tuple[int | None, bytes, bytes]:
        """Exit code and output of a command; None if it does not end in time, and then it is ended."""
        said, complaint = _StreamReader(process.stdout), _StreamReader(process.stderr)
        code = process.wait(timeout_s)
        if code is None:
            process.end(grace_s)
        return code, said.text(), complaint.text()

    def _sweep(self, cookie: str, grace_s: float) -> None:
        with contextlib.suppress(RunFailed):
            self.shell(end_all_script(COOKIE, cookie, grace_s), timeout_s=grace_s + 15.0)

    def _open(self, command: str, stdin: bytes | None) -> CommandSession:
        try:
            return run_on_loop(self._opened(command, stdin), _OPEN_S + self._login.timeout_s)
        except (asyncssh.Error, OSError, FutureTimeout) as error:
            why = str(error) or type(error).__name__
            raise RunFailed(f"{self._login.title} no longer answers ({why}); check that it runs.") from error

    async def _opened(self, command: str, stdin: bytes | None) -> CommandSession:
        for connection in self._living():
            try:
                return await open_session(connection, command, stdin)
            except asyncssh.ChannelOpenError:
                continue  # a server allows so many sessions per connection (OpenSSH: ten)
            except (asyncssh.Error, OSError):
                connection.abort()
        connection = await connect(self._login)
        with self._lock:
            self._connections.append(connection)
        return await open_session(connection, command, stdin)

    def _living(self) -> list[asyncssh.SSHClientConnection]:
        with self._lock:
            self._connections = [one for one in self._connections if not one.is_closed()]
            return list(self._connections)

    def _path(self, path: str) -> str:
        if path == self._workspace or path.startswith(f"{self._workspace}/"):
            path = path[len(self._workspace) + 1 :]
        return str(PurePosixPath(self._workspace) / inside(path))

    def _demand(self, code: int | None, complaint: bytes, what: str) -> None:
        if code in (None, LOST):
            raise self._lost()
        if code != 0:
            said = _last(complaint.decode(errors="replace"))
            full = "space" in said or "quota" in said.lower()
            remedy = "free some space there" if full else "check that the folder can be written to"
            raise RunFailed(f"{what} failed on {self._login.title} ({said}); {remedy}.")

    def _lost(self) -> RunFailed:
        return RunFailed(f"The connection to {self._login.title} was lost; check that the machine runs.")


class _StreamReader:
    """Reads a stream to its end in the background."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(ValueError, OSError):
            while part := stream.read(1 << 16):
                self._parts.append(part)

    def text(self) -> bytes:
        """What came until now; the last of it may take a moment after the end of the command."""
        self._thread.join(_DRAIN_S)
        return b"".join(self._parts)


async def _closed(connection: asyncssh.SSHClientConnection) -> None:
    connection.close()
    await connection.wait_closed()


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no reason given"


def _word(text: str) -> str:
    """
    >>> _word("~/x y"), _word("-v")
    ("'~/x y'", './-v')
    """
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


__all__ = ["Login", "LoginFailed", "SshChannel"]
