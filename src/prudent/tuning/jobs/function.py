"""A Python function as a job: called at a configuration, it answers measures, or yields them as it goes."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from prudent.core.errors import BadInput, unknown
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import TIME
from prudent.tuning.jobs.job import (
    ELAPSED,
    declared_fraction,
    declared_measures,
    declared_seconds,
    fingerprint_of,
    name_of,
)
from prudent.tuning.jobs.pricing import PriceSpec, pricing
from prudent.tuning.jobs.run_output import ReportedMeasures, as_number, seen_until
from prudent.tuning.jobs.timeline import Timeline
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Outcome, Progress

Call = Callable[[], Any]
_HOW = 'return it, like {{"{name}": 0.5}}'


class FunctionJob:
    """A callable as a job.

    It is called as `function(**configuration)` if its arguments are the parameters, else as
    `function(configuration)`. It returns its measures (a mapping, or a number where there is one
    measure), or is a generator that yields them on the way, `{"accuracy": 0.8, "progress": 0.4}`;
    of each measure the last value counts.

    A run works in a thread. A generator that is cut stops at its next yield and is closed there, so
    that its `finally` blocks run; `grace_s` is how long the cut waits for that. A function that does
    not yield cannot be stopped: when cut it ends by itself, in the background. Its result is ignored, and
    what it costs after the cut is not known.

    `virtual=True` is for simulated jobs: the function tells the time itself (`elapsed_s` in what it
    yields, `time_s` in what it returns) and nobody waits. `setup_s` is billed before every run.

    >>> space = Space.parse({"depth": [1, 2, 3]})
    >>> job = FunctionJob(lambda depth: {"error": 1 / depth, "time_s": 60 * depth}, space, ["error"],
    ...                   price=3.6, virtual=True)
    >>> job.start({"depth": 2}, number=1).next(until_s=600)
    Outcome(status='finished', time_s=120.0, measures={'error': 0.5}, why='', started=True)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        space: Space,
        measures: Sequence[str] = (),
        price: PriceSpec = None,
        fraction: str | None = None,
        setup_s: float = 0.0,
        name: str | None = None,
        virtual: bool = False,
        grace_s: float = 5.0,
    ) -> None:
        self.space = space
        self.measures = declared_measures(measures)
        self.fraction = declared_fraction(fraction, space)
        self.name = name or name_of(function)
        self.virtual = virtual
        self.setup_s = declared_seconds("The set-up time", setup_s)
        self.grace_s = declared_seconds("The grace time", grace_s)
        self._function = function
        self._by_name = _takes_names(function, space)
        self._pricing = pricing(price, space)

    def price(self, configuration: Configuration) -> Price:
        return self._pricing.price(self.space.check(configuration))

    def start(self, configuration: Configuration, number: int) -> LiveFunctionRun | VirtualFunctionRun:
        del number
        chosen = self.space.check(configuration)
        reports = ReportedMeasures(self.measures)

        def call() -> Any:
            return self._function(**chosen) if self._by_name else self._function(dict(chosen))

        if self.virtual:
            return VirtualFunctionRun(call, reports, self.measures, self.setup_s)
        return LiveFunctionRun(call, reports, self.measures, self.setup_s, self.grace_s)

    def fingerprint(self) -> str:
        """By the function's name, not its code: a study may go on after a mistake in it was mended."""
        return fingerprint_of(
            "function",
            name_of(self._function),
            self.space.fingerprint(),
            self.measures,
            self._pricing.fingerprint(),
            self.fraction,
            self.setup_s,
            self.virtual,
        )


class LiveFunctionRun:
    """One call under way in a thread of its own, on the real clock."""

    def __init__(
        self, call: Call, reports: ReportedMeasures, measures: Sequence[str], setup_s: float, grace_s: float
    ) -> None:
        self._call = call
        self._reports = reports
        self._measures = tuple(measures)
        self.grace_s = grace_s
        self._stop = threading.Event()
        self._yields = False
        self._timeline = Timeline(setup_s)
        self._thread = threading.Thread(target=self._work, name="prudent-function", daemon=True)
        self._thread.start()

    def next(self, until_s: float) -> Progress | Outcome | None:
        return self._timeline.next(until_s)

    def cut(self, at_s: float, why: str) -> Outcome:
        self._stop.set()
        seen = self._reports.measures
        if self._yields:
            self._thread.join(self.grace_s)
        return Outcome(CUT, at_s, seen, why, ending_s=max(self._timeline.now_s() - at_s, 0.0))

    def elapsed_s(self) -> float:
        """How long the run has lasted, set-up included."""
        return self._timeline.now_s()

    def due_s(self) -> float:
        return math.inf

    def notify(self, wake: Callable[[], None]) -> None:
        self._timeline.notify(wake)

    def _work(self) -> None:
        try:
            result = self._call()
            if isinstance(result, Generator):
                result = self._follow(result)
            if self._stop.is_set():
                return
            self._reports.take(_values(result, self._measures), 0.0)
            why = self._reports.complaint(_HOW)
        except BaseException as error:  # noqa: BLE001 - whatever a user's function raises ends its run only
            why = reason(error)
        self._timeline.add(_outcome(self._timeline.now_s(), self._reports, why))

    def _follow(self, steps: Generator[Any, Any, Any]) -> Any:
        """Run a generator to its end, or to the yield after a cut."""
        self._yields = True
        while True:
            try:
                said = next(steps)
            except StopIteration as end:
                return end.value
            if self._stop.is_set():
                steps.close()
                return None
            progress = self._reports.take(_values(said, self._measures), self._timeline.now_s())
            if progress is not None:
                self._timeline.add(progress)


