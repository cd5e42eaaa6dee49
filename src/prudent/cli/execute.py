"""`prudent execute PLAN`: run a plan's commands for real, on Dask workers that stand for its machines."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.clusters import prices_at, reap_leftovers, tell_age
from prudent.cli.console import complain, out, say, say_json
from prudent.cli.exits import FAILED, INTERRUPTED, OK, OVER_LIMIT, ended_by_signals
from prudent.cli.options import AsJson
from prudent.core.errors import BadInput, PrudentError
from prudent.core.units import SECONDS, USD, format_money, parse_in

if TYPE_CHECKING:
    from prudent.workflows.execute.forecast import Uncertainty
    from prudent.workflows.execute.run import WorkflowRun
    from prudent.workflows.plan import Plan
    from prudent.workflows.workflow import Workflow


def execute(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that prudent schedule wrote.")],
    workflow: Annotated[
        Path | None,
        typer.Argument(metavar="WORKFLOW", help="The workflow. \\[default: the path in the plan]"),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The folder of the run: journal, logs, report. \\[default: PLAN.run]")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(help="Where the files are and commands run. \\[default: WORKFLOW's folder]"),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="A Dask scheduler, such as tcp://host:8786. \\[default: workers on this machine]"),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help="Where to rent the plan's machines: local, hosts:INVENTORY.yaml or ec2:CONFIG.yaml."
        ),
    ] = None,
    on: Annotated[str | None, typer.Option(help="The old name of --where.", hidden=True)] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="The most that the run may cost, resumed ones included, such as $3."),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(help='How long it may take, including the boot of machines, such as "2 h".'),
    ] = None,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Start even if the forecast is above a limit, and stop before it."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run; skip what is done.")] = False,
    retries: Annotated[int, typer.Option(help="How often to retry a failing activation.")] = 1,
    timeout: Annotated[
        str | None, typer.Option(help='Stop an activation that takes longer, such as "2 h".')
    ] = None,
    stop_at_failure: Annotated[
        bool, typer.Option("--stop-at-failure", help="Start nothing more after a failure.")
    ] = False,
    replay: Annotated[
        float | None,
        typer.Option(
            metavar="SCALE",
            help="Rehearse: sleep for the planned times x SCALE, run no command.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Where to write the HTML report. \\[default: RUN/report.html]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run every activation's command on the machine that the plan chose for it; keep a journal."""
    from prudent.workflows.execute.run import REPORT
    from prudent.workflows.plan import Plan

    followed = Plan.load(plan)
    path = workflow or _workflow_of(followed, plan)
    told, unsure = _told(followed, plan, path)
    folder = run or plan.with_suffix(".run")
    view = _view(followed, told, as_json)
    if where is not None and on is not None:
        raise BadInput("--on is the old name of --where; give only --where.")
    place = on if where is None else where
    if place is not None:
        reap_leftovers()
        tell_age(prices_at(place, {vm.machine for vm in followed.fleet.vms}))
    account = None if replay else _SpendingRecord(told.name, folder, resume)
    happened = _run(
        followed,
        told,
        folder,
        view,
        account,
        directory=directory or path.parent,
        address=address,
        on=place,
        budget_usd=None if budget is None else parse_in(budget, USD),
        deadline_s=None if deadline is None else parse_in(deadline, SECONDS),
        anyway=anyway,
        uncertainty=unsure,
        retries=retries,
        timeout_s=None if timeout is None else parse_in(timeout, SECONDS),
        resume=resume,
        replay=replay,
        stop_at_failure=stop_at_failure,
    )
    written = _report(happened, told, report or folder / REPORT)
    _show(happened, written, as_json)
    raise typer.Exit(_code(happened))


