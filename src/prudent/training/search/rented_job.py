"""A request on machines rented for it: trials share what they cost, and some is kept for the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from prudent.cloud.meter import Meter
from prudent.core.errors import PrudentError
from prudent.training.engines.engine import TrainingSession
from prudent.training.request.request import TrainingRequest
from prudent.training.search.allocation import MethodAllocation
from prudent.training.search.job import MARGIN_S, TrainingJob
from prudent.training.search.space import MethodSpace
from prudent.training.search.stopping import MOST_KEPT, TrialTimes
from prudent.tuning.jobs.job import Run
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, Configuration, Outcome

FETCHED_LOOK_S = 6.0
"""How long it takes to choose among the models and to look at them where rows come from rented machines."""


@dataclass(frozen=True)
class MachinesInUse:
    """Machines rented for a request: their meter, how to give them back, and whether that was done for lack
    of money.
    """

    meter: Meter
    give_back: Callable[[], None]
    is_gone: Callable[[], bool]


class RentedTrainingJob(TrainingJob):
    """The same on machines that were rented for the request (see `RentingJob`).

    What they cost is divided among the trials under way; while none is, no trial is charged. The budget
    covers all of it, from the order to the give-back; a `BudgetGuard` ends them in time. Machines that do not
    end are `trouble`, for later: the models come first.
    """

    poll_every_s = 0.1
    last_look_s, pays_for_look = FETCHED_LOOK_S, True

    def __init__(
        self,
        request: TrainingRequest,
        space: MethodSpace,
        session: TrainingSession,
        folder: Path,
        times: TrialTimes,
        allocation: MethodAllocation,
        machines: MachinesInUse,
    ) -> None:
        super().__init__(request, space, session, folder, times, allocation)
        self._meter, self._machines = machines.meter, machines
        self._divided_usd = machines.meter.spent_usd()
        self._shares_usd: dict[int, float] = {}
        self.trouble: PrudentError | None = None

    def start(self, configuration: Configuration, number: int) -> Run:
        self._divide()
        self._shares_usd[number] = 0.0
        return super().start(configuration, number)

    # What the study asks

    def limit_s(self, number: int, lasted_s: float) -> float:
        return min(super().limit_s(number, lasted_s), lasted_s + self._lasts_s() - MARGIN_S)

    def at_limit(self, number: int, lasted_s: float) -> str:
        return OUT_OF_MONEY if self._lasts_s() <= MARGIN_S else super().at_limit(number, lasted_s)

    def settled(self, number: int, outcome: Outcome) -> Outcome:
        self._divide()
        if outcome.status == FAILED and self._machines.is_gone():
            outcome = replace(outcome, status=CUT, why=OUT_OF_MONEY)
        return replace(outcome, bill_usd=self._shares_usd.pop(number))

    def check(self) -> list[str]:
        return []  # the machines are there

    def bill_usd(self) -> float:
        return self._meter.spent_usd()

    def release(self) -> None:
        try:
            self._machines.give_back()
        except PrudentError as error:
            self.trouble = error

    # Money

    def _left_usd(self) -> float:
        """What the time left is worth: a billing minimum that was paid is there to be used."""
        rate, lasts_s = self._meter.usd_per_s, self._lasts_s()
        return self._meter.left_usd if rate == 0 and lasts_s > 0 else lasts_s * rate

    def _affordable_s(self, reserved_usd: float = 0.0) -> float:
        return self._lasts_s()

    def _lasts_s(self) -> float:
        """How long the money pays for trials; some is kept back for the end of the search."""
        meter = self._meter
        if self._machines.is_gone():
            return 0.0
        whole_s = meter.allowed_usd / meter.usd_per_s if meter.usd_per_s else math.inf
        return max(meter.lasts_s() - min(self._ending_s, MOST_KEPT * whole_s), 0.0)

    def _divide(self) -> None:
        spent_usd = self._meter.spent_usd()
        more_usd, self._divided_usd = spent_usd - self._divided_usd, spent_usd
        for number in self._shares_usd:
            self._shares_usd[number] += more_usd / len(self._shares_usd)
