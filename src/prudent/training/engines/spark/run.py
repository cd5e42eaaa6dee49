"""A running trial: a thread of its own, whose jobs are one group in a pool of Spark's fair scheduler."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from typing import Any

from prudent.core.errors import PrudentError
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.model_files import remove_model_files
from prudent.training.engines.spark.spark_session import first_line
from prudent.training.engines.spark.trial import SparkTrialContext, train
from prudent.tuning.jobs.timeline import Timeline
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress

_GRACE_S = 10.0  # for a thread whose jobs are cancelled to notice
_LONGEST = 300


class SparkRun:
    """Trains one model. A cut cancels its jobs on the cluster, running and to come."""

    def __init__(self, spark: Any, context: SparkTrialContext, spec: TrialSpec) -> None:
        from pyspark import InheritableThread

        self._spark, self._context, self._spec = spark, context, spec
        self._group = f"prudent-trial-{spec.number}-{id(self):x}"
        self._timeline = Timeline()
        self._measures: dict[str, float] = {}
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._timer: threading.Timer | None = None
        if spec.limit_s is not None:
            self._timer = threading.Timer(spec.limit_s, self._time_out)
            self._timer.daemon = True
            self._timer.start()
        self._thread = InheritableThread(target=self._work)
        self._thread.daemon = True
        self._thread.start()

    def next(self, until_s: float) -> Progress | Outcome | None:
        return self._timeline.next(until_s)

    def cut(self, at_s: float, why: str) -> Outcome:
        self._stop(why)
        self._thread.join(_GRACE_S)
        remove_model_files(self._spec.folder)
        return Outcome(CUT, at_s, self._measures, why)

    def elapsed_s(self) -> float:
        return self._timeline.now_s()

    def due_s(self) -> float:
        return math.inf

    def notify(self, wake: Callable[[], None]) -> None:
        self._timeline.notify(wake)

    @property
    def running(self) -> bool:
        return bool(self._thread.is_alive())

    # In the run's own thread

    def _work(self) -> None:
        context = self._spark.sparkContext
        context.setJobGroup(self._group, f"trial {self._spec.number}", interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", self._group)
        try:
            facts = train(self._context, self._spec, self._report)
        except BaseException as error:  # noqa: BLE001 - whatever goes wrong ends this trial only
            self._end(failure_reason(error))
            return
        self._measures = facts.measures
        self._end(None)

    def _report(self, score: float, done: float) -> None:
        if self._failure is None:
            self._measures = {"score": score}
            self._timeline.add(Progress(self._timeline.now_s(), {"score": score}, done))

    def _end(self, why: str | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            why = self._failure or why
            self._failure = self._failure or why or "over"
        status = FINISHED if why is None else FAILED
        if why is not None:
            remove_model_files(self._spec.folder)
        at_s = self._timeline.now_s()
        if self._spec.limit_s is not None and why is not None:
            at_s = min(at_s, self._spec.limit_s)
        self._timeline.add(Outcome(status, at_s, self._measures, why or ""))

    # From others

    def _time_out(self) -> None:
        self._stop(
            f"It was not ready within its limit of {self._spec.limit_s:g} s; allow more time or less data."
        )

    def _stop(self, why: str) -> None:
        with self._lock:
            if self._failure is not None:
                return
            self._failure = why
        self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group)


def failure_reason(error: BaseException) -> str:
    """Why a trial failed, in one sentence; of Spark's pages of Java, what it says first.

    >>> failure_reason(ValueError("requirement failed: Sum of weights cannot be zero."))
    'Spark refuses: Sum of weights cannot be zero.'
    """
    if isinstance(error, PrudentError):
        return str(error)
    if isinstance(error, MemoryError):
        return "It ran out of memory; use less data or smaller settings."
    java = getattr(error, "java_exception", None)
    text = _cause(java) if java is not None else first_line(error)
    for noise in (
        r"^\[[A-Z_.]+\]\s*",
        r"^[\w.$]*(Exception|Error):\s*",
        r"^requirement failed:\s*",
        r"\s*SQLSTATE: \w+$",
    ):
        text = re.sub(noise, "", text)
    text = " ".join(text.split())
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST].rsplit(' ', 1)[0]} …"
    return f"Spark refuses: {shown}" if shown else f"Spark refuses ({type(error).__name__})."


def _cause(java: Any) -> str:
    """The message at the bottom of a chain of Java's causes."""
    deepest = java
    for _ in range(20):
        cause = deepest.getCause()
        if cause is None:
            break
        deepest = cause
    said = str(deepest.getMessage() or deepest.getClass().getSimpleName())
    return next((line.strip() for line in said.splitlines() if line.strip()), said)
