"""A crew on a clock of its own: sessions are played in no time, with the machines' true times and prices.

It has the interface of the crews that run commands, so that everything a session decides about money and time
can be tried, and counted by a meter that shares no code with the decisions.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from prudent.cloud.hold import Hold
from prudent.core.money import Price
from prudent.workflows.execute.agenda import Agenda, Manner, Notes
from prudent.workflows.execute.command import Order
from prudent.workflows.execute.crew import Crew, Event, Gone, Told
from prudent.workflows.execute.journal import Fact
from prudent.workflows.execute.keeper import Keeper
from prudent.workflows.execute.session import Session
from prudent.workflows.plan import Plan
from prudent.workflows.workflow import Workflow

Truth = Callable[[str, str, int], tuple[float, bool]]
"""How long an attempt at an activation really takes on a VM, and whether it succeeds."""


class SimulatedCrew(Crew):
    """VMs that were ordered at 0 and are up at `boot_s`; each is paid until `gone_s` after its give-back.

    `lost_s` tells when VMs break. `paid` lists every machine with the seconds it was paid for.
    """

    rents = True
    tick_s = math.inf

    def __init__(
        self,
        prices: Mapping[str, Price],
        truth: Truth,
        boot_s: float = 0.0,
        gone_s: float = 0.0,
        lost_s: Mapping[str, float] | None = None,
    ) -> None:
        self.vms = set(prices)
        self.ordered_s = 0.0
        self.prices, self._truth, self._gone_s = dict(prices), truth, gone_s
        self._now_s = boot_s
        self._number = itertools.count()
        self._ahead: list[tuple[float, int, Event]] = []
        self._running: dict[tuple[str, int], str] = {}
        self.paid: dict[str, float] = {}
        for vm, at_s in (lost_s or {}).items():
            self._push(at_s, Gone(vm))

    def time_s(self) -> float:
        return self._now_s

    def begin(self, run: str) -> None:
        """Nothing to listen to."""

    def start(self, order: Order) -> None:
        takes_s, succeeds = self._truth(order.activation, order.vm, order.attempt)
        who = {"activation": order.activation, "vm": order.vm, "slot": order.slot, "attempt": order.attempt}
        self._running[order.activation, order.attempt] = order.vm
        self._push(self._now_s, Told({"fact": "started", **who}))
        error = "" if succeeds else "it ended with exit code 1"
        ended = {"fact": "ended", **who, "outcome": "done" if succeeds else "failed", "error": error}
        self._push(self._now_s + takes_s, Told({**ended, "stderr": "", "exit_code": 0, "took_s": takes_s}))

    def next_event(self, patience_s: float) -> Event | None:
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

    def forget(self, activation: str, attempt: int) -> None:
        self._running.pop((activation, attempt), None)

    def give_back(self, vm: str, why: str) -> None:
        del why
        self.vms.discard(vm)
        self.paid.setdefault(vm, self._now_s + self._gone_s)

    def end(self, run: str) -> None:
        """Give back everything, as the end of a real crew does."""
        self.close()

    def close(self) -> None:
        """End all machines."""
        for vm in list(self.vms):
            self.give_back(vm, "the end")

    def cost_usd(self) -> float:
        """The bill of all machines, once they are gone."""
        return sum(self.prices[vm].cost_usd(seconds) for vm, seconds in self.paid.items())

    def _push(self, at_s: float, event: Event) -> None:
        heapq.heappush(self._ahead, (at_s, next(self._number), event))

    def _happens(self, event: Event) -> bool:
        if isinstance(event, Gone):
            return event.vm in self.vms
        fact: Mapping[str, Any] = event.fact
        return self._running.get((fact["activation"], fact["attempt"])) in self.vms


class SimulatedMeter:
    """What a session knows about the money of a simulated crew: prices, and that boots are paid."""

    earlier_usd = 0.0

    def __init__(self, crew: SimulatedCrew, give_back_s: float) -> None:
        self._crew, self.give_back_s = crew, give_back_s

    def holds(self, now_s: float) -> tuple[Hold, ...]:
        del now_s
        paid: Iterable[tuple[str, Price]] = self._crew.prices.items()
        return tuple(Hold(vm, price, 0.0, self._crew.paid.get(vm)) for vm, price in paid)

    def used(self, vm: str, now_s: float) -> None:
        """Paid for anyway."""

    def returned(self, vm: str, now_s: float) -> None:
        """The crew knows."""


def follow(
    plan: Plan, workflow: Workflow, crew: SimulatedCrew, keeper: Keeper, retries: int = 1
) -> list[Fact]:
    """Follow a plan with a simulated crew, as `execute` does with a real one; answers with the journal."""
    notes = Notes(None, None)
    agenda = Agenda(dict.fromkeys(workflow.order, "not run yet"), [], {}, 0.0)
    manner = Manner(Path(), retries)
    Session(plan, workflow, manner, Path(), notes, crew, agenda, keeper).run()
    crew.close()
    return notes.facts