def _run(
    plan: Plan, workflow: Workflow, folder: Path, view: Any, account: _SpendingRecord | None, **how: Any
) -> WorkflowRun:
    """Follow the plan, and tell what it has cost, also where it was interrupted or failed."""
    from prudent.workflows.execute.run import WorkflowRun
    from prudent.workflows.execute.runner import execute as run_plan

    try:
        with ended_by_signals(), view:
            happened = run_plan(plan, workflow, folder, **how, watch=view.watch, check=False)
    except (KeyboardInterrupt, PrudentError) as error:
        with suppress(PrudentError):  # it may have been too early for a journal
            if account is not None:
                account.tell(WorkflowRun.read(folder))
        if isinstance(error, PrudentError):
            raise
        complain("interrupted; what ran was stopped, what is done is kept. Continue with --resume.")
        raise typer.Exit(INTERRUPTED) from None
    if account is not None:
        account.tell(happened)
    return happened


def _code(run: WorkflowRun) -> int:
    if run.over_usd or run.stopped is not None:
        return OVER_LIMIT
    return OK if run.succeeded else FAILED


class _SpendingRecord:
    """The run's lines in the book of this computer, with what was forecast when it began."""

    def __init__(self, name: str, folder: Path, resume: bool) -> None:
        self._name, self._folder, self._resume = name, folder, resume

    def tell(self, run: WorkflowRun) -> None:
        from prudent.cloud.spending import RunSpending

        ahead = run.forecast
        expected_usd = run.plan.cost_usd if ahead is None else ahead.cost_usd.expected
        RunSpending("execute", self._name, self._folder, self._resume, expected_usd, complain).tell(
            run.cost_usd
        )


def _workflow_of(plan: Plan, path: Path) -> Path:
    said = plan.details.get("workflow_path")
    if not isinstance(said, str):
        raise BadInput(f'The plan "{path}" does not say where its workflow is; name it after the plan.')
    found = path.parent / said
    if not found.is_file():
        raise BadInput(f'The workflow of the plan is not at "{found}" any more; name it after the plan.')
    return found


def _told(plan: Plan, place: Path, path: Path) -> tuple[Workflow, Uncertainty | None]:
    """The workflow with the estimates that the plan was made with, and how sure learned ones are."""
    from prudent.workflows.execute.learning import learn_from_runs, uncertainty_of_runs
    from prudent.workflows.execute.run import WorkflowRun, world_of
    from prudent.workflows.workflow import Workflow

    told = Workflow.read(path)
    folders = [place.parent / str(folder) for folder in plan.details.get("learned_from", ())]
    if folders and all(folder.is_dir() for folder in folders):
        plan.check(told)
        runs, world = [WorkflowRun.read(folder) for folder in folders], world_of(plan)
        return learn_from_runs(told, plan.fleet, world, folders), uncertainty_of_runs(told, world, runs)
    return told, None


def _view(plan: Plan, workflow: Workflow, as_json: bool) -> Any:
    from prudent.cli.display.workflow_live import WorkflowProgress, workflow_view

    return workflow_view(WorkflowProgress(plan, workflow), None if as_json else out())


def _report(run: WorkflowRun, workflow: Workflow, path: Path) -> Path | None:
    from prudent.cli.schedule import write_report
    from prudent.workflows.scheduling import compare

    return write_report(run.plan, workflow, compare(run.plan, workflow), path, run)


def _show(run: WorkflowRun, written: Path | None, as_json: bool) -> None:
    from prudent.cli.display.workflow import run_lines

    if as_json:
        say_json({**run.to_dict(), "report": str(written) if written else None})
    else:
        say(out(), *run_lines(run, written))
    for failure in run.failures[:3]:
        complain(str(failure))
    if run.over_usd:
        complain(
            f"the bill of {format_money(run.cost_usd)} is {format_money(run.over_usd)} above the budget: a "
            "price rose, or a machine did not end in time; see `prudent clusters list`."
        )
    if run.stopped is not None:
        complain(run.stopped)
    elif not run.succeeded:
        complain(
            f"{len(run.execution.unfinished)} of {len(run.workflow)} activations are not done; fix the "
            "cause and continue with --resume."
        )
