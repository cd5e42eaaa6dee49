"""Stores and settings for the tests of the service; PostgreSQL is a real server, where there is one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI

from prudent.service.security.tokens import AccessMode
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.tables import about, metadata

NO_TLS = False
"""Where addresses begin with http: certificates of all authorities take longer to read than most tests."""
_NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
_QUICK = (
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "autovacuum=off",
    "max_connections=200",
)
"""What a server may do whose data nobody needs tomorrow."""


def _program(name: str) -> str | None:
    """A program of PostgreSQL: on the path, or where Debian puts it."""
    places = [str(place) for place in Path("/usr/lib/postgresql").glob("*/bin")]
    newest_first = sorted(places, key=lambda place: [int(part) for part in re.findall(r"\d+", place)])[::-1]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(newest_first))


class Postgres:
    """A PostgreSQL server of our own, in a folder; nothing of it outlives `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.log = folder.parent / "postgres.log"
        self._as = _NOBODY if os.geteuid() == 0 else []
        self._process: subprocess.Popen[bytes] | None = None
        command = [_program("initdb"), "-D", str(folder), "-U", "prudent", "-A", "trust", "-N", "-E", "UTF8"]
        subprocess.run([*self._as, *command, "--locale=C"], check=True, capture_output=True)

    @property
    def url(self) -> str:
        return f"postgresql://prudent@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """On a port that was free; another one if somebody else was quicker."""
        for _ in range(10):
            self.port = _free_port()
            if self._begin():
                return
        raise AssertionError(f"PostgreSQL does not start.\n{self.log.read_text()}")

    def restart(self) -> None:
        """Go down as if the power had gone, and come back at the same place."""
        self.stop()
        assert self._begin(), self.log.read_text()

    def _begin(self) -> bool:
        settings = (
            *_QUICK,
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
        )
        words = [word for setting in settings for word in ("-c", setting)]
        with self.log.open("ab") as log:
            command = [*self._as, str(_program("postgres")), "-D", str(self.folder), *words]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self._answers()

    def stop(self) -> None:
        """At once, as if the power had gone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def _answers(self) -> bool:
        import psycopg

        until_s = time.monotonic() + 120
        while self._process is not None and self._process.poll() is None:
            try:
                psycopg.connect(self.url, connect_timeout=10).close()
            except psycopg.OperationalError:
                assert time.monotonic() < until_s, self.log.read_text()
                time.sleep(0.05)
            else:
                return True
        return False

    def database(self, name: str, *settings: str) -> str:
        """The URL of a new database, which may have settings of its own."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
            for setting in settings:
                connection.execute(f'ALTER DATABASE "{name}" SET {setting}')
        return f"postgresql+psycopg://prudent@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="session")
def cloud_url() -> Iterator[str]:
    """Moto's server, one for all tests of this process: what it knows of AWS takes long to load."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def cloud(cloud_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No buckets and no queues yet, where every client in this process and below it looks for them."""
    httpx.post(f"{cloud_url}/moto-api/reset", trust_env=False, verify=NO_TLS)
    for name, value in {
        "AWS_ENDPOINT_URL": cloud_url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server for all tests of this process."""
    as_root = os.geteuid() == 0
    if not (_program("postgres") and _program("initdb") and (not as_root or shutil.which("setpriv"))):
        pytest.skip("needs PostgreSQL")
    pytest.importorskip("psycopg", reason="needs PostgreSQL")
    # As root the server runs as nobody, to whom pytest's own folder is closed.
    with (
        tempfile.TemporaryDirectory(prefix="prudent-pg-", dir="/tmp")
        if as_root
        else nullcontext(str(tmp_path_factory.mktemp("postgres"))) as name
    ):
        Path(name).chmod(0o777)
        server = Postgres(Path(name) / "data")
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def tables(postgres: Postgres) -> str:
    """The URL of a database with the store's tables, which many tests share one after another."""
    url = postgres.database("tables")
    Store(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that is empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    found: str = request.getfixturevalue("tables")
    engine = sa.create_engine(found, poolclass=sa.NullPool)
    names = ", ".join(table.name for table in metadata.sorted_tables if table is not about)
    with engine.begin() as connection:
        connection.execute(sa.text(f"TRUNCATE {names}"))
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store(url) as opened:
        yield opened


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Those of a service that its operator opened; it closes with its first user."""
    found = Settings(tmp_path / "home", nice=0)
    found.create()
    AccessMode(found.home).choose(True)
    return found


@contextmanager
def _serving(app: FastAPI) -> Iterator[httpx.Client]:
    """The application on a free port of this machine, and a client of it."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "The server did not start."
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        base_url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base_url, timeout=30, trust_env=False, verify=NO_TLS) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def serving() -> Callable[[FastAPI], AbstractContextManager[httpx.Client]]:
    return _serving


@pytest.fixture(scope="session")
def nobody_left() -> Callable[[Path], None]:
    """Waits until no process is left that was started for a home."""

    def wait(home: Path) -> None:
        until_s = time.monotonic() + 120
        while left := [path for path in Path("/proc").glob("[0-9]*/environ") if _belongs(path, home)]:
            assert time.monotonic() < until_s, [path.with_name("cmdline").read_text() for path in left]
            time.sleep(0.05)

    return wait


def _belongs(path: Path, home: Path) -> bool:
    try:
        return str(home).encode() in path.read_bytes() and int(path.parent.name) != os.getpid()
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
