"""One sitting of a run with its money: the forecast before it, its machines, and the bill after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from prudent.cloud.hold import Hold, due_usd
from prudent.core.errors import BadInput
from prudent.core.money import ROUNDING_USD
from prudent.core.units import format_money
from prudent.workflows.execute.agenda import Agenda, Ground, Manner, Notes
from prudent.workflows.execute.crew import Crew, crew_for
from prudent.workflows.execute.dispatch import Lane
from prudent.workflows.execute.estimates import learned
from prudent.workflows.execute.forecast import Forecast, Interval
from prudent.workflows.execute.foresight import Terms, forecast
from prudent.workflows.execute.journal import Fact
from prudent.workflows.execute.keeper import Keeper
from prudent.workflows.execute.limits import Limit, Limits, rounded_up
from prudent.workflows.execute.machines import BootTooLong, crew_on_machines
from prudent.workflows.execute.meter import LeaseMeter, Meter, PlanMeter, plan_price, spent_usd
from prudent.workflows.execute.place import Place, bill_fact
from prudent.workflows.execute.record import measured_s, planned_queues, world_of
from prudent.workflows.execute.session import Session
from prudent.workflows.execute.uncertainty import GUESSED, LEARNED, Uncertainty
from prudent.workflows.front import Policy
from prudent.workflows.plan import Plan
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World


@dataclass(frozen=True)
class Sitting:
    """What one call of `execute` is about to do: the agenda, where its machines come from, by which name."""

    plan: Plan
    workflow: Workflow
    manner: Manner
    folder: Path
    agenda: Agenda
    place: Place | None
    name: str
    """The run's name on its leases: those of other runs are not on its bill."""
    uncertainty: Uncertainty | None = None

    @cached_property
    def world(self) -> World:
        return world_of(self.plan)

    @cached_property
    def terms(self) -> Terms:
        """What the VMs that are needed cost: prices of today where they are rented, else the plan's."""
        if self.place is not None:
            return self.place.terms(self.plan.fleet, self._planned_vms())
        prices = {vm.name: plan_price(vm, self.world) for vm in self.plan.fleet.vms}
        return Terms(prices, from_first_use=self.world.boot == "first-use")

    @cached_property
    def known(self) -> Workflow:
        """The workflow with estimates as earlier sessions corrected them."""
        if self.manner.replay is not None or not self.agenda.earlier:
            return self.workflow
        fleet = self.plan.fleet
        return learned(self.workflow, fleet, self.world, [(fleet, self.agenda.earlier)])

    @cached_property
    def earlier_usd(self) -> float:
        """What earlier sessions have cost; a machine that a killed one left is on the bill as well."""
        if self.place is None:
            meter = PlanMeter(self.plan.fleet, self.world, (), self.agenda.earlier)
            return spent_usd(meter, self.agenda.offset_s)
        total: float = bill_fact(self.place.bill(self.name), self.agenda.earlier)["total_usd"]
        return total

    def charge_earlier(self, notes: Notes) -> None:
        """Write down what machines of a killed session have cost, whatever becomes of this one."""
        if self.place is None:
            return
        bill = bill_fact(self.place.bill(self.name), self.agenda.earlier)
        known_usd = [fact["total_usd"] for fact in self.agenda.earlier if fact["fact"] == "bill"]
        if bill["total_usd"] > (known_usd[-1] if known_usd else 0.0):
            notes.write(bill)

    def forecast(self) -> Forecast:
        """What the whole run will have cost, and when it will end on its clock."""
        if not self.agenda.reasons:
            nothing = Interval(0.0, 0.0, 0.0)
            return Forecast(nothing, nothing).plus(self.earlier_usd, self.agenda.offset_s)
        ahead = self.foresee(self.known, self._queues(), self.agenda.earlier, self.agenda.offset_s)
        return ahead.plus(self.earlier_usd, self.agenda.offset_s)

    def foresee(
        self, workflow: Workflow, queues: Mapping[Lane, Sequence[str]], facts: Sequence[Fact], clock_s: float
    ) -> Forecast:
        """What activations in these queues will cost and take, begun anew after these facts at `clock_s`."""
        unsure = self._uncertainty({name for queue in queues.values() for name in queue}, facts)
        policy: Policy = self.plan.policy
        if policy == "adaptive" and self.place is not None:
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

    def _terms_after(self, facts: Sequence[Fact], clock_s: float) -> Terms:
        """Rented machines are ordered anew in every session; the bill of other workers goes on."""
        if self.place is not None:
            return self.terms
        fleet = self.plan.fleet
        goes_on = PlanMeter(fleet, self.world, fleet.index, facts).holds(clock_s)
        paid = PlanMeter(fleet, self.world, (), facts).holds(clock_s)
        return replace(
            self.terms,
            held_s={hold.name: clock_s - hold.since_s for hold in goes_on},
            paid_usd={hold.name: hold.cost_usd(clock_s) for hold in paid},
        )

    def money_facts(self, limits: Limits, ahead: Forecast) -> Fact:
        """What the journal keeps about money when a session begins."""
        told: Fact = {"forecast": ahead.to_dict()}
        if limits.budget_usd is not None:
            told["budget_usd"] = limits.budget_usd
        if limits.deadline_s is not None:
            told["deadline_s"] = limits.deadline_s
        if self.place is not None:
            told["on"] = self.place.provider.name
        return told

    def run(self, stack: ExitStack, notes: Notes, crew: Crew | None, used: set[str], limits: Limits) -> None:
        """Follow the plan on workers that are there, that are started here, or on rented machines."""
        if self.place is None:
            crew = crew or stack.enter_context(crew_for(self.plan.fleet, used, None, self.name))
            self._session(crew, notes, limits, 0.0)
            return
        needed = set(self.terms.prices)
        earlier_usd = self.earlier_usd  # before the machines of this session are on the bill
        try:
            with crew_on_machines(
                self.plan.fleet,
                needed,
                self.place,
                self.manner.directory,
                self.name,
                self._ceilings(limits),
                self._most_s(limits, earlier_usd),
            ) as rented:
                if self.manner.replay is None:
                    Ground(self.manner.directory, rented).check_programs(self.workflow)
                self._session(rented, notes, limits, earlier_usd)
        except BootTooLong:
            notes.write(self._stopped_at_boot(limits, earlier_usd))
        finally:
            notes.write(bill_fact(self.place.bill(self.name), [*self.agenda.earlier, *notes.facts]))

    def _ceilings(self, limits: Limits) -> dict[str, float]:
        """With a budget, no machine is launched at a higher price than was counted on."""
        if limits.budget_usd is None:
            return {}
        return {vm: price.usd_per_h for vm, price in self.terms.prices.items()}

    def check_payable(self, limits: Limits) -> None:
        """BadInput if the money left does not pay for the shortest use of the machines: none is ordered."""
        if self.place is None or limits.budget_usd is None or not self.agenda.reasons:
            return
        least_usd = due_usd(self._holds(), self.agenda.offset_s + self.terms.give_back.high_s)
        left_usd = limits.budget_usd - self.earlier_usd
        if least_usd > left_usd + ROUNDING_USD:
            count, enough = len(self.terms.prices), rounded_up(self.forecast().cost_usd.high)
            raise BadInput(
                f"To rent {'1 machine' if count == 1 else f'{count} machines'} costs "
                f"{format_money(least_usd)} at least, give-back included, and "
                f"{format_money(max(left_usd, 0.0))} of the budget of {format_money(limits.budget_usd)} are "
                f"left; give --budget {format_money(enough)}."
            )

    def _holds(self) -> list[Hold]:
        """The machines of this session, as if they were ordered now."""
        return [Hold(vm, price, self.agenda.offset_s) for vm, price in self.terms.prices.items()]

    def _most_s(self, limits: Limits, earlier_usd: float) -> float:
        """For how long the machines may be there, from their order on."""
        now_s = self.agenda.offset_s
        return limits.left(self._holds(), earlier_usd, now_s, self.terms.give_back.high_s)[0]

    def _stopped_at_boot(self, limits: Limits, earlier_usd: float) -> Fact:
        """Money or time was over before the machines were up; the bill that follows tells what they cost."""
        assert self.place is not None
        why: Limit = "budget" if limits.budget_usd is not None else "deadline"
        meter = PlanMeter(self.plan.fleet, self.world, (), ())
        meter.earlier_usd = max(self.place.bill(self.name).total_usd(), earlier_usd)
        keeper = Keeper(limits, meter, self.foresee)
        return keeper.stop_fact(why, self.known, self._queues(), self.agenda.earlier, self.agenda.offset_s)

    def _session(self, crew: Crew, notes: Notes, limits: Limits, earlier_usd: float) -> None:
        keeper = Keeper(limits, self._meter(crew, earlier_usd), self.foresee)
        Session(self.plan, self.workflow, self.manner, self.folder, notes, crew, self.agenda, keeper).run()

    def _meter(self, crew: Crew, earlier_usd: float) -> Meter:
        notice_s = crew.tick_s / (self.manner.replay or 1.0)
        if self.place is not None:
            return LeaseMeter(crew.leases, earlier_usd, self.terms.give_back.high_s + notice_s)
        return PlanMeter(self.plan.fleet, self.world, self._planned_vms(), self.agenda.earlier, notice_s)

    def _planned_vms(self) -> set[str]:
        return {lane[0] for lane, queue in self._queues().items() if queue}

    def _queues(self) -> dict[Lane, list[str]]:
        return planned_queues(self.plan, self.workflow, self.agenda.reasons)

    def _uncertainty(self, names: Iterable[str], facts: Iterable[Fact]) -> Uncertainty:
        """How sure the estimates of activations are: as learned ones if all their programs ran before."""
        if self.manner.replay is not None:
            return Uncertainty()  # a rehearsal sleeps what was planned
        if self.uncertainty is not None:
            return self.uncertainty
        if any(activation.runtimes_s for activation in self.workflow.activations):
            return LEARNED
        ran = {self.workflow[name].program for name, _, _ in measured_s(facts)}
        return LEARNED if {self.workflow[name].program for name in names} <= ran else GUESSED
