"""Real SSH servers on loopback, each a "host" with its own port, key, home folder and CPUs.

Every host is a process of its own (`python ssh_server.py FOLDER`), so that it outlives a client that is
killed, and can be killed itself, as a machine that is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

MARK = "TEST_SSH_HOST"
"""The environment variable that everything on one host carries: a lost host takes its processes along."""


@dataclass
class SshHost:
    """One server as its client sees it; `start` it, and `stop` or `lose` it."""

    folder: Path
    name: str
    cpus: tuple[int, ...] | None = None
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

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
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PRUDENT_")}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(self.folder)],
                start_new_session=True,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        return self

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

    def __init__(self, folder: Path, cpus: dict[str, tuple[int, ...] | None]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.key = folder / "client_key"
        _write_key(self.key)
        self.hosts: dict[str, SshHost] = {}
        for name, chosen in cpus.items():
            host = SshHost(folder / name, name, chosen)
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
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
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


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
