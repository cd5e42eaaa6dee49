"""A watched folder: a document dropped there is taken once, and moved to where its answer is."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prudent.service.intake.backlog import check_room
from prudent.service.intake.incoming import DocumentReply, check_store, read_document, receive, receive_file
from prudent.service.intake.refusal import Refused, refusal
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import MEMBER, User

ACCEPTED, REJECTED = "accepted", "rejected"
_UNFINISHED = (".part", ".tmp", ".temp", ".crdownload", ".filepart", ".swp", "~")


@dataclass(frozen=True)
class _FileState:
    """How a file looked, and since when it does."""

    size: int
    changed_ns: int
    since_s: float


@dataclass
class FolderSource:
    """Takes what is dropped into a folder; any number of watchers may look at the same one.

    A file that still grows is waited for, and one that is no whole JSON for `patience_s` longer: its writer
    may only pause. Whoever takes a file holds a lock on it. The key of its request is made of its name,
    content and time, so when a watcher dies after the request was kept and before the file was moved, the
    next one finds the same run.
    """

    folder: Path
    store: Store
    settings: Settings
    user: User = User("folder", MEMBER)  # noqa: RUF009 - it is frozen
    settle_s: float = 1.0
    patience_s: float = 30.0
    clock: Callable[[], float] = time.monotonic
    name: str = "folder"
    _looks: dict[str, _FileState] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for part in (ACCEPTED, REJECTED):
            (self.folder / part).mkdir(parents=True, exist_ok=True)

    def step(self) -> int:
        """Look once; answers how many documents were taken or refused."""
        found = {entry.name for entry in os.scandir(self.folder) if _is_document(entry)}
        self._looks = {name: look for name, look in self._looks.items() if name in found}
        return sum(self._look_at(name) for name in sorted(found))

    def _look_at(self, name: str) -> bool:
        still_s = self._still_s(name)
        if still_s is None or still_s < self.settle_s:
            return False
        with _locked_file(self.folder / name) as handle:
            if handle is None:
                return False
            before = os.fstat(handle)
            body = _read(handle, int(self.settings.body_mb * 1e6) + 1)
            if still_s < self.patience_s and not _whole(name, body):
                return False
            if os.fstat(handle).st_mtime_ns != before.st_mtime_ns:
                return False  # somebody went on writing
            check_room(self.store, self.settings, self.user)
            mark = f"{name}:{hashlib.sha256(body).hexdigest()}:{before.st_mtime_ns}"
            reply = receive_file(self.store, self.settings, name, body, self.user, self.name, mark)
            self._move(name, reply)
        return True

    def _still_s(self, name: str) -> float | None:
        """For how long the file has looked the same."""
        try:
            found = os.lstat(self.folder / name)
        except FileNotFoundError:
            return None
        now_s, before = self.clock(), self._looks.get(name)
        if before is None or (before.size, before.changed_ns) != (found.st_size, found.st_mtime_ns):
            self._looks[name] = _FileState(found.st_size, found.st_mtime_ns, now_s)
            return 0.0
        return now_s - before.since_s

    def _move(self, name: str, reply: DocumentReply) -> None:
        """Move a document; the answer is written first, so that whoever sees the document finds it."""
        part, ending = (ACCEPTED, "RUN") if reply.refusal is None else (REJECTED, "REASON")
        target = _free(self.folder / part, name)
        answer = target.with_name(f"{target.name}.{ending}")
        draft = answer.with_name(f".{answer.name}.{os.getpid()}")
        draft.write_text(reply.text(self.settings), encoding="utf-8")
        draft.replace(answer)
        os.rename(self.folder / name, target)
        self._looks.pop(name, None)


def _is_document(entry: os.DirEntry[str]) -> bool:
    hidden = entry.name.startswith(".") or entry.name.endswith(_UNFINISHED)
    return not hidden and entry.is_file(follow_symlinks=False)


def _whole(name: str, body: bytes) -> bool:
    """Whether the bytes are a whole document; otherwise its writer may not be done."""
    try:
        read_document(name, body)
    except Refused:
        return False
    return bool(body.strip())


def _free(folder: Path, name: str) -> Path:
    """A name that nothing has there yet."""
    target, number = folder / name, 2
    while target.exists():
        stem, dot, ending = name.rpartition(".")
        target = folder / (f"{stem}-{number}.{ending}" if dot else f"{name}-{number}")
        number += 1
    return target


@contextmanager
def _locked_file(path: Path) -> Iterator[int | None]:
    """A file that no other watcher takes at this moment, open; or None."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield None
        return
    try:
        yield handle if _mine(path, handle) else None
    finally:
        os.close(handle)


