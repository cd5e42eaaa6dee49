"""When what waits is planned anew: a machine is lost, times surprise, or money or time runs short."""

from __future__ import annotations

import time
from collections.abc import Mapping

from prudent.core.errors import RunFailed
from prudent.workflows.execute.agenda import Manner
from prudent.workflows.execute.crew import Crew
from prudent.workflows.execute.dispatch import Dispatcher, Lane
from prudent.workflows.execute.estimates import learned
from prudent.workflows.execute.keeper import Keeper
from prudent.workflows.execute.record import world_of
from prudent.workflows.execute.replan import Queues, replan
from prudent.workflows.execute.run_log import RunLog
from prudent.workflows.fleet import Fleet
from prudent.workflows.plan import Plan
from prudent.workflows.problem import bring_together
from prudent.workflows.workflow import Workflow

_SURPRISE = 0.25
"""An activation that takes so much more or less than planned makes an adaptive plan look again."""
_PAUSE_S = 0.5
"""Looking again takes time too: not more often than this."""


class Replanner:
    """Gives the dispatcher of a session other queues; `known` has the estimates as measured so far."""

    def __init__(
        self,
        plan: Plan,
        workflow: Workflow,
        manner: Manner,
        crew: Crew,
        keeper: Keeper,
        dispatcher: Dispatcher,
        log: RunLog,
    ) -> None:
        self.known = workflow
        self._plan, self._workflow, self._manner = plan, workflow, manner
        self._crew, self._keeper, self._dispatcher, self._log = crew, keeper, dispatcher, log
        self._world = world_of(plan)
        self._look_again_s = 0.0

    @property
    def rests_s(self) -> float:
        """For how long it does not look again; zero or less if it would."""
        return self._look_again_s - self._crew.time_s()

    @property
    def moves(self) -> bool:
        """Whether what waits may go to other machines than planned, just because that is faster."""
        return self._plan.policy != "static" and self._manner.replay is None

    def planned_s(self, name: str, vm: str) -> float:
        """How long an activation holds a slot of a VM by the plan's estimates."""
        return self._held_s(self._workflow, name, vm)

    def expected_s(self, name: str, vm: str) -> float:
        """The same, with what was measured so far."""
        return self._held_s(self.known, name, vm)

    def adapt(self, name: str, vm: str, took_s: float) -> None:
        """After an end: see whether the limits are kept, or whether the rest is better done otherwise."""
        if not self._dispatcher.waiting or self.rests_s > 0 or self._keep_limits():
            return
        planned_s = self.planned_s(name, vm)
        surprise_s = abs(took_s - planned_s)
        small = surprise_s < _SURPRISE * planned_s or surprise_s < 0.01 * self._plan.makespan_s
        if self.moves and not small:
            self.look("surprise")

    def look(self, why: str) -> None:
        """Plan what waits anew if that is faster, and do not look again too soon."""
        begun_s = time.monotonic()
        queues = self._replanned(self._dispatcher.queues)
        self._rest_after(begun_s)
        self._place(queues, why)

    def leave(self, why: str) -> None:
        """Plan what waits anew on the VMs that are left, because others were given back."""
        self._place(self._replanned(None), why)

    def make_up(self, orphaned: list[str]) -> None:
        """Plan what waits anew, because some of it was to run on a VM that is lost."""
        queues = self._replanned(None)
        self._dispatcher.place(queues)
        lanes = {name: lane for lane, names in queues.items() for name in names}
        self._note("lost", {name: lanes[name][0] for name in orphaned})

    def _keep_limits(self) -> bool:
        """Plan what waits anew if it would cost or take more than it may; whether that was done."""
        if not self._keeper.limits:
            return False
        begun_s = time.monotonic()
        known, fleet, running = self._knowledge()
        queues, now_s = self._dispatcher.queues, self._log.clock_s()
        changed = self._keeper.change(known, fleet, self._world, queues, running, now_s)
        self._rest_after(begun_s)
        if changed is not None:
            self._place(*changed)
        return changed is not None

    def _rest_after(self, begun_s: float) -> None:
        self._look_again_s = self._crew.time_s() + max(_PAUSE_S, 10 * (time.monotonic() - begun_s))

    def _place(self, queues: Queues, why: str) -> None:
        """Follow new queues from now on, and note what has moved."""
        before = {each: lane for lane, queue in self._dispatcher.queues.items() for each in queue}
        self._dispatcher.place(queues)
        after = {each: lane for lane, queue in queues.items() for each in queue}
        moved = {each: lane[0] for each, lane in after.items() if lane != before[each]}
        if moved:
            self._note(why, moved)

    def _note(self, why: str, moved: Mapping[str, str]) -> None:
        self._log.note({"fact": "replanned", "at_s": self._log.clock_s(), "why": why, "moved": dict(moved)})

    def _replanned(self, current: Queues | None) -> Queues:
        """Queues for what waits on the VMs that are left; `current` ones stay unless others are better."""
        known, fleet, running = self._knowledge()
        return replan(known, fleet, self._world, set(self._dispatcher.waiting), running, current)

    def _knowledge(self) -> tuple[Workflow, Fleet, dict[str, tuple[Lane, float]]]:
        """What is known now: estimates as measured so far, the VMs that are left, what runs for how long."""
        left = tuple(each for each in self._plan.fleet.vms if each.name in self._crew.vms)
        if not left:
            raise RunFailed(
                "The last VM was lost; what is done is kept. Start workers and go on with --resume."
            )
        now_s, begun_s = self._log.clock_s(), self._log.begun_s
        running = {name: (lane, now_s - begun_s[name]) for name, lane in self._dispatcher.running.items()}
        if self._manner.replay is None:
            heard = [(self._plan.fleet, self._log.heard)]
            self.known = learned(self._workflow, self._plan.fleet, self._world, heard)
        return self.known, Fleet(left), running

    def _held_s(self, workflow: Workflow, name: str, vm: str) -> float:
        problem = bring_together(workflow, self._plan.fleet, self._world)
        at, kind = workflow.index[name], problem.vms[self._plan.fleet.index[vm]]["kind"]
        held = problem.tasks[at]["hold_s"] + problem.tasks[at]["stage_s"]
        return float(held + problem.run_s[at, kind])
