"""All sources but REST, each in a thread of its own, as the settings say."""

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
from prudent.service.intake.aws import BucketSource, SqsSource
from prudent.service.intake.folders import FolderSource, QueueFolderSource
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL

_log = logging.getLogger("prudent.sources")
_LONGEST_S = 60.0


class RequestSource(Protocol):
    """A way in; `step` looks once, takes what is there and answers how many documents that were."""

    @property
    def name(self) -> str: ...
    def step(self) -> int: ...


def sources_of(settings: Settings, store: Store) -> list[tuple[RequestSource, float]]:
    """The sources that the settings name, each with the seconds between two looks."""
    found: list[tuple[RequestSource, float]] = []
    if settings.watch or settings.queue or settings.bucket:
        sender_of(store, settings, LOCAL)  # an account that is missing is told now, not with every document
    if settings.watch is not None:
        found.append((FolderSource(settings.watch, store, settings), 0.5))
    bucket = None
    if settings.bucket is not None:
        bucket = BucketSource(settings.bucket, store, settings, _client("s3"))
        # Events tell of new documents at once; looking as well, now and then, mends one that was lost.
        found.append((bucket, 60.0 if settings.queue is not None else 5.0))
    if settings.queue is not None:
        found.append(_queue(settings.queue, settings, store, bucket))
    return found


def _queue(
    url: str, settings: Settings, store: Store, bucket: BucketSource | None
) -> tuple[RequestSource, float]:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return QueueFolderSource(Path(unquote(parts.path)), store, settings), 0.2
    if parts.scheme not in ("http", "https"):
        raise BadInput(f'"{url}" is not a queue; use the URL of an SQS queue, or file:///folder.')
    return SqsSource(url, store, settings, _client("sqs"), bucket), 0.0


def _client(service: str) -> Any:
    try:
        import boto3
    except ImportError as error:
        raise BadInput('Queues and buckets need more packages; pip install "prudent[aws]".') from error
    return boto3.client(service)


@dataclass
class SourceThreads:
    """The running sources; one that stumbles is heard in the log and tried again, later and later."""

    sources: Sequence[tuple[RequestSource, float]]
    _end: threading.Event = field(default_factory=threading.Event, repr=False)
    _threads: list[threading.Thread] = field(default_factory=list, repr=False)

    def start(self) -> SourceThreads:
        for source, every_s in self.sources:
            thread = threading.Thread(target=self._run, args=(source, every_s), name=source.name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def stop(self) -> None:
        """Finish what is at hand."""
        self._end.set()
        for thread in self._threads:
            thread.join(timeout=_LONGEST_S)

    def _run(self, source: RequestSource, every_s: float) -> None:
        wait_s = every_s
        while not self._end.wait(wait_s):
            try:
                source.step()
                wait_s = every_s
            except Exception as error:  # noqa: BLE001 - a queue that is away must not end the service
                wait_s = min(max(2 * wait_s, 1.0), _LONGEST_S)
                _log.warning("The source %s failed (%s); next try in %.0f s", source.name, error, wait_s)
