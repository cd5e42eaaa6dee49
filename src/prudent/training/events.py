"""What happens while a request is worked on, for whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prudent.training.leaderboard import Entry, Failure
from prudent.tuning.trial import Progress


@dataclass(frozen=True)
class Started:
    """A trial begins."""

    number: int
    algorithm: str
    why: str


@dataclass(frozen=True)
class Shown:
    """A trial under way reported something."""

    number: int
    algorithm: str
    progress: Progress


@dataclass(frozen=True)
class Ended:
    """A trial ended, with a model or with a reason; `earlier` says that it did in a session before this."""

    result: Entry | Failure
    earlier: bool = False


@dataclass(frozen=True)
class ClusterReady:
    """Machines are there and Spark runs on them; `ui` is the address of its pages."""

    text: str
    place: str
    master: str
    ui: str
    took_s: float


@dataclass(frozen=True)
class Paid:
    """What the request has cost so far, in all its sessions: trials, and what machines cost beside them."""

    total_usd: float


Event = Started | Shown | Ended | ClusterReady | Paid
Watch = Callable[[Event], None]