def _mine(path: Path, handle: int) -> bool:
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here, there = os.fstat(handle), os.lstat(path)
        return stat.S_ISREG(here.st_mode) and (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev)
    return False


def _read(handle: int, most: int) -> bytes:
    with os.fdopen(os.dup(handle), "rb") as file:
        return file.read(most)


MOST_RECEIVES = 3
"""A message that ended its receiver so often is dead. Never 1: a crash of another cause must lose nothing."""


def put_message(folder: Path, kind: str, document: Mapping[str, Any]) -> str:
    """Put a request into the queue; answers the message's id. It is on the disk when this returns."""
    (folder / "new").mkdir(parents=True, exist_ok=True)
    message = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    part = folder / f".{message}"
    with part.open("w", encoding="utf-8") as file:
        json.dump({"kind": kind, "request": dict(document)}, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    part.rename(folder / "new" / f"{message}.json")
    return message


@dataclass
class QueueFolderSource:
    """Takes messages in the order of their names; those that are refused or poison go to `dead/`."""

    folder: Path
    store: Store
    settings: Settings
    user: User = User("queue", MEMBER)  # noqa: RUF009 - it is frozen
    name: str = "queue"

    def __post_init__(self) -> None:
        for part in ("new", "dead"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)

    def step(self) -> int:
        """Take what is there; answers how many messages left the queue."""
        found = sorted((self.folder / "new").glob("*.json"))
        if found:
            check_store(self.store)
        return sum(self._take(path) for path in found)

    def _take(self, path: Path) -> bool:
        with _locked_message(path) as held:
            if not held:
                return False
            check_room(self.store, self.settings, self.user)  # before it counts as received
            receives = self._counted(path)
            if receives > MOST_RECEIVES:
                said = f"It ended its receiver {MOST_RECEIVES} times; look at the service's log."
                self._to_dead_letters(path, refusal(said, status=500).to_dict())
                return True
            reply = receive(
                self.store,
                self.settings,
                path.name,
                path.read_bytes(),
                self.user,
                self.name,
                f"queue:{path.stem}",
            )
            if reply.refusal is not None:
                self._to_dead_letters(path, reply.refusal.to_dict())
            else:
                self._forget(path)
            return True

    def _counted(self, path: Path) -> int:
        """How often it has been received, this time included; written down before anything else happens."""
        tally = path.with_suffix(".receives")
        with tally.open("ab") as file:
            file.write(b".")
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def _to_dead_letters(self, path: Path, why: Mapping[str, Any]) -> None:
        reason = self.folder / "dead" / f"{path.name}.REASON"
        reason.write_text(json.dumps(why, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        path.rename(self.folder / "dead" / path.name)
        self._forget(path)

    def _forget(self, path: Path) -> None:
        for each in (path, path.with_suffix(".receives"), path.with_suffix(".lock")):
            each.unlink(missing_ok=True)


@contextmanager
def _locked_message(path: Path) -> Iterator[bool]:
    """Lock a message for this receiver; the lock ends with the process."""
    handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    held = False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = path.exists()
            if not held:
                path.with_suffix(".lock").unlink(missing_ok=True)
        yield held
    finally:
        os.close(handle)
