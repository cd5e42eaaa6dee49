"""A run as its folder has it: plan, workflow, journal, logs; with the fields of a simulated execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prudent.core.errors import BadInput, RunFailed
from prudent.core.journal import Fact
from prudent.core.money import ROUNDING_USD
from prudent.workflows.execute.forecast import Forecast
from prudent.workflows.execute.journal import ExecutionJournal
from prudent.workflows.execution import Assignment, Attempt, Execution, Outcome
from prudent.workflows.plan import Plan
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

if TYPE_CHECKING:
    from prudent.workflows.execution import VmUsage

JOURNAL, PLAN, WORKFLOW, LOGS, REPORT = "journal.jsonl", "plan.json", "workflow.json", "logs", "report.html"


_LOGGED = ("start_s", "end_s", "task", "lane", "outcome")


@dataclass(frozen=True)
class ActivationFailure:
    """A failed activation: why, and the end of its standard error."""

    activation: str
    vm: str
    error: str
    stderr: str = ""
    log: str = ""

    def __str__(self) -> str:
        said = f"\n{_indented(self.stderr)}" if self.stderr else ""
        return f'"{self.activation}" failed on VM {self.vm}: {self.error}{said}'


@dataclass(frozen=True)
class WorkflowRun:
    """What happened in a run's folder, over all its sessions.

    `failures` are activations that failed for good in the last session, `blocked` those behind them;
    `skipped` were done in an earlier session; `again` tells why others ran again.
    """

    folder: Path
    workflow: Workflow
    plan: Plan
    facts: tuple[Fact, ...] = field(repr=False)

    @classmethod
    def read(cls, folder: str | Path) -> WorkflowRun:
        """The run that `prudent execute` kept in a folder."""
        folder = Path(folder)
        if not (folder / JOURNAL).is_file():
            raise BadInput(f'There is no run in "{folder}"; name the folder that `prudent execute` made.')
        facts = ExecutionJournal.read(folder / JOURNAL)
        workflow, plan = Workflow.read(folder / WORKFLOW), Plan.load(folder / PLAN)
        return cls(folder, workflow, plan, tuple(facts))

    @property
    def replay(self) -> float | None:
        """The scale of a rehearsal, None for a run of real commands."""
        scale = self.facts[0].get("replay")
        return None if scale is None else float(scale)

    @cached_property
    def ended(self) -> dict[str, Fact]:
        """The last fact about the end of every activation that ended in some way."""
        return {fact["activation"]: fact for fact in self.facts if fact["fact"] == "ended"}

    @cached_property
    def execution(self) -> Execution:
        """The run with the fields of a simulated one."""
        return execution_of(self.workflow, self.plan, self._attempts())

    @property
    def succeeded(self) -> bool:
        """Whether every activation is done."""
        return self.execution.succeeded

    @property
    def makespan_s(self) -> float:
        """Seconds from the start to the last end; pauses between sessions do not count."""
        return self.execution.makespan_s

    @cached_property
    def failures(self) -> tuple[ActivationFailure, ...]:
        """Activations whose last attempt did not succeed."""
        return tuple(
            ActivationFailure(
                name, fact["vm"], fact.get("error", ""), fact.get("stderr", ""), fact.get("log", "")
            )
            for name, fact in self.ended.items()
            if fact["outcome"] != "done" and fact.get("final")
        )

    @cached_property
    def blocked(self) -> tuple[str, ...]:
        """Activations that could not run because of others."""
        doomed = {failure.activation for failure in self.failures}
        return tuple(name for name in self.execution.unfinished if name not in doomed)

    @property
    def cost_usd(self) -> float:
        """What the run has cost: by its leases; where no machine was rented, at the prices of the plan."""
        bill = self._last("bill")
        return float(bill["total_usd"]) if bill else self.execution.cost_usd

    @property
    def forecast(self) -> Forecast | None:
        """The forecast of the whole run when its last session began."""
        said = self._last("session").get("forecast")
        return None if said is None else Forecast.from_dict(said)

    @property
    def budget_usd(self) -> float | None:
        """The most that the run may cost."""
        return self._last("session").get("budget_usd")

    @property
    def deadline_s(self) -> float | None:
        """The latest end of the last session, on the run's clock."""
        return self._last("session").get("deadline_s")

    @property
    def over_usd(self) -> float:
        """By how much the run has passed its budget."""
        return 0.0 if self.budget_usd is None else max(self.cost_usd - self.budget_usd - ROUNDING_USD, 0.0)

    @property
    def stopped(self) -> str | None:
        """The message of the last session if it stopped at a limit, else None."""
        began = max(at for at, fact in enumerate(self.facts) if fact["fact"] in ("run", "session"))
        told = [fact["sentence"] for fact in self.facts[began:] if fact["fact"] == "stopped"]
        return str(told[0]) if told else None

    @property
    def vm_usage(self) -> tuple[VmUsage, ...]:
        """Every rented machine, by its lease; empty if none was rented."""
        from prudent.workflows.execution import VmUsage

        rows = self._last("bill").get("machines", ())
        busy, counts = self._work()
        return tuple(
            VmUsage(
                row["vm"], row["machine"], row["usd_per_h"], row["from_s"], row["until_s"],
                busy.get(row["vm"], 0.0), counts.get(row["vm"], 0), row["cost_usd"],
            )
            for row in rows
        )  # fmt: skip

    @property
    def skipped(self) -> int:
        """How many activations the last session found done."""
        return int(self._last("session").get("skipped", 0))

    @property
    def again(self) -> dict[str, str]:
        """Why activations ran in the last session, where there was an earlier one."""
        return dict(self._last("session").get("again", {}))

    @property
    def lost_vms(self) -> tuple[str, ...]:
        """VMs that were lost during the run."""
        return tuple(fact["vm"] for fact in self.facts if fact["fact"] == "lost")

    def check(self) -> WorkflowRun:
        """Itself, or RunFailed with what the failing commands said."""
        if self.succeeded:
            return self
        if self.stopped is not None:
            raise RunFailed(self.stopped)
        unfinished = len(self.execution.unfinished)
        told = "\n".join(str(failure) for failure in self.failures[:3])
        more = f"\n… and {len(self.failures) - 3} more" if len(self.failures) > 3 else ""
        raise RunFailed(
            f"{unfinished} of {len(self.workflow)} activations are not done"
            f"{':' if told else '.'}{chr(10) if told else ' '}{told}{more}{chr(10) if told else ''}"
            f'What is done is kept in "{self.folder}"; fix the cause and continue with --resume.'
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        execution = self.execution
        return {
            "run": str(self.folder),
            "workflow": self.workflow.name,
            "succeeded": self.succeeded,
            "makespan_s": execution.makespan_s,
            "planned_makespan_s": self.plan.makespan_s,
            "busy_s": execution.busy_s,
            "cost_usd": self.cost_usd,
            "budget_usd": self.budget_usd,
            "over_usd": self.over_usd,
            "deadline_s": self.deadline_s,
            "forecast": None if self.forecast is None else self.forecast.to_dict(),
            "stopped": self.stopped,
            "machines": [asdict(usage) for usage in self.vm_usage],
            "utilisation": execution.utilisation,
            "retries": execution.retries,
            "skipped": self.skipped,
            "again": self.again,
            "lost_vms": list(self.lost_vms),
            "failures": [
                {"activation": f.activation, "vm": f.vm, "error": f.error, "stderr": f.stderr, "log": f.log}
                for f in self.failures
            ],
            "blocked": list(self.blocked),
            "assignments": {name: each.to_dict() for name, each in execution.assignments.items()},
        }

    def _attempts(self) -> list[Attempt]:
        """Every attempt; of an activation that was made again, only the last success counts as done."""
        ended = [fact for fact in self.facts if fact["fact"] == "ended"]
        attempts = []
        for fact in ended:
            outcome: Outcome = fact["outcome"]
            if outcome == "done" and self.ended[fact["activation"]] is not fact:
                outcome = "lost"  # its outputs were made again later
            attempts.append(
                Attempt(
                    fact["activation"], fact["vm"], fact["slot"], fact["start_s"], fact["finish_s"], outcome
                )
            )
        return attempts

    def _work(self) -> tuple[dict[str, float], dict[str, int]]:
        """How long each VM was busy, and how many activations it did."""
        busy: dict[str, float] = {}
        counts: dict[str, int] = {}
        for attempt in self.execution.timeline:
            busy[attempt.vm] = busy.get(attempt.vm, 0.0) + attempt.finish_s - attempt.start_s
            counts[attempt.vm] = counts.get(attempt.vm, 0) + (attempt.outcome == "done")
        return busy, counts

    def _last(self, kind: str) -> Fact:
        return next((fact for fact in reversed(self.facts) if fact["fact"] == kind), {})


def execution_of(workflow: Workflow, plan: Plan, attempts: Iterable[Attempt]) -> Execution:
    """Measured attempts as an `Execution`, the type that simulated runs have as well."""
    from prudent.workflows.simulation.problem import build_problem
    from prudent.workflows.simulation.records import ATTEMPT, FAILED, SUCCEEDED
    from prudent.workflows.simulation.replay import run_totals
    from prudent.workflows.simulation.simulator import RunTrace

    fleet, codes = plan.fleet, {"done": 0, "failed": 1, "lost": 2}
    problem = build_problem(workflow, fleet, world_of(plan))
    tasks, vms, state = problem.tasks.copy(), problem.vms.copy(), problem.state.copy()
    rows = list(attempts)
    log = np.zeros(len(rows), dtype=ATTEMPT)
    for at, row in enumerate(rows):
        task, lane = workflow.index[row.activation], fleet.lane_index[row.vm, row.slot]
        for name, value in zip(
            _LOGGED, (row.start_s, row.finish_s, task, lane, codes[row.outcome]), strict=True
        ):
            log[name][at] = value
        vm = vms[problem.lanes[lane]["vm"]]
        vm["from_s"] = (
            0.0 if plan.world.get("boot", "start") == "start" else _first(vm["from_s"], row.start_s)
        )
        vm["last_s"] = max(vm["last_s"], row.finish_s)
        done = row.outcome == "done"
        if done or tasks[task]["status"] != SUCCEEDED:
            tasks[task]["status"] = SUCCEEDED if done else FAILED
            tasks[task]["lane"], tasks[task]["start_s"], tasks[task]["finish_s"] = (
                lane,
                row.start_s,
                row.finish_s,
            )
    state["log"] = len(rows)
    makespan_s, busy_s, cost_usd = (float(value) for value in run_totals(vms, state, log))
    succeeded = int((tasks["status"] == SUCCEEDED).sum())
    moved = float(sum(problem.tasks[workflow.index[row.activation]]["staged_bytes"] for row in rows))
    trace = RunTrace(tasks, vms, log, makespan_s, busy_s, cost_usd, moved, len(rows) - succeeded, succeeded)
    return Execution(workflow, fleet, trace)


def world_of(plan: Plan) -> World:
    """The world that a plan was made for."""
    try:
        return World(**dict(plan.world))
    except TypeError as error:
        raise BadInput(f"The plan's world is not of this version ({error}); plan again.") from None


def planned_queues(plan: Plan, workflow: Workflow, names: Iterable[str]) -> dict[tuple[str, int], list[str]]:
    """The plan's order on every slot of its fleet, of these activations only."""
    wanted = set(names)
    position = {name: at for at, name in enumerate(workflow.order)}

    def key(assignment: Assignment) -> tuple[float, int]:
        return assignment.start_s, position[assignment.activation]

    queues: dict[tuple[str, int], list[str]] = {lane: [] for lane in plan.fleet.lane_index}
    for assignment in sorted(plan.assignments.values(), key=key):
        if assignment.activation in wanted:
            queues[assignment.vm, assignment.slot].append(assignment.activation)
    return queues


def measured_run_times(facts: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, float]]:
    """(activation, VM, seconds) of every command that succeeded."""
    return [
        (fact["activation"], fact["vm"], float(fact["took_s"]))
        for fact in facts
        if fact["fact"] == "ended" and fact["outcome"] == "done"
    ]


def _first(known: float, start_s: float) -> float:
    return start_s if known < 0 else min(known, start_s)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-20:])
