"""What is still to be told, one file each: it survives every crash, and waits until it can be delivered."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import PrudentError
from prudent.service.notify.mail import Undeliverable

_FIRST_S, _LONGEST_S = 2.0, 3600.0
GIVE_UP_S = 3 * 86400.0
_KEEP_SENT_S = 30 * 86400.0
_outbox_log = logging.getLogger("prudent.notify")


@dataclass(frozen=True)
class Outbox:
    """A folder of letters. Whoever delivers one holds a lock on it, which ends with the process.

    A letter has a name, and is written once: telling the same thing again, after a take-over, does nothing.
    """

    folder: Path

    def put(self, name: str, letter: Mapping[str, Any], now_s: float | None = None) -> bool:
        """Keep a letter until it is delivered; False if it is there or was sent already."""
        for place in ("waiting", "sent", "failed"):
            (self.folder / place).mkdir(parents=True, exist_ok=True)
            if (self.folder / place / f"{name}.json").exists():
                return False
        moment = time.time() if now_s is None else now_s
        entry = {"letter": dict(letter), "since_s": moment, "tries": 0, "next_s": moment}
        return _write(self.folder / "waiting" / f"{name}.json", entry, new=True)

    def step(self, deliver: Callable[[str, Mapping[str, Any]], None], now_s: float) -> int:
        """Try what is due; answers how many were delivered. No trouble of a letter leaves this function."""
        delivered = 0
        for path in sorted((self.folder / "waiting").glob("*.json")):
            with _held(path) as entry:
                if entry is not None and entry["next_s"] <= now_s:
                    delivered += self._try(path, entry, deliver, now_s)
        self._prune(now_s)
        return delivered

    def waiting(self) -> int:
        """How many are still to be delivered."""
        return len(list((self.folder / "waiting").glob("*.json")))

    def _try(
        self,
        path: Path,
        entry: dict[str, Any],
        deliver: Callable[[str, Mapping[str, Any]], None],
        now_s: float,
    ) -> bool:
        entry["tries"] += 1
        try:
            deliver(path.stem, entry["letter"])
        except Exception as error:  # noqa: BLE001 - a letter must not end the courier, let alone a run
            why = str(error) if isinstance(error, PrudentError) else type(error).__name__
            _outbox_log.warning("Not delivered: %s (try %d): %s", path.stem, entry["tries"], why)
            self._later(path, entry, why, isinstance(error, Undeliverable), now_s)
            return False
        _write(self.folder / "sent" / path.name, {"sent_s": now_s, "tries": entry["tries"]})
        path.unlink()
        return True

    def _later(self, path: Path, entry: dict[str, Any], why: str, never: bool, now_s: float) -> None:
        entry["why"] = why
        entry["next_s"] = now_s + min(_FIRST_S * 2.0 ** (entry["tries"] - 1), _LONGEST_S)
        if never or entry["next_s"] - entry["since_s"] > GIVE_UP_S:
            _write(self.folder / "failed" / path.name, entry)
            path.unlink()
        else:
            _write(path, entry)

    def _prune(self, now_s: float) -> None:
        for path in (self.folder / "sent").glob("*.json"):
            if now_s - path.stat().st_mtime > _KEEP_SENT_S:
                path.unlink(missing_ok=True)


@contextmanager
def _held(path: Path) -> Iterator[dict[str, Any] | None]:
    """A letter that nobody else tries at this moment, or None."""
    lock = path.with_suffix(".lock")
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _locked(path, handle)
        if not path.exists():
            lock.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _locked(path: Path, handle: int) -> dict[str, Any] | None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (BlockingIOError, FileNotFoundError):
        return None
    return entry


def _write(path: Path, entry: Mapping[str, Any], new: bool = False) -> bool:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(entry, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    try:
        if new:
            os.link(part, path)
            part.unlink()
        else:
            part.replace(path)
    except FileExistsError:
        part.unlink()
        return False
    return True
