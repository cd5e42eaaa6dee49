"""Notices of ended runs: put into the outbox, a folder with a file each, and delivered from there."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput, PrudentError
from prudent.service.notify import mail, webhook
from prudent.service.notify.mail import Undeliverable
from prudent.service.notify.notice import Notice, notice_of
from prudent.service.settings import Settings
from prudent.service.store import models, runs, trials
from prudent.service.store.runs import CANCELLED
from prudent.service.store.store import Store

_log = logging.getLogger("prudent.notify")


def announce(store: Store, settings: Settings, run_id: str, exhausted: str = "") -> int:
    """Tell people how a run ended; answers how many letters are new. Never raises: no run fails by it.

    `exhausted` names the limit that ended the run, such as "the budget of $2.00". Calling it again for the
    same run tells nobody twice.
    """
    try:
        run = store.read(runs.get, run_id)
        if run is None or not run.ended:
            return 0
        found = store.read(trials.of_run, run_id), store.read(models.of_run, run_id)
        return enqueue(settings, notice_of(run, *found, settings, exhausted))
    except Exception:  # noqa: BLE001 - whatever it is, the run has ended well
        _log.exception("The end of run %s could not be announced", run_id)
        return 0


def enqueue(settings: Settings, notice: Notice) -> int:
    """Put a notice into the outbox, for each way there is to tell it."""
    outbox, count = outbox_of(settings), 0
    if settings.smtp_host is not None and notice.to and notice.event != CANCELLED:
        count += outbox.put(f"{notice.run}.{notice.event}.mail", notice.to_dict())
    if settings.webhook_url is not None:
        count += outbox.put(f"{notice.run}.{notice.event}.webhook", notice.to_dict())
    return count


def outbox_of(settings: Settings) -> Outbox:
    return Outbox(settings.home / "outbox")


@dataclass
class Notifier:
    """Delivers in a thread of its own. Any number of processes may have one: a letter is one notifier's."""

    settings: Settings
    every_s: float = 1.0
    clock: Callable[[], float] = time.time
    _end: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def step(self) -> int:
        """Deliver what is due now; answers how many."""
        return outbox_of(self.settings).step(self._deliver, self.clock())

    def start(self) -> Notifier:
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop after the current letter; the others wait for the next notifier."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._end.wait(self.every_s):
            try:
                self.step()
            except Exception:  # noqa: BLE001 - the next round may do better
                _log.exception("The notifier failed; it tries again")

    def _deliver(self, name: str, said: Mapping[str, Any]) -> None:
        notice = Notice.of_dict(said)
        if name.endswith(".mail"):
            mail.send(mail.mail_message(notice, self.settings), self.settings)
        elif self.settings.webhook_url is not None:
            webhook.post(self.settings.webhook_url, self.settings.webhook_secret, notice, self.clock())
        else:
            raise BadInput("The webhook is not set any more; set webhook_url.")


_FIRST_S, _LONGEST_S = 2.0, 3600.0
GIVE_UP_S = 3 * 86400.0
_KEEP_SENT_S = 30 * 86400.0


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
        """Try each letter that is due; returns how many were delivered. Errors are logged, not raised."""
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
        except Exception as error:  # noqa: BLE001 - a letter must not end the notifier, let alone a run
            why = str(error) if isinstance(error, PrudentError) else type(error).__name__
            _log.warning("Not delivered: %s (try %d): %s", path.stem, entry["tries"], why)
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
    """Open and lock a letter; None if another notifier has it."""
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
