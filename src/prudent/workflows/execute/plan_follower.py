"""The clock of a run, and what has happened in it so far.

One sitting of a run: commands are started as the plan has them, and what happens is noted.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import quote

from prudent.workflows.execute.command import ActivationCommand
from prudent.workflows.execute.dispatch import ActivationStart, Dispatcher, Lane
from prudent.workflows.execute.journal import Fact, FactSink
from prudent.workflows.execute.limit_guard import LimitGuard
from prudent.workflows.execute.options import ExecutionOptions, LimitKind
from prudent.workflows.execute.replanner import Replanner
from prudent.workflows.execute.resume import INTERRUPTED, STOPPED, RemainingWork, command_digest, lost_attempt
from prudent.workflows.execute.run import LOGS, planned_queues
from prudent.workflows.execute.workers import ActivationReport, VmWorkers, WorkerLost
from prudent.workflows.plan import Plan
from prudent.workflows.workflow import Workflow

HEARTBEAT_S, HEARTBEAT_SHARE = 1.0, 0.01
"""How often signs of life are given: what a kill leaves unpaid is no more than this, or this share of the
session."""


class SessionLog:
    """A session's clock and facts; `begun_s` tells when activations began.

    A pause between two sessions is not part of the run: its clock goes on where it stopped. The boot of its
    machines is: it is waited for, and paid.
    """

    def __init__(
        self, crew: VmWorkers, manner: ExecutionOptions, agenda: RemainingWork, notes: FactSink
    ) -> None:
        self.offset_s = agenda.offset_s
        self.begun_s: dict[str, float] = {}
        self._crew, self._scale = crew, manner.replay or 1.0
        self._earlier, self._notes = agenda.earlier, notes
        self._facts: list[Fact] = []
        self._zero_s = crew.time_s() if crew.ordered_s is None else crew.ordered_s
        self._sign_due_s = self._zero_s

    def begin(self) -> None:
        """Workers that nobody had to wait for begin now."""
        if self._crew.ordered_s is None:
            self._zero_s = self._crew.time_s()

    def clock_s(self) -> float:
        """Seconds of this run, in those of the plan: a rehearsal's clock runs faster."""
        return self.offset_s + (self._crew.time_s() - self._zero_s) / self._scale

    def note(self, fact: Fact) -> None:
        """Write a fact down."""
        self._facts.append(fact)
        self._notes.write(fact)

    def sign(self) -> None:
        """Note now and then that the session lives."""
        if (now_s := self._crew.time_s()) >= self._sign_due_s:
            self._sign_due_s = now_s + max(HEARTBEAT_S, HEARTBEAT_SHARE * (now_s - self._zero_s))
            self._notes.sign(self.clock_s())

    @property
    def heard(self) -> list[Fact]:
        """All facts of the run, those of earlier sessions first."""
        return [*self._earlier, *self._facts]


_SURE = 1.1
"""What is begun under a limit should end in time even if it takes so much longer than expected."""


_AFTER_S = 1e-3


