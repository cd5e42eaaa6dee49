"""A plan, made, compared and reported; and if it was asked for, followed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.core.errors import RunFailed
from prudent.service.intake.schedule_request import ScheduleRequest
from prudent.service.worker.artifacts import PLAN, write_report, write_result
from prudent.service.worker.messages import (
    DoneMessage,
    ProcessMessage,
    ProgressMessage,
    RunTask,
    SendMessage,
    TrialEndMessage,
    TrialStartMessage,
)

if TYPE_CHECKING:  # a compiler comes with them, and a process that never plans does without
    from prudent.workflows.plan import Plan
    from prudent.workflows.workflow import Workflow

EXECUTION, FILES, WORKFLOW = "execution", "files", "workflow.json"
_PLANNED = 0.5


def perform_schedule(task: RunTask, send: SendMessage, folders: Sequence[Path]) -> ProcessMessage:
    """Plan; then run or rehearse the plan if the request says `execute`."""
    from prudent.reports.workflow import write_workflow_report
    from prudent.workflows.scheduling import compare, plan_summary, schedule

    request = ScheduleRequest.parse(task.document, folders)
    workflow, fleet, world = request.read_workflow(folders), request.read_fleet(), request.read_world()
    began_s = time.monotonic()
    told = {"scheduler": request.scheduler, **dict(request.options)}
    send(TrialStartMessage(1, request.scheduler, told))
    plan = schedule(workflow, fleet, world, request.scheduler, dict(request.options), request.seed)
    plan = replace(plan, details={**plan.details, "workflow_path": WORKFLOW})
    workflow.write(task.folder / WORKFLOW)
    plan.save(task.folder / PLAN)
    details = {"makespan_s": plan.makespan_s, "busy_s": plan.busy_s, "plan_s": time.monotonic() - began_s}
    send(
        TrialEndMessage(
            1,
            request.scheduler,
            told,
            "finished",
            plan.makespan_s,
            plan.cost_usd,
            plan.makespan_s,
            details=details,
        )
    )
    send(ProgressMessage(0.9 if request.execute is None else _PLANNED))
    beside = compare(plan, workflow)
    run = _follow(request, plan, workflow, task.folder, send)
    write_result(
        task.folder, {**plan_summary(plan, beside), "execution": None if run is None else run.to_dict()}
    )
    write_report(
        task.folder, lambda path: write_workflow_report(plan, workflow, path, beside=beside, run=run)
    )
    if run is not None and run.stopped is not None:
        raise RunFailed(run.stopped)
    if run is not None and not run.succeeded:
        raise RunFailed(f"{len(run.execution.unfinished)} of {len(workflow)} activations are not done.")
    return DoneMessage()


def _follow(request: ScheduleRequest, plan: Plan, workflow: Workflow, folder: Path, send: SendMessage) -> Any:
    if request.execute is None:
        return None
    from prudent.workflows.execute.runner import execute

    said, count, seen = request.execute, len(workflow), set[str]()

    def watch(fact: Any, *_: Any) -> None:
        if (
            isinstance(fact, dict)
            and fact.get("fact") in ("done", "ended", "finished")
            and "activation" in fact
        ):
            seen.add(str(fact["activation"]))
            send(ProgressMessage(_PLANNED + (1 - _PLANNED) * min(len(seen) / count, 0.99)))

    files = folder / FILES
    files.mkdir(exist_ok=True)
    return execute(
        plan,
        workflow,
        folder / EXECUTION,
        directory=files,
        retries=int(said.get("retries", 1)),
        timeout_s=said.get("timeout"),
        budget_usd=request.limit("budget"),
        deadline_s=request.limit("deadline"),
        anyway=bool(said.get("anyway")),
        resume=True,
        replay=said.get("replay"),
        watch=watch,
        check=False,
    )
