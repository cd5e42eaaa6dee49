"""`execute`: follow a plan with real commands, note everything, mend what breaks."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.workflows.execute.agenda import Agenda, Ground, Manner, Notes, Watch
from prudent.workflows.execute.crew import clear_scratch, crew_for
from prudent.workflows.execute.journal import Fact, Journal, read_facts
from prudent.workflows.execute.limits import Limits
from prudent.workflows.execute.place import Place
from prudent.workflows.execute.record import JOURNAL, LOGS, PLAN, WORKFLOW, Run
from prudent.workflows.execute.resume import interrupted
from prudent.workflows.execute.sitting import Sitting
from prudent.workflows.execute.uncertainty import Uncertainty
from prudent.workflows.plan import Plan
from prudent.workflows.workflow import Workflow


def execute(
    plan: Plan,
    workflow: Workflow,
    folder: str | Path,
    *,
    directory: str | Path = ".",
    address: str | None = None,
    on: str | None = None,
    home: str | Path | None = None,
    budget_usd: float | None = None,
    deadline_s: float | None = None,
    anyway: bool = False,
    uncertainty: Uncertainty | None = None,
    retries: int = 1,
    timeout_s: float | None = None,
    resume: bool = False,
    replay: float | None = None,
    stop_at_failure: bool = False,
    watch: Watch | None = None,
    check: bool = True,
) -> Run:
    """Run every activation's command on the worker that stands for its planned VM; answers with the `Run`.

    `folder` keeps the run: journal, logs, copies of plan and workflow. With `resume`, what is done there and
    still holds is skipped. Commands run in `directory`, where the files are. `address` is that of a Dask
    scheduler; without it, workers are started on this machine, or `on` machines that are rented for the run:
    "local", "hosts:inventory.yaml" or "ec2:aws.yaml", under leases kept in `home`. A failing activation is
    tried `retries` times more, and ended after `timeout_s`. `replay=0.01` rehearses: instead of commands,
    sleeps of a hundredth of the planned time. `watch` hears every fact of the journal. Unless `check` is
    False, a run that does not finish raises RunFailed; what was done is kept either way.

    The run costs at most `budget_usd`, all its sessions together, and this session ends within `deadline_s`.
    What is forecast to break a limit is refused before anything is rented, unless `anyway`; where a limit is
    near, the plan is changed, or the run stops cleanly and can be resumed. `uncertainty` tells how far the
    workflow's run times may be off; without it, it is that of guesses, or of learned ones if they were.
    """
    plan.check(workflow)
    if on is not None and address is not None:
        raise BadInput("There is both a scheduler's address and a place to rent machines; give one of them.")
    manner = Manner(Path(directory).resolve(), retries, timeout_s, replay, stop_at_failure)
    _check_commands(workflow, manner)
    folder = Path(folder)
    earlier = _earlier(folder, workflow, manner, resume)
    limits = _limits(budget_usd, deadline_s, earlier)
    if limits and on is not None and replay is not None:
        raise BadInput("A rehearsal on rented machines keeps no budget; leave out --on, or --replay.")
    _prepare(folder, plan, workflow)
    used = {assignment.vm for assignment in plan.assignments.values()}
    if plan.policy == "adaptive" and on is None:  # it may turn to VMs that it had no need of at first
        used = set(plan.fleet.index)
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(folder / JOURNAL))
        notes = Notes(journal, watch)
        for fact in interrupted(earlier, journal.last_sign_s()):
            journal.write(fact)  # it was paid, whatever becomes of this session
            earlier.append(fact)
        crew = None if address is None else stack.enter_context(crew_for(plan.fleet, used, address))
        place = None if on is None else Place.of(on, None if home is None else Path(home))
        ground = Ground(manner.directory, crew, programs=place is None)
        agenda = Agenda.of(workflow, manner, earlier, ground)
        run = str(earlier[0].get("id", "")) if earlier else secrets.token_hex(4)
        name = f"execute-{folder.name}-{run}".rstrip("-")
        sitting = Sitting(plan, workflow, manner, folder, agenda, place, name, uncertainty)
        clear_scratch(name)
        sitting.charge_earlier(notes)
        limits = limits.after(agenda.offset_s)
        ahead = sitting.forecast()
        if limits and agenda.reasons and not anyway:
            limits.check(ahead, agenda.offset_s)
        sitting.check_payable(limits)
        agenda.open(notes, plan, workflow, manner, run, sitting.money_facts(limits, ahead))
        if agenda.reasons:
            sitting.run(stack, notes, crew, used, limits)
    done = Run.read(folder)
    return done.check() if check else done


def _limits(budget_usd: float | None, deadline_s: float | None, earlier: list[Fact]) -> Limits:
    """The limits of this session; a budget of the run stays until another is given."""
    if budget_usd is None:
        told = [fact["budget_usd"] for fact in earlier if fact["fact"] == "session" and "budget_usd" in fact]
        budget_usd = float(told[-1]) if told else None
    return Limits(budget_usd, deadline_s)


def _check_commands(workflow: Workflow, manner: Manner) -> None:
    silent = [activation.id for activation in workflow.activations if not activation.command]
    if silent and manner.replay is None:
        raise BadInput(
            f'{len(silent)} of {len(workflow)} activations have no command ("{silent[0]}" first), so nothing '
            "can be run: DAX traces have none; give a WfFormat file with commands, or rehearse with a replay."
        )


def _earlier(folder: Path, workflow: Workflow, manner: Manner, resume: bool) -> list[Fact]:
    """The facts of earlier sessions, checked to be of the same workflow and manner."""
    path = folder / JOURNAL
    if not path.exists() or not path.stat().st_size:
        return []
    if not resume:
        raise BadInput(f'There is a run in "{folder}" already; go on with --resume, or name another folder.')
    facts = read_facts(path)
    if facts[0]["fingerprint"] != workflow.fingerprint:
        raise BadInput(
            f'The run in "{folder}" is of another workflow ("{facts[0]["workflow"]}"); name another folder.'
        )
    if facts[0].get("replay") != manner.replay:
        raise BadInput(
            f'The run in "{folder}" is {"a rehearsal" if facts[0].get("replay") else "not a rehearsal"}; '
            "go on in the same way, or name another folder."
        )
    return facts


def _prepare(folder: Path, plan: Plan, workflow: Workflow) -> None:
    try:
        (folder / LOGS).mkdir(parents=True, exist_ok=True)
        plan.save(folder / PLAN)
        workflow.write(folder / WORKFLOW)
    except OSError as error:
        raise BadInput(
            f'Cannot write to the run\'s folder "{folder}" ({error.strerror}); choose another.'
        ) from None
