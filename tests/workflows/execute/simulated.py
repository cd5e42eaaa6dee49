"""Simulated workers: sessions run on a simulated clock with the machines' true times and prices.

They have the interface of real workers, so that everything a session decides about money and time can be
tested and counted by code that shares nothing with the decisions.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from prudent.cloud.billing import RentalPeriod
from prudent.core.journal import Fact
from prudent.core.money import Price
from prudent.workflows.execute.command import ActivationRequest
from prudent.workflows.execute.journal import FactSink
from prudent.workflows.execute.limit_guard import LimitGuard
from prudent.workflows.execute.options import ExecutionOptions
from prudent.workflows.execute.plan_follower import PlanFollower
from prudent.workflows.execute.resume import RemainingWork
from prudent.workflows.execute.workers import ActivationReport, VmWorkers, WorkerEvent, WorkerLost
from prudent.workflows.plan import Plan
from prudent.workflows.workflow import Workflow

TrueRunTime = Callable[[str, str, int], tuple[float, bool]]
"""How long an attempt at an activation really takes on a VM, and whether it succeeds."""


class SimulatedVmWorkers(VmWorkers):
    """VMs that were ordered at 0 and are up at `boot_s`; each is paid until `gone_s` after its give-back.

    `lost_s` tells when VMs break. `paid` lists every machine with the seconds it was paid for.
    """

    are_rented = True
    poll_s = math.inf

    def __init__(
        self,
        prices: Mapping[str, Price],
        truth: TrueRunTime,
        boot_s: float = 0.0,
        gone_s: float = 0.0,
        lost_s: Mapping[str, float] | None = None,
    ) -> None:
        self.vms = set(prices)
        self.ordered_s = 0.0
        self.prices, self._truth, self._gone_s = dict(prices), truth, gone_s
        self._now_s = boot_s
        self._number = itertools.count()
        self._ahead: list[tuple[float, int, WorkerEvent]] = []
        self._running: dict[tuple[str, int], str] = {}
        self.paid: dict[str, float] = {}
        for vm, at_s in (lost_s or {}).items():
            self._push(at_s, WorkerLost(vm))

    def time_s(self) -> float:
        return self._now_s

    def listen(self, run: str) -> None:
        """Nothing to listen to."""

    def start(self, request: ActivationRequest) -> None:
        takes_s, succeeds = self._truth(request.activation, request.vm, request.attempt)
        who = {
            "activation": request.activation,
            "vm": request.vm,
            "slot": request.slot,
            "attempt": request.attempt,
        }
        self._running[request.activation, request.attempt] = request.vm
        self._push(self._now_s, ActivationReport({"fact": "started", **who}))
        error = "" if succeeds else "it ended with exit code 1"
        ended = {"fact": "ended", **who, "outcome": "done" if succeeds else "failed", "error": error}
        self._push(
            self._now_s + takes_s,
            ActivationReport({**ended, "stderr": "", "exit_code": 0, "took_s": takes_s}),
        )

    def next_event(self, patience_s: float) -> WorkerEvent | None:
        until_s = self._now_s + patience_s
        while self._ahead and self._ahead[0][0] <= until_s:
            at_s, _, event = heapq.heappop(self._ahead)
            if self._happens(event):
                self._now_s = max(self._now_s, at_s)
                return event
        if math.isinf(until_s):
            raise AssertionError("nothing will ever happen")
        self._now_s = until_s
        return None

    def forget_attempt(self, activation: str, attempt: int) -> None:
        self._running.pop((activation, attempt), None)

    def give_back(self, vm: str, why: str) -> None:
        del why
        self.vms.discard(vm)
        self.paid.setdefault(vm, self._now_s + self._gone_s)

    def end_run(self, run: str) -> None:
        """Give back everything, as real workers do at the end."""
        self.close()

    def close(self) -> None:
        """End all machines."""
        for vm in list(self.vms):
            self.give_back(vm, "the end")

    def cost_usd(self) -> float:
        """The bill of all machines, once they are gone."""
        return sum(self.prices[vm].cost_usd(seconds) for vm, seconds in self.paid.items())

    def _push(self, at_s: float, event: WorkerEvent) -> None:
        heapq.heappush(self._ahead, (at_s, next(self._number), event))

    def _happens(self, event: WorkerEvent) -> bool:
        if isinstance(event, WorkerLost):
            return event.vm in self.vms
        fact: Mapping[str, Any] = event.fact
        return self._running.get((fact["activation"], fact["attempt"])) in self.vms


class SimulatedCostMeter:
    """The cost meter of simulated workers: prices from order to give-back."""

    earlier_usd = 0.0

    def __init__(self, workers: SimulatedVmWorkers, give_back_s: float) -> None:
        self._workers, self.give_back_s = workers, give_back_s

    def holds(self, now_s: float) -> tuple[RentalPeriod, ...]:
        del now_s
        paid: Iterable[tuple[str, Price]] = self._workers.prices.items()
        return tuple(RentalPeriod(vm, price, 0.0, self._workers.paid.get(vm)) for vm, price in paid)

    def vm_used(self, vm: str, now_s: float) -> None:
        """Nothing to do: it is paid from its order."""

    def vm_returned(self, vm: str, now_s: float) -> None:
        """The workers count it."""


def execute_simulated(
    plan: Plan, workflow: Workflow, workers: SimulatedVmWorkers, guard: LimitGuard, retries: int = 1
) -> list[Fact]:
    """Follow a plan with simulated workers, as `execute` does with real ones; answers with the facts."""
    sink = FactSink(None, None)
    remaining_work = RemainingWork(dict.fromkeys(workflow.order, "not run yet"), [], {}, 0.0)
    options = ExecutionOptions(Path(), retries)
    PlanFollower(plan, workflow, options, Path(), sink, workers, remaining_work, guard).run()
    workers.close()
    return sink.facts
