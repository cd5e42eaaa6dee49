"""Large documents, read and checked in a process of their own.

To read a document of megabytes takes a second or more in which Python lets nobody else run, and can take a
hundred times its size in memory. So a process does it, within a limit of memory and of time, one document
after the other; only its text comes back. If it dies, one document is refused and another process starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import prudent
from prudent.core.memory import limit_memory
from prudent.core.processes import HELPER_NICE, lower_priority, lower_session_priority
from prudent.service.intake import admission
from prudent.service.intake.admission import AcceptedRequest
from prudent.service.intake.backlog import Backlog
from prudent.service.intake.refusal import Refused, refusal
from prudent.service.settings import Settings
from prudent.service.store import disk
from prudent.service.store.runs import LARGE, NewRun
from prudent.service.store.store import DiskFull, Store
from prudent.service.store.users import User
from prudent.service.web import forms

MEMORY_MB, LONGEST_S = 1024.0, 30.0
PER_USER, IN_ALL = 4, 32
"""Large documents that may be under way at a time; more are answered 429."""
_LARGE_YAML, _LARGE_FORM = 1 << 12, 1 << 14
_CHILD = "import sys; from prudent.service.web.submission import main; main(sys.argv[1:])"


@dataclass(frozen=True)
class Submission:
    """A request as it came: the bytes of a JSON document or of a form, or the fields of a small form."""

    settings: Settings
    kind: str
    user: User
    front: str
    body: bytes = b""
    form: bytes = b""
    fields: dict[str, list[str]] | None = None
    key: str | None = None
    priority: int = 0

    @property
    def size(self) -> int:
        if self.fields is None:
            return len(self.body) + len(self.form)
        return sum(len(value) for values in self.fields.values() for value in values)

    @property
    def is_large(self) -> bool:
        """Whether checking it takes so long that other requests would be delayed."""
        if self.form:
            return len(self.form) > _LARGE_FORM
        is_yaml = self.fields is not None and forms.RAW in self.fields
        return self.size > (_LARGE_YAML if is_yaml else LARGE)

    def decoded(self) -> Submission:
        """The submission with its form decoded into fields."""
        if not self.form:
            return self
        fields = forms.decoded(self.form)
        return replace(self, form=b"", fields=fields, key=(fields.get("key") or [""])[0] or None)

    def prepared(self) -> NewRun:
        """Read and check it, here and now; Refused says what is wrong."""
        if self.fields is None:
            document = admission.read_json(self.body)
        else:
            raw = self.fields.get(forms.RAW)
            document = forms.document_of(self.kind, self.fields) if raw is None else forms.read_raw(raw[0])
        return admission.prepare(
            self.settings, self.kind, document, self.user, self.front, self.key, self.priority
        )


class DocumentChecker:
    """Has a process check large documents, one after the other; it is started when first needed."""

    def __init__(self, memory_mb: float = MEMORY_MB, longest_s: float = LONGEST_S) -> None:
        self._memory_mb, self._longest_s = memory_mb, longest_s
        self._thread = ThreadPoolExecutor(1, "checking")
        self._under_way: Counter[str] = Counter()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    async def prepared(self, submission: Submission) -> NewRun:
        """The run of a document that is in submission; Refused says what is wrong with it."""
        user = submission.user.name
        self.check_room(user)
        self._under_way[user] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._checked, submission)
        finally:
            self._under_way[user] -= 1
            self._under_way += Counter()

    def check_room(self, user: str) -> None:
        """Refused (429) if as many of a user's documents, or of all, are under way as may be."""
        if self._under_way[user] >= PER_USER or self._under_way.total() >= IN_ALL:
            error = refusal(
                "Large documents are checked one after the other, and several wait; send it again later.",
                status=429,
                title="Too much at a time",
            )
            error.retry_s = 5.0
            raise error

    def close(self) -> None:
        self._end()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._end()

    # In the thread

    def _checked(self, submission: Submission) -> NewRun:
        try:
            line = self._begun()
            line.send(submission)
            if not line.poll(self._longest_s):
                self._end()
                raise refusal(
                    f"It took longer than {self._longest_s:g} s to check; send less, or put data into files.",
                    status=413,
                )
            answer = line.recv()
        except (EOFError, OSError):
            self._end()
            raise refusal(
                f"To check it takes more than {self._memory_mb:g} MB of memory; send less, or put data into "
                "files.",
                status=413,
            ) from None
        if isinstance(answer, NewRun):
            return answer
        *why, fields = answer
        error = Refused(*why)
        error.fields = fields
        raise error

    def _begun(self) -> Connection:
        if self._process is not None and self._process.poll() is None and self._connection is not None:
            return self._connection
        self._end()
        ours, theirs = socket.socketpair()
        home = str(Path(prudent.__file__).parents[1])
        path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CHILD, str(theirs.fileno()), str(self._memory_mb)],
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what libraries print is for the log
                start_new_session=True,
            )
        lower_session_priority(self._process.pid, HELPER_NICE)
        self._connection = Connection(ours.detach())
        self._connection.recv()  # it has loaded its libraries; that takes as long as the machine is busy
        return self._connection

    def _end(self) -> None:
        line, self._connection = self._connection, None
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if line is not None:
            with contextlib.suppress(OSError):
                line.close()


# The process


def main(arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, whose end is heard on the line
    line = Connection(int(arguments[0]))
    lower_priority(HELPER_NICE)
    line.send(None)
    limit_memory(float(arguments[1]))
    gc.disable()  # to look through millions of values while they are made takes longer than to make them
    while True:
        try:
            submission = line.recv()
        except (EOFError, OSError):
            return
        line.send(_answer(submission))
        gc.collect()


def _answer(submission: Submission) -> NewRun | tuple[Any, ...]:
    try:
        submission = submission.decoded()
        return without_document(submission.prepared())
    except Refused as error:
        return error.errors, error.status, error.title, submission.fields or {}
    except MemoryError:
        os._exit(1)  # nothing here can be trusted any more; the service says why


def without_document(new: NewRun) -> NewRun:
    """The run with its document as text alone: values would have to be made again where they arrive."""
    return replace(new, text=new.to_text(), document={})


class Submissions:
    """Takes submissions from REST and forms together, so that their limits are shared."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._backlog = Backlog(store, settings)
        self._checker = DocumentChecker(min(MEMORY_MB, settings.run_memory_mb))

    async def expect(self, user: str, size: int) -> None:
        """Refused (429) if there is no room for a large document; this is asked before it is read."""
        if size > LARGE:
            check_disk(self._settings)
            await self._backlog.check(user, size)
            self._checker.check_room(user)

    async def take(self, submission: Submission) -> AcceptedRequest:
        """Keep a request; when this returns it is on the disk. Refused if it is wrong or too much waits."""
        check_disk(self._settings)
        async with self._backlog.reserve(submission.user.name, submission.size):
            new = await self._checker.prepared(submission) if submission.is_large else submission.prepared()
            return await admission.submit_async(self._store, new)

    def close(self) -> None:
        self._checker.close()


def check_disk(settings: Settings) -> None:
    """DiskFull if there is no room for anything new where runs are kept."""
    if not disk.has_room(settings.home):
        raise DiskFull(
            f"Nothing new is taken: less than {disk.LEAST_MB:g} MB are free on the disk; the operator has to "
            "make room."
        )
