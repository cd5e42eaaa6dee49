"""Real SSH servers on loopback, each a "host" with its own port, key, home folder and CPUs.

Every host is a process of its own, so that it outlives a client that is killed, and can be killed itself, as
a machine that is lost. It is forked from a process that has loaded everything (`python ssh_server.py`), for
that takes longer than all else; one that must be somewhere else is started there (`python ssh_server.py
FOLDER`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

MARK = "TEST_SSH_HOST"
"""The environment variable that everything on one host carries: a lost host takes its processes along."""


class Forked:
    """A process that another one has forked for us."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """None while it runs."""
        return -1 if select.select([self._handle], [], [], 0)[0] else None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> None:
        select.select([self._handle], [], [])
        os.close(self._handle)


class Nursery:
    """The process from which servers are forked; it ends with this one."""

    _one: Nursery | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PRUDENT_")}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            start_new_session=True,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._process.communicate)

    @classmethod
    def fork(cls, folder: Path) -> Forked:
        """A server for the host of a folder."""
        with cls._lock:
            cls._one = cls._one or cls()
            stdin, stdout = cls._one._process.stdin, cls._one._process.stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write(f"{folder}\n")
            stdin.flush()
            return Forked(int(stdout.readline()))


@dataclass
class SshHost:
    """One server as its client sees it; `start` it, and `stop` or `lose` it."""

    folder: Path
    name: str
    cpus: tuple[int, ...] | None = None
    before: Sequence[str] = ()
    """Words before the command of a server that must not be forked here."""
    port: int = 0
    process: subprocess.Popen[bytes] | Forked | None = field(default=None, repr=False)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    def start(self) -> SshHost:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.folder / "port").unlink(missing_ok=True)
        settings = {"name": self.name, "cpus": self.cpus, "port": self.port, "mark": str(self.folder)}
        (self.folder / "settings.json").write_text(json.dumps(settings))
        self.process = self._started_alone() if self.before else Nursery.fork(self.folder)
        return self

    def _started_alone(self) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PRUDENT_")}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*self.before, sys.executable, __file__, str(self.folder)],
                start_new_session=True,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def wait(self, within_s: float = 60.0) -> SshHost:
        end_s = time.monotonic() + within_s
        while not (self.folder / "port").exists():
            assert time.monotonic() < end_s, f"the SSH server {self.name} did not start"
            assert self.process is not None
            assert self.process.poll() is None, f"the SSH server {self.name} ended"
            time.sleep(0.02)
        self.port = int((self.folder / "port").read_text())
        return self

    def stop(self) -> None:
        """Close the port and every connection; processes that were started stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def lose(self) -> None:
        """The machine is gone, with all that ran there."""
        self.stop()
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids(self) -> list[int]:
        """Everything that runs on this host."""
        word = f"{MARK}={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if word in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def new_host_key(self) -> None:
        _write_key(self.folder / "host_key")


class SshHosts:
    """Several hosts with one client key that all of them accept."""

    def __init__(
        self, folder: Path, cpus: dict[str, tuple[int, ...] | None], before: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.key = folder / "client_key"
        _write_key(self.key)
        self.hosts: dict[str, SshHost] = {}
        for name, chosen in cpus.items():
            host = SshHost(folder / name, name, chosen, before)
            host.folder.mkdir()
            host.new_host_key()
            (host.folder / "authorized_keys").write_text((folder / "client_key.pub").read_text())
            self.hosts[name] = host

    def __enter__(self) -> SshHosts:
        for host in self.hosts.values():
            host.start()
        for host in self.hosts.values():
            host.wait()
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.lose()

    def __getitem__(self, name: str) -> SshHost:
        return self.hosts[name]

    def inventory(self, types: dict[str, dict[str, Any]], path: Path | None = None) -> Path:
        """An inventory of the hosts; `types` gives what else is said of each, by name."""
        path = path or self.folder / "inventory.yaml"
        listed = [
            {
                "name": name,
                "address": "127.0.0.1",
                "port": self.hosts[name].port,
                "user": "tester",
                "key": str(self.key),
                "host_key": self.hosts[name].host_key,
                **said,
            }
            for name, said in types.items()
        ]
        path.write_text(json.dumps({"hosts": listed}))
        return path


def _write_key(path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(path))
    path.chmod(0o600)
    key.write_public_key(f"{path}.pub")


# The server itself


async def _handle(process: asyncssh.SSHServerProcess[bytes], home: Path, mark: str) -> None:
    """Run a command with the shell, as sshd does: in a session of its own, its exit code sent at its end."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH") if key in os.environ}
    ran = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        process.command or "exec sh",
        cwd=home,
        env={**kept, "HOME": str(home), "USER": "tester", MARK: mark},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert ran.stdin is not None
    try:
        await process.redirect(stdin=ran.stdin, stdout=ran.stdout, stderr=ran.stderr)
    except BaseException:  # the client was gone before it began
        ran.stdin.close()
        raise
    # asyncio's wait also waits for the pipes, which a child left behind may hold open.
    ended = _ended(ran.pid)
    while ran.returncode is None:
        if process.is_closing() and not ran.stdin.is_closing():
            ran.stdin.close()  # as sshd does when a client is gone: what waits for its input ends
        await (asyncio.sleep(0.001) if ended.done() else asyncio.wait([ended], timeout=0.1))
    with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
        await asyncio.wait_for(_drained(process), 0.3)
    if ran.returncode < 0:
        process.exit_with_signal(signal.Signals(-ran.returncode).name.removeprefix("SIG"))
    else:
        process.exit(ran.returncode)


def _ended(pid: int) -> asyncio.Future[None]:
    """Done when a process has ended: told by the kernel, for looking again and again costs more than SSH."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:  # so soon
        ended.set_result(None)
        return ended

    def tell() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        ended.set_result(None)

    loop.add_reader(handle, tell)
    return ended


async def _drained(process: asyncssh.SSHServerProcess[bytes]) -> None:
    while process._readers:
        await asyncio.sleep(0.005)


async def _serve(folder: Path) -> None:
    said = json.loads((folder / "settings.json").read_text())
    if said["cpus"]:
        os.sched_setaffinity(0, set(said["cpus"]))
    home = folder / "home"
    server = await asyncssh.listen(
        "127.0.0.1",
        said["port"],
        server_host_keys=[str(folder / "host_key")],
        authorized_client_keys=str(folder / "authorized_keys"),
        process_factory=lambda process: _handle(process, home, said["mark"]),
        encoding=None,
        password_auth=False,
        kbdint_auth=False,
    )
    part = folder / "port.part"
    part.write_text(str(server.sockets[0].getsockname()[1]))
    part.replace(folder / "port")
    await asyncio.Event().wait()


def _fork_for_each_line() -> None:
    """Fork a server for each folder that is told, and tell its process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for them
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become_server(Path(line.rstrip("\n")))
        print(pid, flush=True)


def _become_server(folder: Path) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, flags, place in ((0, os.O_RDONLY, os.devnull), (1, os.O_WRONLY, os.devnull),
                                 (2, os.O_WRONLY | os.O_CREAT | os.O_APPEND, folder / "log")):  # fmt: skip
        opened = os.open(place, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    try:
        asyncio.run(_serve(folder))
    finally:
        os._exit(1)


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(_serve(Path(sys.argv[1])))
    else:
        _fork_for_each_line()
