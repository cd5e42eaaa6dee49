"""A training request whose machines are left open, as a job of a study, and the runs of its trials."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from prudent.cloud.providers.provider import Provider
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price
from prudent.core.processes import kill_point
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.spark.run import failure_reason
from prudent.training.joint.cluster import ClusterSize, SharedCluster, TrainingCluster
from prudent.training.joint.space import JointSpace
from prudent.training.request.request import TrainingRequest
from prudent.training.search.job import GRACE_S, TrialJob
from prudent.training.search.methods import FRACTION
from prudent.training.search.rented_job import FETCHED_LOOK_S
from prudent.training.search.stopping import SAFE_SHARE, TrialTimes
from prudent.tuning.jobs.job import LiveRun, Run, fingerprint_of
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, Configuration, Outcome, Progress


class JointJob(TrialJob):
    """Trains what a configuration says, on the machines it names (see `RentingJob`).

    Trials come one after another: each has its machines for itself, so that what they cost is its cost.
    """

    last_look_s, pays_for_look = FETCHED_LOOK_S, True

    def __init__(
        self,
        request: TrainingRequest,
        space: JointSpace,
        provider: Provider,
        shared_cluster: SharedCluster,
        folder: Path,
        times: TrialTimes,
    ) -> None:
        super().__init__(request, space, folder, times)
        self.space = space
        self.fraction = FRACTION if FRACTION in space.names else None
        self._provider, self._shared_cluster = provider, shared_cluster
        # A type that cannot be had is found now, not after money was spent.
        self._prices = {name: provider.offer(name).price for name in space.types}

    def price(self, configuration: Configuration) -> Price:
        size = self._size(configuration)
        return size.price.times(size.count)

    def start(self, configuration: Configuration, number: int) -> JointRun:
        spec, size = self.spec(configuration, number), self._size(configuration)
        return JointRun(self._shared_cluster, size, spec, self.times.left_s, lambda: self.keeps_money)

    def check(self) -> list[str]:
        return self._provider.check(self.space.types)

    def release(self) -> None:
        self._shared_cluster.close()

    def bill_usd(self) -> float:
        return self._shared_cluster.meter.spent_usd()

    def fingerprint(self) -> str:
        prices = sorted((name, price.usd_per_h, price.minimum_s) for name, price in self._prices.items())
        return fingerprint_of(
            "joint", self._request.fingerprint(), self.space.fingerprint(), self._provider.name, prices
        )

    def _size(self, configuration: Configuration) -> ClusterSize:
        count, name = self.space.machines_of(configuration)
        return ClusterSize(name, count, self._prices[name])


LOSSES = 3
"""A trial whose machines were lost so often has failed; before that it is tried on others."""


class JointRun:
    """One trial: it waits for its cluster, then trains a model on it.

    Its clock starts when the machines are ordered, because booting costs money (see `RentedRun`).

    It notifies when its machines are there, and when its model reports something (see `LiveRun`); an engine
    that cannot notify is polled with the bill. `left_s` tells how much time is left, `needed_later` whether
    the end of the search has money of its own for the machines.
    """

    def __init__(
        self,
        shared_cluster: SharedCluster,
        size: ClusterSize,
        spec: TrialSpec,
        left_s: Callable[[], float] = lambda: math.inf,
        needed_later: Callable[[], bool] = lambda: False,
    ) -> None:
        self._shared_cluster, self._size, self._spec, self._left_s = shared_cluster, size, spec, left_s
        self._needed_later = needed_later
        self._zero_s = time.monotonic()
        self._cluster: TrainingCluster = shared_cluster.cluster_for(size)
        self._inner: Run | None = None
        self._began_s: float | None = None
        self._losses = 0
        self._bill_usd: float | None = None
        self._wake: Callable[[], None] = lambda: None

    # For the study

    def next(self, until_s: float) -> Progress | Outcome | None:
        if self._inner is None:
            return self._wait_for_cluster(until_s)
        return self._event_of(self._inner, until_s)

    def cut(self, at_s: float, why: str) -> Outcome:
        """End the training. A cluster that was ordered stays for the next trial."""
        if why == OUT_OF_MONEY and not self._needed_later():
            self._cluster.end()  # first the machines: the model stops later
        if self._inner is None:
            self._cluster.withdraw_approval()
            return self._with_bill(Outcome(CUT, at_s, {}, why))
        cut = self._inner.cut(max(at_s - self.overhead_s, 0.0), why)
        return self._with_bill(replace(cut, time_s=at_s))

    def elapsed_s(self) -> float:
        return self._now_s()

    def due_s(self) -> float:
        return math.inf

    def notify(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._cluster.notify(wake)

    @property
    def overhead_s(self) -> float:
        return self._now_s() if self._began_s is None else self._began_s

    def lasts_s(self, usd: float) -> float:
        """Until which age `usd` pay for what is due, for its cluster, and for the end of that."""
        left_s = self._shared_cluster.lasts_s(self._cluster, usd)
        if left_s > 0:
            self._cluster.approve()
        return self._now_s() + left_s

    # Inside

    def _now_s(self) -> float:
        return time.monotonic() - self._zero_s

    def _wait_for_cluster(self, until_s: float) -> Outcome | None:
        """Wait for the machines; begin to train when they are there."""
        if not self._cluster.done.wait(max(until_s - self._now_s(), 0.0)):
            return None
        error, session = self._cluster.error, self._cluster.session
        if isinstance(error, BadInput):
            raise error  # the data or the request: no trial could do better
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            raise RunFailed(f"{error}; correct it here, and continue with --resume.") from error
        if session is None:
            return self._fail("They were given back." if error is None else failure_reason(error))
        kill_point("trial.put")
        self._began_s = self._now_s()
        try:
            self._inner = session.start(self._limited_spec())
        except RunFailed as lost:
            return self._fail(str(lost))
        # Its clock starts here. If it lagged behind ours, it would never be seen to reach a limit.
        self._began_s = self._now_s()
        if isinstance(self._inner, LiveRun):
            self._inner.notify(self._wake)
        kill_point("trial.started")
        return None

    def _limited_spec(self) -> TrialSpec:
        """The trial with its time limits: an iterative algorithm ends by itself before it is cut."""
        left_s = self._left_s()
        if math.isinf(left_s):
            return self._spec
        return replace(self._spec, limit_s=max(left_s, 0.0) + GRACE_S, soft_s=SAFE_SHARE * max(left_s, 0.0))

    def _event_of(self, inner: Run, until_s: float) -> Progress | Outcome | None:
        began_s = self.overhead_s
        event = inner.next(until_s - began_s)
        if isinstance(event, Progress):
            return replace(event, elapsed_s=event.elapsed_s + began_s)
        if event is None:
            return None
        if event.status == FAILED and self._cluster.handle.trouble is not None:
            return self._fail(self._cluster.handle.trouble)
        kill_point("trial.ended")
        return self._with_bill(replace(event, time_s=event.time_s + began_s))

    def _fail(self, why: str) -> Outcome | None:
        """Fail the trial if its machines did not come; if they were lost, begin it again on others."""
        came = self._began_s is not None
        self._losses += 1
        if came and self._losses < LOSSES:
            self._began_s = self._inner = None
            self._cluster = self._shared_cluster.cluster_for(self._size)
            self._cluster.notify(self._wake)
            return None
        lost = f"its machines were lost {LOSSES} times: {why}" if came else f"could not start: {why}"
        return self._with_bill(Outcome(FAILED, self._now_s(), {}, lost, started=came))

    def _with_bill(self, outcome: Outcome) -> Outcome:
        """The outcome with what was paid since the trial before, idle machines included."""
        if self._bill_usd is None:
            self._bill_usd = self._shared_cluster.settle()
        overhead_s = outcome.time_s if self._began_s is None else min(self._began_s, outcome.time_s)
        return replace(outcome, overhead_s=overhead_s, bill_usd=self._bill_usd)