class PlanFollower:
    """One sitting of a run: from the first start to the last end, an interruption, or a failure."""

    def __init__(
        self,
        plan: Plan,
        workflow: Workflow,
        manner: ExecutionOptions,
        folder: Path,
        journal: FactSink,
        crew: VmWorkers,
        agenda: RemainingWork,
        keeper: LimitGuard,
    ) -> None:
        self.plan, self.workflow, self.manner = plan, workflow, manner
        self.folder, self.crew, self.keeper = folder.resolve(), crew, keeper
        self.name = uuid.uuid4().hex[:12]
        self.returned: set[str] = set()
        self.orders: dict[str, ActivationCommand] = {}
        self.log = SessionLog(crew, manner, agenda, journal)
        self.dispatcher = self._dispatcher(agenda)
        self.replanner = Replanner(plan, workflow, manner, crew, keeper, self.dispatcher, self.log)
        self._stopped = False

    def run(self) -> None:
        """Until nothing runs and nothing can start, or money or time is over.

        Everything that runs is ended before an error leaves.
        """
        self.crew.begin(self.name)
        self.log.begin()
        self._note_rented()
        try:
            self._step()
            while not self.dispatcher.over and not self._stopped:
                self.log.sign()
                event = self.crew.next_event(self._patience_s())
                if isinstance(event, ActivationReport):
                    self._told(event.fact)
                elif isinstance(event, WorkerLost):
                    self._gone(event.vm)
                self._step()
        except BaseException:
            self.crew.end(self.name)
            self._note_lost(INTERRUPTED)
            raise
        self.log.note({"fact": "over", "at_s": self.log.clock_s()})

    def _dispatcher(self, agenda: RemainingWork) -> Dispatcher:
        queues = planned_queues(self.plan, self.workflow, agenda.reasons)
        done = [name for name in self.workflow.order if name not in agenda.reasons]
        return Dispatcher(self.workflow, queues, done, self.manner.retries, agenda.attempts)

    def _step(self) -> None:
        """Start what may start, give back what has no part any more, stop where a limit leaves no choice."""
        left_s, limit = self.keeper.left(self.log.clock_s(), 0.0)
        if left_s < 0:
            self._stop(limit)
            return
        self._start()
        held_up = self._held_up()
        if not held_up:
            self._give_back()
            return
        limit = self.keeper.left(self.log.clock_s())[1]
        if held_up == self.crew.vms:
            self._stop(limit)
        else:
            for vm in sorted(held_up):
                self._return(vm, f"the {limit} leaves no room for what it had")
            self.replanner.leave(limit)
            self._step()

    def _patience_s(self) -> float:
        """How long to wait for an event: not beyond the moment at which a limit is reached."""
        scale = self.manner.replay or 1.0
        left_s = self.keeper.left(self.log.clock_s(), self.crew.tick_s / scale)[0] * scale
        look_s = self.replanner.rests_s
        patience_s = min(self.crew.tick_s, max(left_s, 0.0) + _AFTER_S)
        return min(patience_s, look_s + _AFTER_S) if look_s > 0 else patience_s

    def _start(self) -> None:
        for start in self.dispatcher.starts(self._may_start):
            order = self._order(start)
            self.orders[start.activation] = order
            self.crew.start(order)

    def _may_start(self, name: str, lane: Lane) -> bool:
        """Whether an activation can be paid, and ended, in time; if so it counts as begun."""
        now_s = self.log.clock_s()
        if self.keeper.limits:
            ends_s = {vm: end_s for vm, end_s in self._ends_s(now_s).items() if vm != lane[0]}
            ends_s[lane[0]] = now_s + _SURE * self.replanner.expected_s(name, lane[0])
            if not self.keeper.affords(ends_s, now_s):
                return False
        self.log.begun_s[name] = now_s
        self.keeper.meter.used(lane[0], now_s)
        return True

    def _ends_s(self, now_s: float) -> dict[str, float]:
        """When what runs is expected to end, by VM."""
        ends_s: dict[str, float] = {}
        for name, lane in self.dispatcher.running.items():
            end_s = max(self.log.begun_s[name] + self.replanner.expected_s(name, lane[0]), now_s)
            ends_s[lane[0]] = max(ends_s.get(lane[0], now_s), end_s)
        return ends_s

    def _held_up(self) -> set[str]:
        """VMs on which nothing runs, and on which what is next could begin if money and time allowed."""
        if not self.keeper.limits:
            return set()
        busy = {lane[0] for lane in self.dispatcher.running.values()}
        return {vm for vm in self.dispatcher.ready_vms if vm not in busy}

    def _note_rented(self) -> None:
        zero_s = time.time() - self.log.clock_s()
        for vm, lease in self.crew.leases().items():
            for one in lease.machines:
                fact = {"fact": "rented", "vm": vm, "at_s": one.launched_s - zero_s, "cluster": lease.cluster}
                self.log.note(fact | {"machine": lease.order.type, "usd_per_h": one.price.usd_per_h})

    def _give_back(self) -> None:
        """VMs without a part any more are paid for no longer."""
        if not (self.crew.rents or self.keeper.limits):
            return
        idle = [vm for vm in sorted(self.crew.vms) if not self.dispatcher.needs(vm)]
        if not idle or self.dispatcher.over:
            return
        if self.dispatcher.waiting and self.replanner.moves:
            if self.replanner.rests_s > 0:
                return  # soon it is seen whether they can take over some of what waits
            self.replanner.look("surprise")
            idle = [vm for vm in idle if not self.dispatcher.needs(vm)]
        for vm in idle:
            self._return(vm, "its part is done")

    def _return(self, vm: str, why: str) -> None:
        now_s = self.log.clock_s()
        self.returned.add(vm)
        self.crew.give_back(vm, why)
        self.keeper.meter.returned(vm, now_s)
        self.log.note({"fact": "returned", "vm": vm, "at_s": now_s, "why": why})

    def _stop(self, why: LimitKind) -> None:
        """End what runs and begin nothing more: what is done is kept, and the rest goes on some other day."""
        self._stopped = True
        self.crew.end(self.name)
        remaining = [*self.dispatcher.running, *self.dispatcher.waiting]
        self._note_lost(STOPPED)
        for vm in sorted(self.crew.vms):
            self._return(vm, f"the {why} leaves no room for more")
        queues = planned_queues(self.plan, self.workflow, remaining)
        self.log.note(
            self.keeper.stop_fact(why, self.replanner.known, queues, self.log.heard, self.log.clock_s())
        )

    def _note_lost(self, why: str) -> None:
        """What was under way has ended, and was paid until now."""
        for name in self.dispatcher.running:
            if name in self.orders:
                self.log.note(self._lost(self.orders[name], self.log.clock_s(), why))

    def _order(self, start: ActivationStart) -> ActivationCommand:
        activation = self.workflow[start.activation]
        (vm, slot), replay = start.lane, self.manner.replay
        order = ActivationCommand(
            run=self.name,
            activation=activation.id,
            attempt=start.attempt,
            vm=vm,
            slot=slot,
            directory=str(self.manner.directory),
            log=str(self.folder / LOGS / f"{quote(activation.id, safe='')}.{start.attempt}"),
            command=activation.command,
            inputs=tuple(dict.fromkeys(file.name for file in activation.inputs)),
            outputs=tuple(dict.fromkeys(file.name for file in activation.outputs)),
            kept=tuple(self.workflow.gathered & {file.name for file in activation.outputs}),
            timeout_s=self.manner.timeout_s,
        )
        return (
            order
            if replay is None
            else replace(order, sleep_s=replay * self.replanner.planned_s(start.activation, vm))
        )

    def _told(self, fact: Fact) -> None:
        name, order = fact["activation"], self.orders.get(fact["activation"])
        if order is None or order.attempt != fact["attempt"]:
            return  # an attempt that was given up meanwhile
        if fact["fact"] == "started":
            self.log.begun_s[name] = self.log.clock_s()
            self.log.note({**fact, "at_s": self.log.begun_s[name]})
            return
        self.log.note(self._ending(fact, order))
        self.crew.forget(name, order.attempt)
        del self.orders[name]
        if fact["outcome"] == "done":
            self.replanner.adapt(name, order.vm, float(fact["took_s"]) / (self.manner.replay or 1.0))

    def _ending(self, fact: Fact, order: ActivationCommand) -> Fact:
        """The fact about an end, with times by our own clock: other machines' clocks may be wrong."""
        finish_s = self.log.clock_s()
        took_s = float(fact["took_s"]) / (self.manner.replay or 1.0)
        ending = {**fact, "took_s": took_s, "start_s": max(finish_s - took_s, self.log.offset_s)}
        ending |= {"finish_s": finish_s, "command": command_digest(order.command)}
        ending |= {"log": f"{order.log}.err"} if self.manner.replay is None else {}
        if fact["outcome"] == "done":
            self.dispatcher.finish(order.activation)
            return ending
        again = self.dispatcher.fail(order.activation)
        if not again and self.manner.stop_at_failure:
            self.dispatcher.stop()
        return ending | {"final": not again}

    def _gone(self, vm: str) -> None:
        """A VM is lost: note what it took with it, and plan the rest anew."""
        if vm in self.dispatcher.dead or vm in self.returned:
            return
        at_s = self.log.clock_s()
        self.crew.give_back(vm, "it was lost")
        self.keeper.meter.returned(vm, at_s)
        self.log.note({"fact": "lost", "vm": vm, "at_s": at_s})
        for name in self.dispatcher.lose(vm):
            order = self.orders.pop(name)
            self.crew.forget(name, order.attempt)
            final = name in self.dispatcher.given_up
            why = "its VM was lost again and again" if final else f"VM {vm} was lost"
            self.log.note(self._lost(order, at_s, why) | {"final": final})
        orphaned = self.dispatcher.orphaned
        if orphaned:
            self.replanner.make_up(orphaned)

    def _lost(self, order: ActivationCommand, at_s: float, why: str) -> Fact:
        start_s = min(self.log.begun_s[order.activation], at_s)
        return lost_attempt(asdict(order), start_s, at_s, why)
