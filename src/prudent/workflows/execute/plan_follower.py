"""Following a plan with workers: commands are started in the planned order, and every event is recorded."""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import quote

from prudent.workflows.execute.command import ActivationRequest
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
"""Seconds between heartbeats, or this share of the session if that is more: a kill leaves no more unpaid."""


class SessionLog:
    """A session's clock and facts; `begun_s` tells when activations began.

    The clock stands still between two sessions. It runs while machines boot: that time is paid.
    """

    def __init__(
        self, workers: VmWorkers, options: ExecutionOptions, remaining_work: RemainingWork, sink: FactSink
    ) -> None:
        self.offset_s = remaining_work.offset_s
        self.begun_s: dict[str, float] = {}
        self._workers, self._scale = workers, options.replay or 1.0
        self._earlier, self._sink = remaining_work.earlier, sink
        self._facts: list[Fact] = []
        self._zero_s = workers.time_s() if workers.ordered_s is None else workers.ordered_s
        self._heartbeat_due_s = self._zero_s

    def begin(self) -> None:
        """Start the clock now, unless it has run since machines were ordered."""
        if self._workers.ordered_s is None:
            self._zero_s = self._workers.time_s()

    def clock_s(self) -> float:
        """Seconds of the run, as the plan counts them: a rehearsal's clock runs faster."""
        return self.offset_s + (self._workers.time_s() - self._zero_s) / self._scale

    def record(self, fact: Fact) -> None:
        """Write a fact to the journal."""
        self._facts.append(fact)
        self._sink.write(fact)

    def heartbeat(self) -> None:
        """Write a heartbeat if one is due."""
        if (now_s := self._workers.time_s()) >= self._heartbeat_due_s:
            self._heartbeat_due_s = now_s + max(HEARTBEAT_S, HEARTBEAT_SHARE * (now_s - self._zero_s))
            self._sink.heartbeat(self.clock_s())

    @property
    def facts(self) -> list[Fact]:
        """All facts of the run, those of earlier sessions first."""
        return [*self._earlier, *self._facts]


_MARGIN = 1.1
"""Under a limit, an activation is started only if it would end in time when it takes this factor longer."""


_JUST_AFTER_S = 1e-3


