"""A training request whose machines are left open, as a job that a study can run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from prudent.cloud.providers.provider import Provider
from prudent.core.money import Price
from prudent.training.engine import TrialSpec
from prudent.training.joint.check import MEASURES
from prudent.training.joint.run import JointRun
from prudent.training.joint.site import Kind, Site
from prudent.training.joint.space import JointSpace
from prudent.training.methods import FRACTION
from prudent.training.request import TrainingRequest
from prudent.tuning.jobs.declared import fingerprint_of
from prudent.tuning.trial import Configuration


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
