"""The contract between a study and whatever runs its configurations, and checks of what a job declares."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.parameters import is_number
from prudent.core.space import Space
from prudent.tuning.goal import COST, TIME
from prudent.tuning.trial import Configuration, Outcome, Progress


@runtime_checkable
class Run(Protocol):
    """One run under way. A study is the only caller, and calls it from one thread at a time."""

    def next(self, until_s: float) -> Progress | Outcome | None:
        """The next thing that happens at or before `until_s` seconds after the start.

        None means: nothing did, and the run has now lasted `until_s`. After an `Outcome` the run
        is over and `next` is not called again. A live run waits; a replayed one answers at once.
        """

    def cut(self, at_s: float, why: str) -> Outcome:
        """End the run early, children included; `at_s` is how long it has lasted."""


@runtime_checkable
class LiveRun(Protocol):
    """A run on the real clock that tells when something happens, so that it need not be polled.

    It may be cut from another thread than the one that calls `next`, which is not called any more then.
    """

    def elapsed_s(self) -> float:
        """How long it has lasted, set-up included: `next` never waits for a moment before this."""

    def due_s(self) -> float:
        """When it must be asked though it said nothing (its own time-out); inf for never."""

    def notify(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, whenever `next` has something to tell."""


@runtime_checkable
class ReadableRun(Protocol):
    """A run on the real clock with a handle that becomes readable when something happens.

    For the rest it is as a `LiveRun`, but never ends itself: `due_s` is the moment for which something was
    read from the handle too early.
    """

    def elapsed_s(self) -> float: ...

    def due_s(self) -> float: ...

    def fileno(self) -> int: ...


@runtime_checkable
class GracefulRun(Protocol):
    """A run that is given time to end by itself when it is cut; whoever cuts it may shorten that."""

    grace_s: float


@runtime_checkable
class StoppableRun(Protocol):
    """A run that the guard process can kill at a given moment, however busy its study is."""

    def stop_by(self, at_s: float) -> None:
        """Kill the run once it has lasted `at_s`, unless it was cut before; its outcome is a cut one then.

        A later call moves the moment.
        """


@runtime_checkable
class ReapableJob(Protocol):
    """A job whose runs may survive a session that was killed; `reap` ends them."""

    def reap(self) -> tuple[int, ...]:
        """End what an interrupted study left running; answers the numbers of those trials."""

    @property
    def outlived_s(self) -> Mapping[int, float]:
        """How long those had lasted then, by number."""


@runtime_checkable
class RentedRun(Protocol):
    """A run on machines that are rented for it; it tells what booting and lost machines have cost.

    Its clock starts with the order, since booting is paid. The first `overhead_s` seconds say nothing about
    the configuration.
    """

    @property
    def overhead_s(self) -> float: ...

    def lasts_s(self, usd: float) -> float:
        """Until when, on its clock, `usd` pay for everything it costs: boots, losses, the command."""


@runtime_checkable
class RentingJob(Protocol):
    """A job that rents machines and keeps them from one run to the next."""

    def check(self) -> list[str]:
        """What would go wrong at the machines, one sentence each; nothing is rented."""

    def release(self) -> None:
        """Give all machines back; a later run may rent again."""

    def bill_usd(self) -> float:
        """What all machines of this study have cost, in every session of it."""


@runtime_checkable
class BilledJob(Protocol):
    """A job whose confirming runs are billed by the leases of machines, not by their time."""

    def confirming_usd(self) -> float:
        """What all confirming runs of this study have cost, in every session of it."""


@runtime_checkable
class SupervisingJob(Protocol):
    """A job that decides, beside the money of its study, which trials begin, go on, and end."""

    poll_every_s: float
    """How often it must be asked again because its limits change by themselves; inf: they do not."""

    def stop_reason(self) -> str:
        """Why no further trial may begin; empty while one may."""

    def limit_s(self, number: int, lasted_s: float) -> float:
        """After how long in all `at_limit` must be asked about a trial that has lasted so long."""

    def at_limit(self, number: int, lasted_s: float) -> str:
        """Why a trial that has lasted so long must end; empty where it got more time."""

    def cut_reason(self, number: int, progress: Sequence[Progress]) -> str:
        """Why a trial that has reported this is not worth its end; empty where it is."""

    def settled(self, number: int, outcome: Outcome) -> Outcome:
        """The outcome of a trial as it is to be charged."""


@runtime_checkable
class Job(Protocol):
    """Something that can be run at every configuration of its space.

    `virtual` says that its runs answer at once and their clocks are compared instead of waited for
    (a table of measured runs); `fraction` names the parameter that is the share of the data used.
    """

    @property
    def name(self) -> str: ...

    @property
    def space(self) -> Space: ...

    @property
    def measures(self) -> tuple[str, ...]:
        """What runs report besides time_s and cost_usd."""

    @property
    def fraction(self) -> str | None: ...

    @property
    def virtual(self) -> bool: ...

    def price(self, configuration: Configuration) -> Price:
        """What a configuration costs per hour, known before it runs."""

    def start(self, configuration: Configuration, number: int) -> Run:
        """Begin a run; `number` is the trial's, for the names of its files."""

    def fingerprint(self) -> str:
        """A short text that changes when the job becomes another one: a journal belongs to one job."""


PROGRESS = "progress"
ELAPSED = "elapsed_s"
_OURS = (COST, TIME)


def declared_measures(measures: Iterable[str]) -> tuple[str, ...]:
    """The names of what runs report; time and cost are measured anyway and need not be named.

    >>> declared_measures(["accuracy", "time_s"])
    ('accuracy',)
    """
    if isinstance(measures, str):
        measures = (measures,)
    names = tuple(measures)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise BadInput(f'{name!r} is not a name of a measure; name what runs report, like "accuracy".')
        if name in (PROGRESS, ELAPSED):
            raise BadInput(f'"{name}" says how far a run is and cannot be a measure; choose another name.')
        if names.count(name) > 1:
            raise BadInput(f'The measure "{name}" is named twice; remove one.')
    return tuple(name for name in names if name not in _OURS)


def declared_fraction(fraction: str | None, space: Space) -> str | None:
    """The parameter that is the share of the data, if all its values can be one."""
    if fraction is None:
        return None
    parameter = space[fraction]
    listed = parameter.values if parameter.finite and (parameter.size or 0) <= 10_000 else ()
    for value in (*listed, parameter.from_unit(0.0), parameter.from_unit(1.0 - 1e-12)):
        if not is_number(value) or not 0 < value <= 1:
            raise BadInput(
                f'The fraction "{fraction}" can be {value!r}, which is not a share of the data in (0, 1]; '
                "write shares, 1 for all."
            )
    return fraction


def declared_seconds(what: str, seconds: float) -> float:
    """A length of time that somebody gave."""
    if not is_number(seconds) or not math.isfinite(seconds) or seconds < 0:
        raise BadInput(f"{what} cannot be {seconds!r}; give seconds of 0 or more.")
    return float(seconds)


def fingerprint_of(kind: str, *parts: Any) -> str:
    """A short text that is the same in every process, and another one when a part changes."""
    said = json.dumps(parts, sort_keys=True, default=repr)
    return f"{kind} {hashlib.sha256(said.encode()).hexdigest()[:16]}"


def name_of(function: Callable[..., Any]) -> str:
    """How people call a callable: its name, that of what it wraps, or that of its class."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
