"""Money and time of one session: what is left, what to do when it is too little, what a stop is told as."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prudent.cloud.hold import due_usd
from prudent.core.money import ROUNDING_USD
from prudent.workflows.execute.dispatch import Lane
from prudent.workflows.execute.forecast import Forecast
from prudent.workflows.execute.journal import Fact
from prudent.workflows.execute.limits import Limit, Limits, stop_sentence
from prudent.workflows.execute.meter import Meter, spent_usd
from prudent.workflows.execute.replan import Queues
from prudent.workflows.execute.thrift import Rest, better
from prudent.workflows.fleet import Fleet
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

Foresee = Callable[[Workflow, Mapping[Lane, Sequence[str]], Sequence[Fact], float], Forecast]
"""What activations in these queues cost and take if they are begun anew, after these facts at that time."""


@dataclass(frozen=True)
class Keeper:
    """Keeps an execution within its limits. It acts in time, for nothing that was paid is ever left out."""

    limits: Limits
    meter: Meter
    foresee: Foresee

    def left(self, now_s: float, most_s: float = math.inf) -> tuple[float, Limit]:
        """For how long what is held may be used, and which limit says so; below zero it is too late.

        Who asks only whether it may be used for `most_s` is answered quickly.
        """
        if not self.limits:
            return math.inf, "budget"
        holds = self.meter.holds(now_s)
        return self.limits.left(holds, self.meter.earlier_usd, now_s, self.meter.give_back_s, most_s)

    def affords(self, ends_s: Mapping[str, float], now_s: float) -> bool:
        """Whether VMs can be kept until these moments, and no other longer than now."""
        if self.limits.deadline_s is not None and max(ends_s.values()) > self.limits.deadline_s:
            return False
        if self.limits.budget_usd is None:
            return True
        total_usd = self.meter.earlier_usd
        for hold in self.meter.holds(now_s):
            total_usd += hold.due_usd(ends_s.get(hold.name, now_s) + self.meter.give_back_s)
        return total_usd <= self.limits.budget_usd + ROUNDING_USD

    def spent_usd(self, now_s: float) -> float:
        """What the run has cost until now."""
        return spent_usd(self.meter, now_s)

    def change(
        self,
        workflow: Workflow,
        fleet: Fleet,
        world: World,
        queues: Mapping[Lane, Sequence[str]],
        running: Mapping[str, tuple[Lane, float]],
        now_s: float,
    ) -> tuple[Queues, Limit] | None:
        """Other queues for what waits on the VMs held, if the limits call for them, and which limit does."""
        held = {vm.name for vm in fleet.vms}
        holds = self.meter.holds(now_s)
        ours = [hold for hold in holds if hold.name in held and hold.until_s is None]
        elsewhere_usd = self.meter.earlier_usd + sum(
            hold.due_usd(now_s + self.meter.give_back_s) for hold in holds if hold not in ours
        )
        waiting = {name for queue in queues.values() for name in queue}
        rest = Rest(
            workflow, fleet, world, waiting, running, ours, elsewhere_usd, now_s, self.meter.give_back_s
        )
        now, spent = rest.as_it_is(queues), self.spent_usd(now_s)
        if now.keeps(self.limits, now_s, spent):
            return None
        found = better(now, rest.others(), self.limits, rest, spent)
        if found is None:
            return None
        return found.queues, self.limits.passed_by(now.cost_usd, now.end_s) or "budget"

    def stop_fact(
        self,
        why: Limit,
        workflow: Workflow,
        queues: Mapping[Lane, Sequence[str]],
        facts: Sequence[Fact],
        now_s: float,
    ) -> Fact:
        """The fact of a stop: what remains, in these queues, and what it needs."""
        remaining = sum(map(len, queues.values()))
        spent, holds = self.spent_usd(now_s), self.meter.holds(now_s)
        end_usd = self.meter.earlier_usd + due_usd(holds, now_s + self.meter.give_back_s)
        rest = self.foresee(workflow, queues, facts, now_s)
        what = f"{remaining} of {len(workflow)} activations remain"
        said = stop_sentence(self.limits, why, spent, end_usd, now_s, what, rest)
        return {
            "fact": "stopped",
            "at_s": now_s,
            "why": why,
            "spent_usd": spent,
            "remaining": remaining,
            "needs": rest.to_dict(),
            "sentence": said,
        }
