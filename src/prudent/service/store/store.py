"""The database, with one writer per process that commits what has gathered in one go."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.pool import NullPool

from prudent.core.errors import BadInput, RunFailed
from prudent.service.store.disk import is_full
from prudent.service.store.tables import VERSION, about, metadata

P = ParamSpec("P")
T = TypeVar("T")
Change = Callable[Concatenate[Connection, P], T]
"""A function of this package: what it reads or changes goes through the connection it is given."""

_TOGETHER = 256
_AGAIN = 5
_HUNG_MS = 10_000
_PROBE = 1 << 16
_READERS = 4
"""Threads that read; many at a time would delay the one that answers."""
_LONGEST_S = 60.0
"""So long a database that is away (restarted, say) is waited for."""


class StoreUnavailable(RunFailed):
    """The database does not answer; try again in a while."""

    status = 503


class DiskFull(StoreUnavailable):
    """Nothing can be kept: the disk is full; the operator has to make room."""

    status = 507


@dataclass(frozen=True)
class _PendingWrite:
    change: Callable[[Connection], Any]
    answer: Future[Any] = field(default_factory=Future)


class Store:
    """Reads and writes with the functions of this package: `store.write(runs.insert, new)`.

    A write returns when it is on the disk. Writes of many threads (or coroutines, by `write_soon`) are
    committed together: one flush to the disk serves them all, which is what makes hundreds of submissions a
    second possible on SQLite. A change may be called again when the connection broke, so it must be such that
    twice is the same as once.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        self._writer, self._reader = _engines(url)
        self._pending: queue.SimpleQueue[_PendingWrite | None] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(_READERS, "store-read")
        self._closed = False
        self._full_s: float | None = None
        self.full = False
        """Whether the last write failed for lack of room on the disk."""
        self._thread = threading.Thread(target=self._write_all, name="store-write", daemon=True)
        self._thread.start()
        try:
            self.write(_create, self.sqlite)
        except DBAPIError as error:
            self.close()
            raise BadInput(f"Cannot open the database ({_first_line(error)}); check its URL.") from error

    # Writing

    def submit(self, change: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The future of a write."""
        if self._closed:
            raise StoreUnavailable("The store is closed; start the service again.")
        wish = _PendingWrite(lambda connection: change(connection, *args, **kwargs))
        self._pending.put(wish)
        return wish.answer

    def write(self, change: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.submit(change, *args, **kwargs).result()

    async def write_async(self, change: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self.submit(change, *args, **kwargs))

    def was_full(self, within_s: float) -> bool:
        """Whether a write failed for lack of room not longer ago than that."""
        return self._full_s is not None and time.monotonic() - self._full_s < within_s

    async def check_room(self) -> None:
        """DiskFull if the last write failed for lack of room, and another would."""
        if self.full:
            await self.write_async(_probe)

    # Reading

    def read(self, question: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer, of what is committed now."""
        until_s = time.monotonic() + _LONGEST_S / 4
        while True:
            try:
                with self._reader.connect() as connection:
                    return question(connection, *args, **kwargs)
            except OperationalError as error:
                if time.monotonic() > until_s or self._closed:
                    raise StoreUnavailable(
                        f"The database does not answer ({_first_line(error)}); try again."
                    ) from error
                time.sleep(random.uniform(0.05, 0.3))

    async def read_async(self, question: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: self.read(question, *args, **kwargs))

    # Life

    def close(self) -> None:
        """Write what is pending, then close the connections."""
        if self._closed:
            return
        self._closed = True
        self._pending.put(None)
        self._thread.join(timeout=_LONGEST_S)
        self._threads.shutdown(wait=True)
        self._writer.dispose()
        self._reader.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The writer's thread

    def _write_all(self) -> None:
        line = _WriterConnection(self._writer)
        for wishes in self._gathered():
            self._persist(line, wishes)
        line.close()

    def _gathered(self) -> Iterator[list[_PendingWrite]]:
        """All changes that were submitted since the last commit."""
        while True:
            first = self._pending.get()
            if first is None:
                return
            found = [first]
            with contextlib.suppress(queue.Empty):
                while len(found) < _TOGETHER:
                    another = self._pending.get_nowait()
                    if another is None:
                        self._pending.put(None)
                        break
                    found.append(another)
            yield found

    def _persist(self, line: _WriterConnection, wishes: list[_PendingWrite]) -> None:
        until_s = time.monotonic() + _LONGEST_S
        while True:
            try:
                answers = line.commit(wishes)
            except OperationalError as error:
                line.close()
                if is_full(error):  # to wait would not help; whoever can wait for room does so itself
                    self.full, self._full_s = True, time.monotonic()
                    full = DiskFull("Nothing can be kept: the disk is full; the operator has to make room.")
                    full.__cause__ = error
                    answers = [full] * len(wishes)
                elif time.monotonic() > until_s:
                    away = StoreUnavailable(
                        f"The database does not answer ({_first_line(error)}); try again."
                    )
                    answers = [away] * len(wishes)
                else:
                    time.sleep(random.uniform(0.02, 0.2))
                    continue
            except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, and the thread lives on
                line.close()
                answers = [error] * len(wishes)
            else:
                self.full = False
            for wish, answer in zip(wishes, answers, strict=True):
                if isinstance(answer, BaseException):
                    wish.answer.set_exception(answer)
                else:
                    wish.answer.set_result(answer[0])
            return


class _WriterConnection:
    """The writer's connection, opened when it is needed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def commit(self, wishes: list[_PendingWrite]) -> list[Any]:
        """Do all in one transaction; one that fails does not fail the others.

        At first without safety nets, for they cost as much as the changes themselves and hardly any change
        fails; if one does, all are done again, each with its own.
        """
        if self._connection is None:
            self._connection = self._engine.connect()
        connection = self._connection
        try:
            with connection.begin():
                return [(wish.change(connection),) for wish in wishes]
        except OperationalError:
            raise
        except Exception:  # noqa: BLE001 - whose it was shows when they are done one by one
            with connection.begin():
                return [self._do(connection, wish) for wish in wishes]

    def close(self) -> None:
        with contextlib.suppress(Exception):
            if self._connection is not None:
                self._connection.close()
        self._connection = None

    def _do(self, connection: Connection, wish: _PendingWrite) -> Any:
        for attempt in range(_AGAIN):
            try:
                with connection.begin_nested():
                    return (wish.change(connection),)
            except OperationalError:
                raise
            except IntegrityError as error:  # another process was quicker; it is seen now
                if attempt == _AGAIN - 1:
                    return error
            except Exception as error:  # noqa: BLE001 - it is handed to whoever asked
                return error
        raise AssertionError


def _probe(connection: Connection) -> None:
    """Write as much as a large document takes, and roll it back."""
    here = about.c.name == "probe"
    connection.execute(about.delete().where(here))
    connection.execute(about.insert().values(name="probe", value="x" * _PROBE))
    connection.execute(about.delete().where(here))


def _engines(url: str) -> tuple[Engine, Engine]:
    try:
        found = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise BadInput("The database URL cannot be read; write it like postgresql://host/name.") from None
    if found.get_backend_name() not in ("sqlite", "postgresql"):
        raise BadInput(f"{found.get_backend_name()} is not a database for this; use sqlite or postgresql.")
    try:
        if found.get_backend_name() == "sqlite":
            return _sqlite(found)
        # A process that hangs in the middle of a transaction must not hold up all others.
        patience = {"options": f"-c idle_in_transaction_session_timeout={_HUNG_MS}"}
        writer = sa.create_engine(found, poolclass=NullPool, connect_args=patience)
        reader = sa.create_engine(found, pool_size=8, max_overflow=8, pool_pre_ping=True)
    except ImportError as error:
        raise BadInput('PostgreSQL needs a driver; pip install "prudent[postgres]".') from error
    return writer, reader.execution_options(isolation_level="AUTOCOMMIT")


def _sqlite(url: sa.URL) -> tuple[Engine, Engine]:
    writer = sa.create_engine(url, poolclass=NullPool, connect_args={"timeout": 30.0})
    reader = sa.create_engine(
        url, pool_size=8, max_overflow=8, connect_args={"check_same_thread": False, "timeout": 30.0}
    )
    for engine in (writer, reader):
        sa.event.listen(engine, "connect", _set_up)
    # The lock is taken at the start: a transaction that reads first and then writes could not go on when
    # another process has written in between.
    sa.event.listen(writer, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return writer, reader


def _set_up(raw: Any, record: Any) -> None:
    del record
    raw.isolation_level = None  # we say BEGIN ourselves
    for setting in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000", "temp_store=MEMORY"):
        raw.execute(f"PRAGMA {setting}").close()


def _create(connection: Connection, sqlite: bool) -> None:
    if not sqlite:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(7065726)"))  # one process makes the tables
    metadata.create_all(connection, checkfirst=True)
    found = connection.execute(sa.select(about.c.value).where(about.c.name == "version")).scalar()
    if found is None:
        connection.execute(about.insert().values(name="version", value=str(VERSION)))
    elif int(found) > VERSION:
        raise BadInput(f"The database is of a later version ({found}); upgrade prudent.")


def _first_line(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]