class VirtualFunctionRun:
    """One simulated call: it computes when it is asked, and its clock is the time that it reports."""

    def __init__(
        self, call: Call, reports: ReportedMeasures, measures: Sequence[str], setup_s: float
    ) -> None:
        self._call = call
        self._reports = reports
        self._measures = tuple(measures)
        self._setup_s = setup_s
        self._latest_s = setup_s
        self._steps: Generator[Any, Any, Any] | None = None
        self._begun = False
        self._upcoming: Progress | Outcome | None = None
        self._shown: list[Progress] = []
        self._over = False

    def next(self, until_s: float) -> Progress | Outcome | None:
        if self._upcoming is None:
            self._upcoming = self._advance()
        event = self._upcoming
        at_s = event.elapsed_s if isinstance(event, Progress) else event.time_s
        if at_s > until_s:
            return None
        self._upcoming = None
        if isinstance(event, Progress):
            self._shown.append(event)
        else:
            self._over = True
        return event

    def cut(self, at_s: float, why: str) -> Outcome:
        """End it at `at_s`, which may lie before what was already told: virtual clocks are compared."""
        while not self._over and self.next(at_s) is not None:
            pass
        if self._steps is not None:
            self._steps.close()
        return Outcome(CUT, at_s, seen_until(self._shown, at_s), why)

    def _advance(self) -> Progress | Outcome:
        """The next progress that tells anything, or how it ends."""
        try:
            result = None
            if not self._begun:
                self._begun = True
                result = self._call()
                if isinstance(result, Generator):
                    self._steps, result = result, None
            while self._steps is not None:
                try:
                    said = _values(next(self._steps), self._measures)
                except StopIteration as end:
                    self._steps, result = None, end.value
                    break
                self._latest_s = self._time_in(said, required=True)
                progress = self._reports.take(said, self._latest_s)
                if progress is not None:
                    return progress
            values = _values(result, self._measures)
            self._latest_s = self._time_in(values, required=self._latest_s == self._setup_s)
            self._reports.take(values, self._latest_s)
            why = self._reports.complaint(_HOW)
        except KeyboardInterrupt:
            raise  # it runs in the caller's thread: this one was meant for the whole study
        except BaseException as error:  # noqa: BLE001 - whatever a user's function raises ends its run only
            why = reason(error)
        return _outcome(self._latest_s, self._reports, why)

    def _time_in(self, values: Mapping[str, Any], required: bool) -> float:
        key = ELAPSED if ELAPSED in values else TIME
        seconds = as_number(values.get(key))
        if seconds is None and not required and key not in values:
            return self._latest_s
        if seconds is None or not 0 <= seconds < float("inf"):
            raise BadInput(
                f"reported {values.get(key)!r} as its time; a virtual function says {ELAPSED} in what it "
                f"yields and {TIME} in what it returns, in seconds of 0 or more"
            )
        return max(self._latest_s, self._setup_s + seconds)


def reason(error: BaseException) -> str:
    """Why a function failed, in one line."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, BadInput):
        return str(error)
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _outcome(time_s: float, reports: ReportedMeasures, why: str | None) -> Outcome:
    return Outcome(FINISHED if why is None else FAILED, time_s, reports.measures, why or "")


def _values(result: Any, measures: Sequence[str]) -> Mapping[str, Any]:
    """What a function gave, by name."""
    if result is None:
        return {}
    if isinstance(result, Mapping):
        return result
    if len(measures) == 1 and as_number(result) is not None:
        return {measures[0]: result}
    example = ", ".join(f'"{name}": 0.5' for name in measures)
    kind = type(result).__name__
    raise BadInput(f"gave a {kind} instead of its measures; return a mapping like {{{example}}}")


def _takes_names(function: Callable[..., Any], space: Space) -> bool:
    """Whether a function wants the parameters one by one; BadInput if it can be called neither way."""
    if not callable(function):
        raise BadInput(f"{function!r} cannot be called; give a function of the configuration.")
    name = name_of(function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(f"{name} is asynchronous; wrap it in a function that calls asyncio.run.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False  # a builtin that does not say; most take one argument
    if _binds(signature, **dict.fromkeys(space.names)):
        return True
    arguments = [argument for argument in signature.parameters if argument in space.names]
    missing = [parameter for parameter in space.names if parameter not in signature.parameters]
    if arguments and missing:
        raise BadInput(f"{name} lacks an argument: {unknown('argument', missing[0], signature.parameters)}")
    if not _binds(signature, None):
        raise BadInput(
            f"{name}{signature} cannot be called with a configuration; let it take one argument, "
            f"or the arguments {', '.join(space.names)}."
        )
    return False


def _binds(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
