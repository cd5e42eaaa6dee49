"""What a worker and the process that does the work say to each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prudent.core.errors import RunFailed


@dataclass(frozen=True)
class RunTask:
    """A run to be done, with all that the process needs to know; no secrets are among it."""

    run: str
    kind: str
    document: Mapping[str, Any]
    folder: Path
    """The run's own: journal, models, report, log."""
    parallelism: int = 1
    left_usd: float | None = None
    """What the user may still spend today; the budget is the smaller of both."""
    engine: str = "local"
    where: str | None = None
    """Where machines are rented for a training request that asks for some."""
    home: Path | None = None
    """Where their leases are kept."""
    own_data: tuple[Path, ...] = ()
    """Folders that are read for this run beside those that are read for everybody's."""


@dataclass(frozen=True)
class NoteMessage:
    """Something that whoever follows the run should know, as an event of that kind."""

    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class ProgressMessage:
    """How far the run is, 0..1, and how many seconds are left, if that can be told."""

    done: float
    eta_s: float | None = None


@dataclass(frozen=True)
class TrialStartMessage:
    """A trial begins."""

    number: int
    label: str
    configuration: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialEndMessage:
    """A trial ended; `spent_usd` is charged, at that price of that date."""

    number: int
    label: str
    configuration: Mapping[str, Any]
    status: str
    score: float | None = None
    cost_usd: float | None = None
    time_s: float | None = None
    spent_usd: float = 0.0
    usd_per_h: float | None = None
    price_date: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportedModel:
    """A model, in a folder below the run's `models`."""

    rank: int
    algorithm: str
    score: float
    metric: str
    value: float
    folder: str


@dataclass(frozen=True)
class DoneMessage:
    """The run is done: its result and report are in its folder. `exhausted` names the limit that ended it."""

    models: tuple[ExportedModel, ...] = ()
    exhausted: str = ""


@dataclass(frozen=True)
class FailedMessage:
    """The run failed, for this reason; trying again would end the same way.

    `worn` says that the process should do no other run: after an allocation that failed nothing in it can be
    trusted.
    """

    error: str
    worn: bool = False


@dataclass(frozen=True)
class PostponedMessage:
    """The run cannot go on now, for no fault of its own; it is tried again later, and this does not count."""

    why: str


@dataclass(frozen=True)
class InterruptedMessage:
    """The run was told to stop; what is done is in its journal."""


@dataclass(frozen=True)
class ReadyMessage:
    """The process waits for a task."""


@dataclass(frozen=True)
class StopOrder:
    """The run is to stop; for a process that no signal reaches."""


@dataclass(frozen=True)
class KeepAliveOrder:
    """The worker is alive, and the run is still its."""


ProcessMessage = (
    NoteMessage
    | ProgressMessage
    | TrialStartMessage
    | TrialEndMessage
    | DoneMessage
    | FailedMessage
    | PostponedMessage
    | InterruptedMessage
    | ReadyMessage
)
SendMessage = Callable[[ProcessMessage], None]


_KINDS = {kind.__name__: kind for kind in ProcessMessage.__args__}


class MalformedMessage(RunFailed):
    """The process said something that is no message; it is not listened to any more."""


def encode_message(said: ProcessMessage) -> bytes:
    """Encode a message as JSON, not as a pickle: commands could forge one and have their code run."""
    document = {"kind": type(said).__name__, "said": vars(said)}
    return json.dumps(document, ensure_ascii=False, default=_plain).encode("utf-8", "replace")


def decode_message(data: bytes) -> ProcessMessage:
    """The message that was encoded.

    >>> model = ExportedModel(1, "k-means", 0.5, "silhouette", 0.5, "1-k-means")
    >>> decode_message(encode_message(DoneMessage((model,)))).models[0].rank
    1
    """
    try:
        document = json.loads(data)
        said = dict(document["said"])
        if "models" in said:
            said["models"] = tuple(ExportedModel(**model) for model in said["models"])
        found: ProcessMessage = _KINDS[document["kind"]](**said)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MalformedMessage(
            f"The process that does the work sent what is not a message ({error})."
        ) from error
    return found


def _plain(value: Any) -> Any:
    """Values that JSON does not know: models and mappings as objects, numpy scalars as numbers."""
    if isinstance(value, ExportedModel):
        return vars(value)
    if isinstance(value, Mapping):
        return dict(value)
    item = getattr(value, "item", None)
    return str(value) if item is None else item()
