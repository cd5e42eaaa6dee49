"""Stores and settings for the tests of the service; PostgreSQL is a real server, where there is one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from moto.server import ThreadedMotoServer

from prudent.service.settings import Settings
from prudent.service.store.store import Store

_NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


class Postgres:
    """A PostgreSQL server of our own, in a folder, that can be stopped and started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._as = _NOBODY if os.geteuid() == 0 else []
        self.log = folder.parent / "postgres.log"
        for command in (["initdb", "-D", str(folder), "-U", "prudent", "-A", "trust", "-N", "-E", "UTF8"],):
            subprocess.run([*self._as, *command], check=True, capture_output=True)

    @property
    def url(self) -> str:
        return f"postgresql://prudent@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200"
        )
        self._control("start", "-w", "-o", options)

    def stop(self, mode: str = "fast") -> None:
        self._control("stop", "-m", mode)

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def _control(self, *words: str) -> None:
        command = [*self._as, "pg_ctl", "-D", str(self.folder), "-l", str(self.log), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Buckets and queues (moto's server), which every client in this process and below it means."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    httpx.post(f"http://127.0.0.1:{port}/moto-api/reset")  # a server's facts are those of its process
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    yield
    server.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if not all(shutil.which(name) for name in ("postgres", "initdb", "pg_ctl")):
        pytest.skip("there is no PostgreSQL here")
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("PostgreSQL does not run as root, and there is no setpriv")
    import tempfile

    # Not below pytest's folder: that is closed to other users, and the server runs as one.
    with tempfile.TemporaryDirectory(prefix="prudent-pg-", dir="/tmp") as name:
        Path(name).chmod(0o777)
        server = Postgres(Path(name) / "data")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that is empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return fresh_database(request.getfixturevalue("postgres"), tmp_path.name)


def fresh_database(server: Postgres, name: str) -> str:
    import psycopg

    name = "t_" + "".join(c if c.isalnum() else "_" for c in name.lower())[:50]
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.url.replace("postgresql://", "postgresql+psycopg://").rpartition("/")[0] + f"/{name}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store(url) as opened:
        yield opened


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = Settings(tmp_path / "home")
    found.create()
    return found


@contextmanager
def _serving(app: FastAPI) -> Iterator[httpx.Client]:
    """The application on a free port of this machine, and a client of it."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def serving() -> Callable[[FastAPI], AbstractContextManager[httpx.Client]]:
    return _serving


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
