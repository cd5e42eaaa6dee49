"""The courier: puts the news of a run into the outbox, and delivers what is there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prudent.core.errors import BadInput
from prudent.service.notify import mail, webhook
from prudent.service.notify.notice import Notice, notice_of
from prudent.service.notify.outbox import Outbox
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
        return post(settings, notice_of(run, *found, settings, exhausted))
    except Exception:  # noqa: BLE001 - whatever it is, the run has ended well
        _log.exception("The end of run %s could not be announced", run_id)
        return 0


def post(settings: Settings, notice: Notice) -> int:
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
class Courier:
    """Delivers in a thread of its own. Any number of processes may have one: a letter is one courier's."""

    settings: Settings
    every_s: float = 1.0
    clock: Callable[[], float] = time.time
    _end: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def step(self) -> int:
        """Deliver what is due now; answers how many."""
        return outbox_of(self.settings).step(self._deliver, self.clock())

    def start(self) -> Courier:
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the letter at hand; the rest waits for the next courier."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._end.wait(self.every_s):
            try:
                self.step()
            except Exception:  # noqa: BLE001 - the next round may do better
                _log.exception("The courier stumbled")

    def _deliver(self, name: str, said: Mapping[str, Any]) -> None:
        notice = Notice.of_dict(said)
        if name.endswith(".mail"):
            mail.send(mail.letter(notice, self.settings), self.settings)
        elif self.settings.webhook_url is not None:
            webhook.post(self.settings.webhook_url, self.settings.webhook_secret, notice, self.clock())
        else:
            raise BadInput("There is no webhook any more; set webhook_url.")