class PlanFollower:
    """Follows a plan in one session of a run: until the last end, an interruption, or a limit."""

    def __init__(
        self,
        plan: Plan,
        workflow: Workflow,
        options: ExecutionOptions,
        folder: Path,
        sink: FactSink,
        workers: VmWorkers,
        remaining_work: RemainingWork,
        guard: LimitGuard,
    ) -> None:
        self.plan, self.workflow, self.options = plan, workflow, options
        self.folder, self.workers, self.guard = folder.resolve(), workers, guard
        self.name = uuid.uuid4().hex[:12]
        self.returned: set[str] = set()
        self.requests: dict[str, ActivationRequest] = {}
        self.log = SessionLog(workers, options, remaining_work, sink)
        self.dispatcher = self._dispatcher(remaining_work)
        self.replanner = Replanner(plan, workflow, options, workers, guard, self.dispatcher, self.log)
        self._stopped = False

    def run(self) -> None:
        """Run until nothing runs and nothing can start, or money or time is over.

        All commands are ended before an error is raised.
        """
        self.workers.listen(self.name)
        self.log.begin()
        self._record_rented()
        try:
            self._step()
            while not self.dispatcher.over and not self._stopped:
                self.log.heartbeat()
                event = self.workers.next_event(self._patience_s())
                if isinstance(event, ActivationReport):
                    self._on_report(event.fact)
                elif isinstance(event, WorkerLost):
                    self._on_worker_lost(event.vm)
                self._step()
        except BaseException:
            self.workers.end_run(self.name)
            self._record_lost(INTERRUPTED)
            raise
        self.log.record({"fact": "over", "at_s": self.log.clock_s()})

    def _dispatcher(self, remaining_work: RemainingWork) -> Dispatcher:
        queues = planned_queues(self.plan, self.workflow, remaining_work.reasons)
        done = [name for name in self.workflow.order if name not in remaining_work.reasons]
        return Dispatcher(self.workflow, queues, done, self.options.retries, remaining_work.attempts)

    def _step(self) -> None:
        """Start what may start, give back VMs that are not needed any more, stop at a limit."""
        left_s, limit = self.guard.time_left(self.log.clock_s(), 0.0)
        if left_s < 0:
            self._stop(limit)
            return
        self._start()
        blocked = self._blocked_vms()
        if not blocked:
            self._give_back()
            return
        limit = self.guard.time_left(self.log.clock_s())[1]
        if blocked == self.workers.vms:
            self._stop(limit)
        else:
            for vm in sorted(blocked):
                self._give_back_vm(vm, f"the {limit} leaves no room for what it had")
            self.replanner.replan_after_give_back(limit)
            self._step()

    def _patience_s(self) -> float:
        """How long to wait for an event: no longer than until a limit is reached."""
        scale = self.options.replay or 1.0
        left_s = self.guard.time_left(self.log.clock_s(), self.workers.poll_s / scale)[0] * scale
        look_s = self.replanner.pause_left_s
        patience_s = min(self.workers.poll_s, max(left_s, 0.0) + _JUST_AFTER_S)
        return min(patience_s, look_s + _JUST_AFTER_S) if look_s > 0 else patience_s

    def _start(self) -> None:
        for start in self.dispatcher.starts(self._may_start):
            request = self._request(start)
            self.requests[start.activation] = request
            self.workers.start(request)

    def _may_start(self, name: str, lane: Lane) -> bool:
        """Whether an activation can be paid and will end in time; if so it counts as begun."""
        now_s = self.log.clock_s()
        if self.guard.limits:
            ends_s = {vm: end_s for vm, end_s in self._ends_s(now_s).items() if vm != lane[0]}
            ends_s[lane[0]] = now_s + _MARGIN * self.replanner.expected_s(name, lane[0])
            if not self.guard.affords(ends_s, now_s):
                return False
        self.log.begun_s[name] = now_s
        self.guard.meter.vm_used(lane[0], now_s)
        return True

    def _ends_s(self, now_s: float) -> dict[str, float]:
        """When running activations are expected to end, by VM."""
        ends_s: dict[str, float] = {}
        for name, lane in self.dispatcher.running.items():
            end_s = max(self.log.begun_s[name] + self.replanner.expected_s(name, lane[0]), now_s)
            ends_s[lane[0]] = max(ends_s.get(lane[0], now_s), end_s)
        return ends_s

    def _blocked_vms(self) -> set[str]:
        """Idle VMs whose next activation is ready, but may not start because of a limit."""
        if not self.guard.limits:
            return set()
        busy = {lane[0] for lane in self.dispatcher.running.values()}
        return {vm for vm in self.dispatcher.ready_vms if vm not in busy}

    def _record_rented(self) -> None:
        zero_s = time.time() - self.log.clock_s()
        for vm, lease in self.workers.leases().items():
            for one in lease.machines:
                fact = {"fact": "rented", "vm": vm, "at_s": one.launched_s - zero_s, "cluster": lease.cluster}
                self.log.record(fact | {"machine": lease.order.type, "usd_per_h": one.price.usd_per_h})

    def _give_back(self) -> None:
        """Give back VMs that are not needed any more."""
        if not (self.workers.are_rented or self.guard.limits):
            return
        idle = [vm for vm in sorted(self.workers.vms) if not self.dispatcher.needs(vm)]
        if not idle or self.dispatcher.over:
            return
        if self.dispatcher.waiting and self.replanner.may_move:
            if self.replanner.pause_left_s > 0:
                return  # soon it is seen whether they can take over some of what waits
            self.replanner.reconsider("surprise")
            idle = [vm for vm in idle if not self.dispatcher.needs(vm)]
        for vm in idle:
            self._give_back_vm(vm, "its part is done")

    def _give_back_vm(self, vm: str, why: str) -> None:
        now_s = self.log.clock_s()
        self.returned.add(vm)
        self.workers.give_back(vm, why)
        self.guard.meter.vm_returned(vm, now_s)
        self.log.record({"fact": "returned", "vm": vm, "at_s": now_s, "why": why})

    def _stop(self, why: LimitKind) -> None:
        """End running commands and start none: results are kept, and the run can be resumed."""
        self._stopped = True
        self.workers.end_run(self.name)
        remaining = [*self.dispatcher.running, *self.dispatcher.waiting]
        self._record_lost(STOPPED)
        for vm in sorted(self.workers.vms):
            self._give_back_vm(vm, f"the {why} leaves no room for more")
        queues = planned_queues(self.plan, self.workflow, remaining)
        self.log.record(
            self.guard.stop_fact(why, self.replanner.known, queues, self.log.facts, self.log.clock_s())
        )

    def _record_lost(self, why: str) -> None:
        """Record running attempts as lost; they were paid until now."""
        for name in self.dispatcher.running:
            if name in self.requests:
                self.log.record(self._lost(self.requests[name], self.log.clock_s(), why))

    def _request(self, start: ActivationStart) -> ActivationRequest:
        activation = self.workflow[start.activation]
        (vm, slot), replay = start.lane, self.options.replay
        request = ActivationRequest(
            run=self.name,
            activation=activation.id,
            attempt=start.attempt,
            vm=vm,
            slot=slot,
            directory=str(self.options.directory),
            log=str(self.folder / LOGS / f"{quote(activation.id, safe='')}.{start.attempt}"),
            command=activation.command,
            inputs=tuple(dict.fromkeys(file.name for file in activation.inputs)),
            outputs=tuple(dict.fromkeys(file.name for file in activation.outputs)),
            kept=tuple(self.workflow.gathered & {file.name for file in activation.outputs}),
            timeout_s=self.options.timeout_s,
        )
        return (
            request
            if replay is None
            else replace(request, sleep_s=replay * self.replanner.planned_s(start.activation, vm))
        )

    def _on_report(self, fact: Fact) -> None:
        name, request = fact["activation"], self.requests.get(fact["activation"])
        if request is None or request.attempt != fact["attempt"]:
            return  # an attempt that was given up meanwhile
        if fact["fact"] == "started":
            self.log.begun_s[name] = self.log.clock_s()
            self.log.record({**fact, "at_s": self.log.begun_s[name]})
            return
        self.log.record(self._ending(fact, request))
        self.workers.forget_attempt(name, request.attempt)
        del self.requests[name]
        if fact["outcome"] == "done":
            self.replanner.adapt(name, request.vm, float(fact["took_s"]) / (self.options.replay or 1.0))

    def _ending(self, fact: Fact, request: ActivationRequest) -> Fact:
        """The fact about an end, with times by our own clock: clocks of other machines may be wrong."""
        finish_s = self.log.clock_s()
        took_s = float(fact["took_s"]) / (self.options.replay or 1.0)
        ending = {**fact, "took_s": took_s, "start_s": max(finish_s - took_s, self.log.offset_s)}
        ending |= {"finish_s": finish_s, "command": command_digest(request.command)}
        ending |= {"log": f"{request.log}.err"} if self.options.replay is None else {}
        if fact["outcome"] == "done":
            self.dispatcher.finish(request.activation)
            return ending
        again = self.dispatcher.fail(request.activation)
        if not again and self.options.stop_at_failure:
            self.dispatcher.stop()
        return ending | {"final": not again}

    def _on_worker_lost(self, vm: str) -> None:
        """A VM is lost: record the attempts lost with it, and plan the rest anew."""
        if vm in self.dispatcher.lost_vms or vm in self.returned:
            return
        at_s = self.log.clock_s()
        self.workers.give_back(vm, "it was lost")
        self.guard.meter.vm_returned(vm, at_s)
        self.log.record({"fact": "lost", "vm": vm, "at_s": at_s})
        for name in self.dispatcher.lose_vm(vm):
            request = self.requests.pop(name)
            self.workers.forget_attempt(name, request.attempt)
            final = name in self.dispatcher.given_up
            why = "its VM was lost again and again" if final else f"VM {vm} was lost"
            self.log.record(self._lost(request, at_s, why) | {"final": final})
        orphaned = self.dispatcher.orphaned
        if orphaned:
            self.replanner.replan_lost(orphaned)

    def _lost(self, request: ActivationRequest, at_s: float, why: str) -> Fact:
        start_s = min(self.log.begun_s[request.activation], at_s)
        return lost_attempt(asdict(request), start_s, at_s, why)
