"""Logging in to a machine by SSH: how, what went wrong, and the event loop of all connections.

The host key is always checked: who can stand between us and a machine could read the data and the results,
and give us any answer.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from prudent.core.errors import BadInput, RunFailed

CLOSED, DENIED, CHANGED, STRANGER, BROKEN = "closed", "denied", "changed", "unknown", "broken"
"""Why a login failed: nobody answers; the key is refused; another host key than known; none known; else."""

_KEEPALIVE_S = 5.0
_KEEPALIVES = 3


class LoginFailed(RunFailed):
    """No way into a machine; `kind` says why."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Login:
    """Where a machine is and how to be let in.

    `key` is the file of a private key; without one the agent and the usual files of `~/.ssh` are tried.
    The machine is known by `host_key` (a line like `ssh-ed25519 AAAA…`), else by a `known_hosts` file
    (`~/.ssh/known_hosts` where none is named).
    """

    address: str
    user: str | None = None
    port: int = 22
    key: Path | None = None
    host_key: str | None = None
    known_hosts: Path | None = None
    name: str = ""
    timeout_s: float = 15.0

    @property
    def title(self) -> str:
        """The machine as messages call it.

        >>> Login("10.0.0.7", name="alpha").title, Login("10.0.0.7", port=2222).title
        ('alpha (10.0.0.7:22)', '10.0.0.7:2222')
        """
        place = f"{self.address}:{self.port}"
        return f"{self.name} ({place})" if self.name else place


async def connect(login: Login) -> asyncssh.SSHClientConnection:
    """Log in, or `LoginFailed` with one sentence that ends with the remedy."""
    known = _known(login)
    guard = _HostKeyRecorder()
    options: dict[str, Any] = {} if login.user is None else {"username": login.user}
    if login.key is not None:
        options |= {"client_keys": [str(login.key)], "agent_path": None}
    try:
        return await asyncssh.connect(
            login.address,
            login.port,
            known_hosts=known,
            client_factory=lambda: guard,
            config=None,
            password_auth=False,
            kbdint_auth=False,
            gss_host=None,
            connect_timeout=login.timeout_s,
            login_timeout=login.timeout_s,
            keepalive_interval=_KEEPALIVE_S,
            keepalive_count_max=_KEEPALIVES,
            **options,
        )
    except (asyncssh.Error, OSError) as error:
        raise _why(login, known, guard, error) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError) as error:
        raise BadInput(
            f"The key {login.key} of {login.title} cannot be read ({error}); name a private key without a "
            "passphrase, or put it into the agent (ssh-add) and leave the key out."
        ) from error


class _HostKeyRecorder(asyncssh.SSHClient):
    """Remembers the host key that was not trusted, for the message."""

    def __init__(self) -> None:
        self.offered: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        return False


def _known(login: Login) -> asyncssh.SSHKnownHosts:
    """What is known about host keys; BadInput where it cannot be read."""
    try:
        if login.host_key is not None:
            asyncssh.import_public_key(login.host_key)
            return asyncssh.import_known_hosts(f"* {login.host_key.strip()}\n")
        path = login.known_hosts or Path("~/.ssh/known_hosts").expanduser()
        if login.known_hosts is None and not path.exists():
            return asyncssh.import_known_hosts("")
        return asyncssh.read_known_hosts(str(path))
    except OSError as error:
        raise BadInput(
            f"The file of known hosts {error.filename} of {login.title} cannot be read ({error.strerror}); "
            "check its path."
        ) from error
    except (asyncssh.KeyImportError, ValueError) as error:
        raise BadInput(
            f"The host key of {login.title} cannot be read ({error}); write it as ssh-keyscan prints it, "
            "like ssh-ed25519 AAAA…"
        ) from error


def _is_known(login: Login, known: asyncssh.SSHKnownHosts) -> bool:
    return any(known.match(login.address, login.address, login.port)[:2])


def _why(
    login: Login, known: asyncssh.SSHKnownHosts, guard: _HostKeyRecorder, error: Exception
) -> LoginFailed:
    if guard.offered is not None:
        return _distrust(login, known, guard.offered)
    if isinstance(error, asyncssh.KeyExchangeFailed) and _is_known(login, known):
        return LoginFailed(
            f"The host key of {login.title} has changed, the machine has no key of the kind that is known; "
            "if it was set up anew, write its new key as host_key.",
            CHANGED,
        )
    if isinstance(error, asyncssh.PermissionDenied):
        how = f"the key {login.key}" if login.key else "every key of the agent and of ~/.ssh"
        who = f" for {login.user}" if login.user else ""
        return LoginFailed(
            f"{login.title} refuses {how}{who}; add its public half to ~/.ssh/authorized_keys there, or name "
            "another user or key.",
            DENIED,
        )
    if isinstance(error, OSError):
        return LoginFailed(_unreached(login, error), CLOSED)
    return LoginFailed(f"Logging in to {login.title} failed ({error}); try it with ssh -v.", BROKEN)


def _distrust(login: Login, known: asyncssh.SSHKnownHosts, key: asyncssh.SSHKey) -> LoginFailed:
    line = _line(key)
    if _is_known(login, known):
        return LoginFailed(
            f"The host key of {login.title} has changed (it is {key.get_fingerprint()} now): if the machine "
            f"was set up anew, write host_key: {line}; if not, do not log in.",
            CHANGED,
        )
    return LoginFailed(
        f"The host key of {login.title} is not known (it is {key.get_fingerprint()}); compare it with "
        f"ssh-keygen -lf /etc/ssh/ssh_host_*.pub on that machine, then add host_key: {line}",
        STRANGER,
    )


def _unreached(login: Login, error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return (
            f"{login.title} does not answer within {login.timeout_s:g} s; check the address, the firewall "
            "and that it is switched on."
        )
    return (
        f"{login.title} cannot be reached ({error.strerror or error}); check the address and the port, and "
        "that an SSH server runs there."
    )


def _line(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


T = TypeVar("T")

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def run_on_loop(work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
    """Do asynchronous work on the background loop and wait for it; TimeoutError ends it.

    An interrupt (Ctrl-C) while waiting ends the work too: nobody would collect it.
    """
    future = submit_to_loop(work)
    try:
        return future.result(timeout_s)
    except BaseException:
        future.cancel()
        raise


def submit_to_loop(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Begin asynchronous work on the background loop."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this process: a fork has none of its parent's threads, so it gets its own."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            _loops.clear()
            _loops[os.getpid()] = loop
            threading.Thread(target=loop.run_forever, name="prudent-ssh", daemon=True).start()
        return loop
