"""`prudent execute PLAN`: run a plan's commands for real, on Dask workers that stand for its machines."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.console import complain, out, say_json
from prudent.cli.interrupt import ended_by_signals
from prudent.cli.price_age import prices_at, tell_age
from prudent.cli.reaping import reap_leftovers
from prudent.cli.workflow_options import AsJson
from prudent.core.errors import BadInput, PrudentError
from prudent.core.units import SECONDS, USD, format_money, parse_in

if TYPE_CHECKING:
    from prudent.workflows.execute.record import Run
    from prudent.workflows.execute.uncertainty import Uncertainty
    from prudent.workflows.plan import Plan
    from prudent.workflows.workflow import Workflow

FAILED, LIMITED, INTERRUPTED = 1, 3, 130
"""An activation failed; money or time did not suffice, or the budget was passed; Ctrl-C."""


def execute(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that prudent schedule wrote.")],
    workflow: Annotated[
        Path | None, typer.Argument(metavar="WORKFLOW", help="The workflow; the plan tells where it was.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The folder of the run (journal, logs, report); PLAN.run otherwise.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where the files are and commands run; the workflow's otherwise.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="A Dask scheduler, like tcp://host:8786; workers on this machine otherwise."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Rent the plan's machines: local, hosts:INVENTORY.yaml or ec2:CONFIG.yaml."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="The most that the run may cost, all its sessions together, such as $3."),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help='The latest end from now on, boot of machines included, such as "2 h".')
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Begin although the forecast is above a limit; do a part of it.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run; skip what is done.")] = False,
    retries: Annotated[int, typer.Option(help="Try a failing activation so many times more.")] = 1,
    timeout: Annotated[
        str | None, typer.Option(help='End an activation that takes longer, such as "2 h".')
    ] = None,
    stop_at_failure: Annotated[
        bool, typer.Option("--stop-at-failure", help="Start nothing more after a failure.")
    ] = False,
    replay: Annotated[
        float | None,
        typer.Option(metavar="SCALE", help="Rehearse: sleep the planned times x SCALE, run no command."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Where to write the HTML report; RUN/report.html otherwise.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run every activation's command on the machine that the plan chose for it; keep a journal."""
    from prudent.workflows.execute.record import REPORT, Run
    from prudent.workflows.execute.runner import execute as run_plan
    from prudent.workflows.plan import Plan

    followed = Plan.load(plan)
    path = workflow or _workflow_of(followed, plan)
    told, unsure = _told(followed, plan, path)
    folder = run or plan.with_suffix(".run")
    view = _view(followed, told, as_json)
    if on is not None:
        reap_leftovers()
        tell_age(prices_at(on, {vm.machine for vm in followed.fleet.vms}))
    account = None if replay else _Book(told.name, folder, resume)
    try:
        with ended_by_signals(), view:
            happened = run_plan(
                followed,
                told,
                folder,
                directory=directory or path.parent,
                address=address,
                on=on,
                budget_usd=None if budget is None else parse_in(budget, USD),
                deadline_s=None if deadline is None else parse_in(deadline, SECONDS),
                anyway=anyway,
                uncertainty=unsure,
                retries=retries,
                timeout_s=None if timeout is None else parse_in(timeout, SECONDS),
                resume=resume,
                replay=replay,
                stop_at_failure=stop_at_failure,
                watch=view.watch,
                check=False,
            )
    except (KeyboardInterrupt, PrudentError) as error:
        with suppress(PrudentError):  # it may have been too early for a journal
            if account is not None:
                account.tell(Run.read(folder))
        if isinstance(error, PrudentError):
            raise
        complain("interrupted; what ran was ended, what is done is kept. Go on with --resume.")
        raise typer.Exit(INTERRUPTED) from None
    if account is not None:
        account.tell(happened)
    written = _report(happened, told, report or folder / REPORT)
    _show(happened, written, as_json)
    raise typer.Exit(_code(happened))


def _code(run: Run) -> int:
    if run.over_usd or run.stopped is not None:
        return LIMITED
    return 0 if run.succeeded else FAILED


class _Book:
    """The run's lines in the book of this computer, with what was forecast when it began."""

    def __init__(self, name: str, folder: Path, resume: bool) -> None:
        self._name, self._folder, self._resume = name, folder, resume

    def tell(self, run: Run) -> None:
        from prudent.cloud.spending import Account

        ahead = run.forecast
        expected_usd = run.plan.cost_usd if ahead is None else ahead.cost_usd.expected
        Account("execute", self._name, self._folder, self._resume, expected_usd, complain).tell(run.cost_usd)


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
    from prudent.workflows.execute.estimates import learn_from
    from prudent.workflows.execute.record import Run, world_of
    from prudent.workflows.execute.uncertainty import of_runs
    from prudent.workflows.workflow import Workflow

    told = Workflow.read(path)
    folders = [place.parent / str(folder) for folder in plan.details.get("learned_from", ())]
    if folders and all(folder.is_dir() for folder in folders):
        plan.check(told)
        runs, world = [Run.read(folder) for folder in folders], world_of(plan)
        return learn_from(told, plan.fleet, world, folders), of_runs(told, world, runs)
    return told, None


def _view(plan: Plan, workflow: Workflow, as_json: bool) -> Any:
    from prudent.cli.workflow_live import Lines, Progress, Screen, Silent

    if as_json:
        return Silent()
    console, progress = out(), Progress(plan, workflow)
    return Screen(progress, console) if console.is_terminal else Lines(progress, console)


def _report(run: Run, workflow: Workflow, path: Path) -> Path | None:
    from prudent.cli.schedule import write_report
    from prudent.workflows.comparison import compare

    return write_report(run.plan, workflow, compare(run.plan, workflow), path, run)


def _show(run: Run, written: Path | None, as_json: bool) -> None:
    from prudent.cli.workflow_answer import executed

    if as_json:
        say_json({**run.to_dict(), "report": str(written) if written else None})
    else:
        console = out()
        for line in executed(run, written):
            console.print(line)
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
            f"{len(run.execution.unfinished)} of {len(run.workflow)} activations are not done; mend the "
            "cause and go on with --resume."
        )
