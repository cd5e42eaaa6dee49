"""All fronts but REST, each in a thread of its own, as the settings say."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from prudent.core.errors import BadInput
from prudent.service.intake.admission import sender_of
from prudent.service.intake.aws import BucketFront, SqsFront
from prudent.service.intake.folders import FolderFront, QueueFolderFront
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL

_log = logging.getLogger("prudent.fronts")
_LONGEST_S = 60.0


class Front(Protocol):
    """A way in; `step` looks once, takes what is there and answers how many documents that were."""

    @property
    def name(self) -> str: ...
    def step(self) -> int: ...


def fronts_of(settings: Settings, store: Store) -> list[tuple[Front, float]]:
    """The fronts that the settings name, each with the seconds between two looks."""
    found: list[tuple[Front, float]] = []
    if settings.watch or settings.queue or settings.bucket:
        sender_of(store, settings, LOCAL)  # an account that is missing is told now, not with every document
    if settings.watch is not None:
        found.append((FolderFront(settings.watch, store, settings), 0.5))
    bucket = None
    if settings.bucket is not None:
        bucket = BucketFront(settings.bucket, store, settings, _client("s3"))
        # Events tell of new documents at once; looking as well, now and then, mends one that was lost.
        found.append((bucket, 60.0 if settings.queue is not None else 5.0))
    if settings.queue is not None:
        found.append(_queue(settings.queue, settings, store, bucket))
    return found


def _queue(url: str, settings: Settings, store: Store, bucket: BucketFront | None) -> tuple[Front, float]:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return QueueFolderFront(Path(unquote(parts.path)), store, settings), 0.2
    if parts.scheme not in ("http", "https"):
        raise BadInput(f'"{url}" is no queue; use the URL of an SQS queue, or file:///folder.')
    return SqsFront(url, store, settings, _client("sqs"), bucket), 0.0


def _client(service: str) -> Any:
    try:
        import boto3
    except ImportError as error:
        raise BadInput('Queues and buckets need more packages; pip install "prudent[aws]".') from error
    return boto3.client(service)


@dataclass
class Fronts:
    """The running fronts; one that stumbles is heard in the log and tried again, later and later."""

    fronts: Sequence[tuple[Front, float]]
    _end: threading.Event = field(default_factory=threading.Event, repr=False)
    _threads: list[threading.Thread] = field(default_factory=list, repr=False)

    def start(self) -> Fronts:
        for front, every_s in self.fronts:
            thread = threading.Thread(target=self._run, args=(front, every_s), name=front.name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def stop(self) -> None:
        """Finish what is at hand."""
        self._end.set()
        for thread in self._threads:
            thread.join(timeout=_LONGEST_S)

    def _run(self, front: Front, every_s: float) -> None:
        wait_s = every_s
        while not self._end.wait(wait_s):
            try:
                front.step()
                wait_s = every_s
            except Exception as error:  # noqa: BLE001 - a queue that is away must not end the service
                wait_s = min(max(2 * wait_s, 1.0), _LONGEST_S)
                _log.warning("The front %s failed (%s); next try in %.0f s", front.name, error, wait_s)
