"""A queue that is a folder, for those without one by URL: programs put messages in, the service takes them.

Unlike in a watched folder nothing is half-written here: `put` writes beside the queue and renames.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.service.intake.parcel import check_store, receive
from prudent.service.intake.refusal import refused
from prudent.service.intake.waiting import check_room
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import MEMBER, User

MOST_RECEIVES = 3
"""A message that ended its receiver so often is dead. Never 1: a crash of another cause must lose nothing."""


def put(folder: Path, kind: str, document: Mapping[str, Any]) -> str:
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
class QueueFolderFront:
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
        with _held(path) as held:
            if not held:
                return False
            check_room(self.store, self.settings, self.user)  # before it counts as received
            receives = self._counted(path)
            if receives > MOST_RECEIVES:
                said = f"It ended its receiver {MOST_RECEIVES} times; look at the service's log."
                self._bury(path, refused(said, status=500).to_dict())
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
                self._bury(path, reply.refusal.to_dict())
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

    def _bury(self, path: Path, why: Mapping[str, Any]) -> None:
        reason = self.folder / "dead" / f"{path.name}.REASON"
        reason.write_text(json.dumps(why, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        path.rename(self.folder / "dead" / path.name)
        self._forget(path)

    def _forget(self, path: Path) -> None:
        for each in (path, path.with_suffix(".receives"), path.with_suffix(".lock")):
            each.unlink(missing_ok=True)


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Whether the message is this receiver's; the lock ends with the process."""
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
