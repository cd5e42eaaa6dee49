"""One sitting of a run: commands are started as the plan has them, and what happens is noted."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from prudent.core.errors import RunFailed
from prudent.workflows.execute.agenda import Agenda, Manner, Notes
from prudent.workflows.execute.command import Order
from prudent.workflows.execute.crew import Crew, Gone, Told
from prudent.workflows.execute.dispatch import Dispatcher, Lane, Start
from prudent.workflows.execute.estimates import learned
from prudent.workflows.execute.journal import Fact
from prudent.workflows.execute.record import LOGS, planned_queues, world_of
from prudent.workflows.execute.replan import replan
from prudent.workflows.execute.resume import command_digest
from prudent.workflows.fleet import Fleet
from prudent.workflows.plan import Plan
from prudent.workflows.problem import bring_together
from prudent.workflows.workflow import Workflow

_TICK_S = 0.25
_SURPRISE = 0.25
"""An activation that takes so much more or less than planned makes an adaptive plan look again."""
_PAUSE_S = 0.5
"""Looking again takes time too: not more often than this."""


class Session:
    """One sitting of a run: from the first start to the last end, an interruption, or a failure."""

    def __init__(
        self,
        plan: Plan,
        workflow: Workflow,
        manner: Manner,
        folder: Path,
        journal: Notes,
        crew: Crew,
        agenda: Agenda,
    ) -> None:
        self.plan, self.workflow, self.manner = plan, workflow, manner
        self.folder, self.journal, self.crew = folder.resolve(), journal, crew
        self.earlier = agenda.earlier
        self.name = uuid.uuid4().hex[:12]
        self.world = world_of(plan)
        self.facts: list[Fact] = []
        self.orders: dict[str, Order] = {}
        self.begun_s: dict[str, float] = {}
        # A pause between two sessions is not part of the run: its clock goes on where it stopped.
        self._offset_s = agenda.offset_s
        self._zero_s = time.monotonic()
        self._look_again_s = 0.0
        self.dispatcher = self._dispatcher(agenda)

    def run(self) -> None:
        """Until nothing runs and nothing can start; everything that runs is ended before an error leaves."""
        self.crew.begin(self.name)
        self._zero_s = time.monotonic()
        try:
            self._start()
            while not self.dispatcher.over:
                event = self.crew.next_event(_TICK_S)
                if isinstance(event, Told):
                    self._told(event.fact)
                elif isinstance(event, Gone):
                    self._gone(event.vm)
                self._start()
        except BaseException:
            self.crew.end(self.name)
            raise
        self._note({"fact": "over", "at_s": self.clock_s()})

    def clock_s(self) -> float:
        """Seconds of this run, in those of the plan: a rehearsal's clock runs faster."""
        return self._offset_s + (time.monotonic() - self._zero_s) / (self.manner.replay or 1.0)

    def _dispatcher(self, agenda: Agenda) -> Dispatcher:
        queues = planned_queues(self.plan, self.workflow, agenda.reasons)
        done = [name for name in self.workflow.order if name not in agenda.reasons]
        return Dispatcher(self.workflow, queues, done, self.manner.retries, agenda.attempts)

    def _start(self) -> None:
        for start in self.dispatcher.starts():
            order = self._order(start)
            self.orders[start.activation] = order
            self.begun_s[start.activation] = self.clock_s()
            self.crew.start(order)

    def _order(self, start: Start) -> Order:
        activation = self.workflow[start.activation]
        (vm, slot), replay = start.lane, self.manner.replay
        order = Order(
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
        return order if replay is None else replace(order, sleep_s=replay * self._planned_s(start))

    def _planned_s(self, start: Start) -> float:
        """How long an activation holds this slot by the plan's estimates."""
        problem = bring_together(self.workflow, self.plan.fleet, self.world)
        at, vm = self.workflow.index[start.activation], self.plan.fleet.index[start.lane[0]]
        held = problem.tasks[at]["hold_s"] + problem.tasks[at]["stage_s"]
        return float(held + problem.run_s[at, problem.vms[vm]["kind"]])

    def _told(self, fact: Fact) -> None:
        name, order = fact["activation"], self.orders.get(fact["activation"])
        if order is None or order.attempt != fact["attempt"]:
            return  # an attempt that was given up meanwhile
        if fact["fact"] == "started":
            self.begun_s[name] = self.clock_s()
            self._note({**fact, "at_s": self.begun_s[name]})
            return
        self._note(self._ending(fact, order))
        self.crew.forget(name, order.attempt)
        del self.orders[name]
        if fact["outcome"] == "done":
            self._adapt(name, order.vm, float(fact["took_s"]))

    def _ending(self, fact: Fact, order: Order) -> Fact:
        """The fact about an end, with times by our own clock: other machines' clocks may be wrong."""
        finish_s = self.clock_s()
        took_s = float(fact["took_s"]) / (self.manner.replay or 1.0)
        ending = {**fact, "took_s": took_s, "start_s": max(finish_s - took_s, self._offset_s)}
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
        if vm in self.dispatcher.dead:
            return
        at_s = self.clock_s()
        self.crew.dismiss(vm)
        self._note({"fact": "lost", "vm": vm, "at_s": at_s})
        for name in self.dispatcher.lose(vm):
            order = self.orders.pop(name)
            self.crew.forget(name, order.attempt)
            final = name in self.dispatcher.given_up
            why = "its VM was lost again and again" if final else f"VM {vm} was lost"
            start_s = min(self.begun_s[name], at_s)
            self._note(
                {
                    "fact": "ended",
                    "activation": name,
                    "vm": vm,
                    "slot": order.slot,
                    "attempt": order.attempt,
                    "outcome": "lost",
                    "error": why,
                    "took_s": at_s - start_s,
                    "start_s": start_s,
                    "finish_s": at_s,
                    "final": final,
                }
            )
        orphaned = self.dispatcher.orphaned
        if orphaned:
            self._replan(orphaned)

    def _replan(self, orphaned: list[str]) -> None:
        """Plan all that waits anew, because some of it has no VM any more."""
        queues = self._new_queues(keep=False)
        lanes = {name: lane for lane, names in queues.items() for name in names}
        moved = {name: lanes[name][0] for name in orphaned}
        self._note({"fact": "replanned", "at_s": self.clock_s(), "why": "lost", "moved": moved})

    def _adapt(self, name: str, vm: str, took_s: float) -> None:
        """Plan all that waits anew if something took another time than planned, and if that is better."""
        planned_s = self._planned_s(Start(name, (vm, 0), 1))
        surprise_s = abs(took_s - planned_s)
        small = surprise_s < _SURPRISE * planned_s or surprise_s < 0.01 * self.plan.makespan_s
        early = time.monotonic() < self._look_again_s
        if self.plan.policy == "static" or self.manner.replay is not None or small or early:
            return
        if not self.dispatcher.waiting:
            return
        before = {each: lane for lane, queue in self.dispatcher.queues.items() for each in queue}
        begun_s = time.monotonic()
        after = {each: lane for lane, queue in self._new_queues(keep=True).items() for each in queue}
        self._look_again_s = time.monotonic() + max(_PAUSE_S, 10 * (time.monotonic() - begun_s))
        moved = {each: lane[0] for each, lane in after.items() if lane != before[each]}
        if moved:
            self._note({"fact": "replanned", "at_s": self.clock_s(), "why": "surprise", "moved": moved})

    def _new_queues(self, keep: bool) -> dict[Lane, list[str]]:
        """Place what waits on the VMs that are left, with what was measured so far."""
        left = tuple(each for each in self.plan.fleet.vms if each.name in self.crew.vms)
        if not left:
            raise RunFailed(
                f"The last VM was lost; what is done is kept. Start workers and go on with --resume in "
                f'"{self.folder}".'
            )
        now_s = self.clock_s()
        running: dict[str, tuple[Lane, float]] = {
            name: (lane, now_s - self.begun_s[name]) for name, lane in self.dispatcher.running.items()
        }
        known = self.workflow
        if self.manner.replay is None:
            known = learned(self.workflow, self.plan.fleet, self.world, [(self.plan.fleet, self._heard())])
        current = self.dispatcher.queues if keep else None
        queues = replan(known, Fleet(left), self.world, set(self.dispatcher.waiting), running, current)
        self.dispatcher.place(queues)
        return queues

    def _heard(self) -> list[Fact]:
        return [*self.earlier, *self.facts]

    def _note(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.journal.write(fact)
