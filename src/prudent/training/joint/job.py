"""A training request whose machines are left open, as a job that a study can run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from prudent.cloud.providers.provider import Provider
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price
from prudent.core.points import kill_point
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.spark.run import reason
from prudent.training.joint.cluster import Kind, Place, Site
from prudent.training.joint.space import JointSpace
from prudent.training.request.checks import MEASURES
from prudent.training.request.request import TrainingRequest
from prudent.training.search.methods import FRACTION
from prudent.training.search.results import TIME_UP
from prudent.training.search.search import GRACE_S
from prudent.training.search.stopping import SAFE_SHARE
from prudent.tuning.jobs.declared import fingerprint_of
from prudent.tuning.jobs.job import LiveRun, Run
from prudent.tuning.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, Configuration, Outcome, Progress


class JointJob:
    """Trains what a configuration says, on the machines it names (`Job` and `Renting` of the studies).

    Models go to `folder`, each under its trial's number. `left_s` tells how long a trial may take that begins
    now. Trials come one after another: each has its machines for itself, so that what they cost is its cost.
    """

    virtual = False
    name = "train"
    measures = MEASURES

    def __init__(
        self,
        request: TrainingRequest,
        space: JointSpace,
        provider: Provider,
        site: Site,
        folder: Path,
        left_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.space = space
        self.fraction = FRACTION if FRACTION in space.names else None
        self._request, self._provider, self._site = request, provider, site
        self._folder, self._left_s = folder, left_s
        # A type that cannot be had is found now, not after money was spent.
        self._prices = {name: provider.offer(name).price for name in space.types}

    def price(self, configuration: Configuration) -> Price:
        kind = self._kind(configuration)
        return kind.price.times(kind.count)

    def start(self, configuration: Configuration, number: int) -> JointRun:
        choice = self.space.choice(configuration)
        spec = TrialSpec(
            number,
            choice.plan.algorithm.name,
            choice.plan.algorithm.complete(choice.hyperparameters),
            choice.transforms,
            choice.fraction,
            self._request.seed,
            self._folder / str(number),
        )
        return JointRun(self._site, self._kind(configuration), spec, self._left_s())

    def check(self) -> list[str]:
        return self._provider.check(self.space.types)

    def release(self) -> None:
        self._site.close()

    def bill_usd(self) -> float:
        return self._site.meter.spent_usd()

    def fingerprint(self) -> str:
        prices = sorted((name, price.usd_per_h, price.minimum_s) for name, price in self._prices.items())
        return fingerprint_of(
            "joint", self._request.fingerprint(), self.space.fingerprint(), self._provider.name, prices
        )

    def _kind(self, configuration: Configuration) -> Kind:
        count, name = self.space.machines_of(configuration)
        return Kind(name, count, self._prices[name])


LOSSES = 3
"""A trial whose machines were lost so often has failed; before that it is tried on others."""


class JointRun:
    """A trial under way. Its clock starts with the order of the machines: booting is money (see `Rented`).

    It has `left_s` seconds in all, then it cuts itself. It says when its machines are there, and when its
    model has something to tell (see `LiveRun`); an engine that cannot is asked whenever the bill is looked at.
    """

    def __init__(self, site: Site, kind: Kind, spec: TrialSpec, left_s: float = math.inf) -> None:
        self._site, self._kind, self._spec, self._left_s = site, kind, spec, left_s
        self._zero_s = time.monotonic()
        self._place: Place = site.want(kind)
        self._inner: Run | None = None
        self._began_s: float | None = None
        self._losses = 0
        self._bill_usd: float | None = None
        self._wake: Callable[[], None] = lambda: None

    # What a study asks

    def next(self, until_s: float) -> Progress | Outcome | None:
        limit_s = min(until_s, self._left_s)
        event = self._awaited(limit_s) if self._inner is None else self._heard(self._inner, limit_s)
        if event is None and self._left_s <= until_s and self._now_s() >= self._left_s:
            return self.cut(self._left_s, TIME_UP)
        return event

    def cut(self, at_s: float, why: str) -> Outcome:
        """End the training; machines that come up stay for whoever is next, others wait for who pays."""
        if why == OUT_OF_MONEY:
            self._place.end()  # first the machines: a model takes its time to notice
        if self._inner is None:
            self._place.withdraw()
            return self._billed(Outcome(CUT, at_s, {}, why))
        cut = self._inner.cut(max(at_s - self.overhead_s, 0.0), why)
        return self._billed(replace(cut, time_s=at_s))

    def elapsed_s(self) -> float:
        return self._now_s()

    def due_s(self) -> float:
        return self._left_s

    def notify(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._place.notify(wake)

    @property
    def overhead_s(self) -> float:
        return self._now_s() if self._began_s is None else self._began_s

    def lasts_s(self, usd: float) -> float:
        """Until when `usd` pay for what is due, its own machines, and their end."""
        left_s = self._site.lasts_s(self._place, usd)
        if left_s > 0:
            self._place.pay()
        return self._now_s() + left_s

    # Inside

    def _now_s(self) -> float:
        return time.monotonic() - self._zero_s

    def _awaited(self, until_s: float) -> Outcome | None:
        """Wait for the machines; begin to train when they are there."""
        if not self._place.done.wait(max(until_s - self._now_s(), 0.0)):
            return None
        error, session = self._place.error, self._place.session
        if isinstance(error, BadInput):
            raise error  # the data or the request: no trial could do better
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            raise RunFailed(f"{error}; mend it here, and go on with --resume.") from error
        if session is None:
            return self._failed("They were given back." if error is None else reason(error))
        kill_point("trial.put")
        self._began_s = self._now_s()
        try:
            self._inner = session.start(self._limited())
        except RunFailed as lost:
            return self._failed(str(lost))
        # Its clock runs from here: one that began behind ours would never be heard to reach a limit.
        self._began_s = self._now_s()
        if isinstance(self._inner, LiveRun):
            self._inner.notify(self._wake)
        kill_point("trial.started")
        return None

    def _limited(self) -> TrialSpec:
        """What to train, and in which time: an iterative algorithm ends by itself before it is cut."""
        left_s = self._left_s - self._now_s()
        if math.isinf(left_s):
            return self._spec
        return replace(self._spec, limit_s=max(left_s, 0.0) + GRACE_S, soft_s=SAFE_SHARE * max(left_s, 0.0))

    def _heard(self, inner: Run, until_s: float) -> Progress | Outcome | None:
        began_s = self.overhead_s
        event = inner.next(until_s - began_s)
        if isinstance(event, Progress):
            return replace(event, elapsed_s=event.elapsed_s + began_s)
        if event is None:
            return None
        if event.status == FAILED and self._place.cluster.trouble is not None:
            return self._failed(self._place.cluster.trouble)
        kill_point("trial.ended")
        return self._billed(replace(event, time_s=event.time_s + began_s))

    def _failed(self, why: str) -> Outcome | None:
        """Machines that do not come fail the trial; those that are lost are replaced, and it begins again."""
        came = self._began_s is not None
        self._losses += 1
        if came and self._losses < LOSSES:
            self._began_s = self._inner = None
            self._place = self._site.want(self._kind)
            self._place.notify(self._wake)
            return None
        lost = f"its machines were lost {LOSSES} times: {why}" if came else f"could not start: {why}"
        return self._billed(Outcome(FAILED, self._now_s(), {}, lost, started=came))

    def _billed(self, outcome: Outcome) -> Outcome:
        """With what was really paid since the trial before: its machines, and what they cost while idle."""
        if self._bill_usd is None:
            self._bill_usd = self._site.settle()
        overhead_s = outcome.time_s if self._began_s is None else min(self._began_s, outcome.time_s)
        return replace(outcome, overhead_s=overhead_s, bill_usd=self._bill_usd)
