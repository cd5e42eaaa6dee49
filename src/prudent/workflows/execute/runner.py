"""`execute`: follow a plan with real commands; `ExecutionSession`: one session of a run with its money."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from prudent.cloud.billing import RentalPeriod, due_usd
from prudent.core.errors import BadInput
from prudent.core.journal import Fact
from prudent.core.money import ROUNDING_USD
from prudent.core.units import format_money
from prudent.workflows.execute.dispatch import Lane
from prudent.workflows.execute.forecast import GUESSED, LEARNED, Forecast, Interval, Uncertainty, forecast
from prudent.workflows.execute.journal import ExecutionJournal, FactListener, FactSink
from prudent.workflows.execute.learning import learn_run_times
from prudent.workflows.execute.limit_guard import LimitGuard
from prudent.workflows.execute.money import (
    CostMeter,
    LeaseCostMeter,
    PlanCostMeter,
    RentalSource,
    RentalTerms,
    bill_fact,
    plan_price,
    spent_usd,
)
from prudent.workflows.execute.options import ExecutionOptions, LimitKind, RunLimits, rounded_up
from prudent.workflows.execute.plan_follower import PlanFollower
from prudent.workflows.execute.rented_workers import BootTooLong, rented_vm_workers
from prudent.workflows.execute.resume import RemainingWork, interrupted_attempts
from prudent.workflows.execute.run import (
    JOURNAL,
    LOGS,
    PLAN,
    WORKFLOW,
    WorkflowRun,
    measured_run_times,
    planned_queues,
    world_of,
)
from prudent.workflows.execute.work_folder import WorkFolder
from prudent.workflows.execute.workers import VmWorkers, clear_scratch, vm_workers
from prudent.workflows.plan import Plan, Policy
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World


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
    watch: FactListener | None = None,
    check: bool = True,
) -> WorkflowRun:
    """Run every activation's command on the worker that stands for its planned VM.

    `folder` keeps the run: journal, logs, copies of plan and workflow. With `resume`, activations are skipped
    that were done there and whose command and files are unchanged. Commands run in `directory`, where the
    files are. `address` is that of a Dask scheduler; without it, workers are started on this machine, or `on`
    machines that are rented for the run: "local", "hosts:inventory.yaml" or "ec2:aws.yaml", under leases kept
    in `home`. A failing activation is tried `retries` times more, and ended after `timeout_s`. `replay=0.01`
    rehearses: instead of commands, sleeps of a hundredth of the planned time. `watch` is called with every
    fact of the journal. Unless `check` is False, a run that does not finish raises RunFailed; what was done
    is kept either way.

    The run costs at most `budget_usd`, all its sessions together, and this session ends within `deadline_s`.
    A run that is forecast to break a limit is refused before anything is rented, unless `anyway`; where a
    limit is near, the plan is changed, or the run stops cleanly and can be resumed. `uncertainty` tells how
    far the workflow's run times may be off; by default it is that of guesses, or of learned run times if they
    were learned.
    """
    plan.check(workflow)
    if on is not None and address is not None:
        raise BadInput("There is both a scheduler's address and a place to rent machines; give one of them.")
    options = ExecutionOptions(Path(directory).resolve(), retries, timeout_s, replay, stop_at_failure)
    _check_commands(workflow, options)
    folder = Path(folder)
    earlier = _earlier(folder, workflow, options, resume)
    limits = RunLimits(budget_usd, deadline_s).or_as_before(earlier)
    if limits and on is not None and replay is not None:
        raise BadInput("A rehearsal on rented machines has no budget; leave out --where, or --replay.")
    _prepare(folder, plan, workflow)
    used = _used_vms(plan, rented=on is not None)
    with ExitStack() as stack:
        journal = stack.enter_context(ExecutionJournal(folder / JOURNAL))
        sink = FactSink(journal, watch)
        for fact in interrupted_attempts(earlier, journal.last_heartbeat_s()):
            journal.write(fact)  # it was paid, whatever becomes of this session
            earlier.append(fact)
        workers = None if address is None else stack.enter_context(vm_workers(plan.fleet, used, address))
        source = None if on is None else RentalSource.of(on, None if home is None else Path(home))
        work_folder = WorkFolder(options.directory, workers, programs=source is None)
        remaining_work = RemainingWork.of(workflow, options, earlier, work_folder)
        run = str(earlier[0].get("id", "")) if earlier else secrets.token_hex(4)
        name = f"execute-{folder.name}-{run}".rstrip("-")
        session = ExecutionSession(plan, workflow, options, folder, remaining_work, source, name, uncertainty)
        clear_scratch(name)
        limits = session.begin(sink, run, limits, anyway)
        if remaining_work.reasons:
            session.run(stack, sink, workers, used, limits)
    done = WorkflowRun.read(folder)
    return done.check() if check else done


def _used_vms(plan: Plan, rented: bool) -> set[str]:
    """The VMs that workers are wanted for."""
    if plan.policy == "adaptive" and not rented:  # it may turn to VMs that it had no need of at first
        return set(plan.fleet.index)
    return {assignment.vm for assignment in plan.assignments.values()}


def _check_commands(workflow: Workflow, options: ExecutionOptions) -> None:
    silent = [activation.id for activation in workflow.activations if not activation.command]
    if silent and options.replay is None:
        raise BadInput(
            f'{len(silent)} of {len(workflow)} activations have no command ("{silent[0]}" first), so nothing '
            "can be run: DAX traces have none; give a WfFormat file with commands, or rehearse with a replay."
        )


def _earlier(folder: Path, workflow: Workflow, options: ExecutionOptions, resume: bool) -> list[Fact]:
    """The facts of earlier sessions, checked to be of the same workflow, and a rehearsal if this is one."""
    path = folder / JOURNAL
    if not path.exists() or not path.stat().st_size:
        return []
    if not resume:
        raise BadInput(
            f'There is a run in "{folder}" already; continue with --resume, or name another folder.'
        )
    with ExecutionJournal(path) as journal:
        facts = journal.facts
    if not facts:  # it was killed while it wrote the first one
        return []
    if facts[0]["fingerprint"] != workflow.fingerprint:
        raise BadInput(
            f'The run in "{folder}" is of another workflow ("{facts[0]["workflow"]}"); name another folder.'
        )
    if facts[0].get("replay") != options.replay:
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


@dataclass(frozen=True)
class ExecutionSession:
    """One session of a run: its forecast, its machines, following the plan, and its bill."""

    plan: Plan
    workflow: Workflow
    options: ExecutionOptions
    folder: Path
    remaining_work: RemainingWork
    source: RentalSource | None
    name: str
    """The run's name on its leases; leases of other runs are not on its bill."""
    uncertainty: Uncertainty | None = None

    @cached_property
    def world(self) -> World:
        return world_of(self.plan)

    @cached_property
    def terms(self) -> RentalTerms:
        """Terms of the VMs that are needed: today's prices if they are rented, else those of the plan."""
        if self.source is not None:
            return self.source.terms(self.plan.fleet, self._planned_vms())
        prices = {vm.name: plan_price(vm, self.world) for vm in self.plan.fleet.vms}
        return RentalTerms(prices, from_first_use=self.world.boot == "first-use")

    @cached_property
    def known(self) -> Workflow:
        """The workflow with estimates as earlier sessions corrected them."""
        if self.options.replay is not None or not self.remaining_work.earlier:
            return self.workflow
        fleet = self.plan.fleet
        return learn_run_times(self.workflow, fleet, self.world, [(fleet, self.remaining_work.earlier)])

    @cached_property
    def earlier_usd(self) -> float:
        """What earlier sessions have cost, machines left behind by a killed one included."""
        if self.source is None:
            meter = PlanCostMeter(self.plan.fleet, self.world, (), self.remaining_work.earlier)
            return spent_usd(meter, self.remaining_work.offset_s)
        total: float = bill_fact(self.source.bill(self.name), self.remaining_work.earlier)["total_usd"]
        return total

    def begin(self, sink: FactSink, run: str, limits: RunLimits, anyway: bool) -> RunLimits:
        """Record the start, unless the limits forbid it; answers with the limits on the run's clock."""
        self._bill_earlier_sessions(sink)
        work = self.remaining_work
        limits = limits.after(work.offset_s)
        ahead = self.forecast()
        if limits and work.reasons and not anyway:
            limits.check(ahead, work.offset_s)
        self._check_payable(limits)
        told = self._limit_facts(limits, ahead)
        work.record_session_start(sink, self.plan, self.workflow, self.options, run, told)
        return limits

    def _bill_earlier_sessions(self, sink: FactSink) -> None:
        """Record what machines of a killed session have cost, whatever becomes of this one."""
        if self.source is None:
            return
        bill = bill_fact(self.source.bill(self.name), self.remaining_work.earlier)
        known_usd = [fact["total_usd"] for fact in self.remaining_work.earlier if fact["fact"] == "bill"]
        if bill["total_usd"] > (known_usd[-1] if known_usd else 0.0):
            sink.write(bill)

    def forecast(self) -> Forecast:
        """The total cost of the run, and its end on the run's clock."""
        if not self.remaining_work.reasons:
            nothing = Interval(0.0, 0.0, 0.0)
            return Forecast(nothing, nothing).plus(self.earlier_usd, self.remaining_work.offset_s)
        ahead = self.forecast_after(
            self.known, self._queues(), self.remaining_work.earlier, self.remaining_work.offset_s
        )
        return ahead.plus(self.earlier_usd, self.remaining_work.offset_s)

    def forecast_after(
        self, workflow: Workflow, queues: Mapping[Lane, Sequence[str]], facts: Sequence[Fact], clock_s: float
    ) -> Forecast:
        """Cost and time of the activations in these queues, begun anew after these facts at `clock_s`."""
        unsure = self._uncertainty({name for queue in queues.values() for name in queue}, facts)
        policy: Policy = self.plan.policy
        if policy == "adaptive" and self.source is not None:
            policy = "frugal"  # nothing is rented that the plan does not use
        return forecast(
            workflow,
            self.plan.fleet,
            self.world,
            queues,
            self._terms_after(facts, clock_s),
            unsure,
            policy,
            self.plan.seed,
        )

    def _terms_after(self, facts: Sequence[Fact], clock_s: float) -> RentalTerms:
        """Rental terms at `clock_s`: machines are ordered anew in every session, other workers go on."""
        if self.source is not None:
            return self.terms
        fleet = self.plan.fleet
        goes_on = PlanCostMeter(fleet, self.world, fleet.index, facts).holds(clock_s)
        paid = PlanCostMeter(fleet, self.world, (), facts).holds(clock_s)
        return replace(
            self.terms,
            held_s={hold.name: clock_s - hold.since_s for hold in goes_on},
            paid_usd={hold.name: hold.cost_usd(clock_s) for hold in paid},
        )

    def _limit_facts(self, limits: RunLimits, ahead: Forecast) -> Fact:
        """What the journal records about forecast and limits when a session begins."""
        told: Fact = {"forecast": ahead.to_dict()}
        if limits.budget_usd is not None:
            told["budget_usd"] = limits.budget_usd
        if limits.deadline_s is not None:
            told["deadline_s"] = limits.deadline_s
        if self.source is not None:
            told["on"] = self.source.provider.name
        return told

    def run(
        self, stack: ExitStack, sink: FactSink, workers: VmWorkers | None, used: set[str], limits: RunLimits
    ) -> None:
        """Follow the plan on given workers, on workers started here, or on rented machines."""
        if self.source is None:
            workers = workers or stack.enter_context(vm_workers(self.plan.fleet, used, None, self.name))
            self._session(workers, sink, limits, 0.0)
            return
        needed = set(self.terms.prices)
        earlier_usd = self.earlier_usd  # before the machines of this session are on the bill
        try:
            with rented_vm_workers(
                self.plan.fleet,
                needed,
                self.source,
                self.options.directory,
                self.name,
                self._ceilings(limits),
                self._most_s(limits, earlier_usd),
            ) as rented:
                if self.options.replay is None:
                    WorkFolder(self.options.directory, rented).check_programs(self.workflow)
                self._session(rented, sink, limits, earlier_usd)
        except BootTooLong:
            sink.write(self._stopped_at_boot(limits, earlier_usd))
        finally:
            sink.write(bill_fact(self.source.bill(self.name), [*self.remaining_work.earlier, *sink.facts]))

    def _ceilings(self, limits: RunLimits) -> dict[str, float]:
        """The highest price of each VM: with a budget, the price that was counted on."""
        if limits.budget_usd is None:
            return {}
        return {vm: price.usd_per_h for vm, price in self.terms.prices.items()}

    def _check_payable(self, limits: RunLimits) -> None:
        """BadInput if the money left does not pay for the shortest use of the machines; none is ordered."""
        if self.source is None or limits.budget_usd is None or not self.remaining_work.reasons:
            return
        least_usd = due_usd(self._holds(), self.remaining_work.offset_s + self.terms.give_back.high_s)
        left_usd = limits.budget_usd - self.earlier_usd
        if least_usd > left_usd + ROUNDING_USD:
            count, enough = len(self.terms.prices), rounded_up(self.forecast().cost_usd.high)
            raise BadInput(
                f"To rent {'1 machine' if count == 1 else f'{count} machines'} costs "
                f"{format_money(least_usd)} at least, give-back included, and "
                f"{format_money(max(left_usd, 0.0))} of the budget of {format_money(limits.budget_usd)} are "
                f"left; give --budget {format_money(enough)}."
            )

    def _holds(self) -> list[RentalPeriod]:
        """The machines of this session, as if they were ordered now."""
        return [
            RentalPeriod(vm, price, self.remaining_work.offset_s) for vm, price in self.terms.prices.items()
        ]

    def _most_s(self, limits: RunLimits, earlier_usd: float) -> float:
        """For how long the machines may be held, from their order on."""
        now_s = self.remaining_work.offset_s
        return limits.time_left(self._holds(), earlier_usd, now_s, self.terms.give_back.high_s)[0]

    def _stopped_at_boot(self, limits: RunLimits, earlier_usd: float) -> Fact:
        """The fact of a stop while machines booted; the bill that follows has their cost."""
        assert self.source is not None
        why: LimitKind = "budget" if limits.budget_usd is not None else "deadline"
        meter = PlanCostMeter(self.plan.fleet, self.world, (), ())
        meter.earlier_usd = max(self.source.bill(self.name).total_usd(), earlier_usd)
        guard = LimitGuard(limits, meter, self.forecast_after)
        return guard.stop_fact(
            why, self.known, self._queues(), self.remaining_work.earlier, self.remaining_work.offset_s
        )

    def _session(self, workers: VmWorkers, sink: FactSink, limits: RunLimits, earlier_usd: float) -> None:
        guard = LimitGuard(limits, self._meter(workers, earlier_usd), self.forecast_after)
        PlanFollower(
            self.plan, self.workflow, self.options, self.folder, sink, workers, self.remaining_work, guard
        ).run()

    def _meter(self, workers: VmWorkers, earlier_usd: float) -> CostMeter:
        notice_s = workers.poll_s / (self.options.replay or 1.0)
        if self.source is not None:
            return LeaseCostMeter(workers.leases, earlier_usd, self.terms.give_back.high_s + notice_s)
        return PlanCostMeter(
            self.plan.fleet, self.world, self._planned_vms(), self.remaining_work.earlier, notice_s
        )

    def _planned_vms(self) -> set[str]:
        return {lane[0] for lane, queue in self._queues().items() if queue}

    def _queues(self) -> dict[Lane, list[str]]:
        return planned_queues(self.plan, self.workflow, self.remaining_work.reasons)

    def _uncertainty(self, names: Iterable[str], facts: Iterable[Fact]) -> Uncertainty:
        """The uncertainty of estimates: that of learned ones if all programs ran before, else of guesses."""
        if self.options.replay is not None:
            return Uncertainty()  # a rehearsal sleeps what was planned
        if self.uncertainty is not None:
            return self.uncertainty
        if any(activation.runtimes_s for activation in self.workflow.activations):
            return LEARNED
        ran = {self.workflow[name].program for name, _, _ in measured_run_times(facts)}
        return LEARNED if {self.workflow[name].program for name in names} <= ran else GUESSED
