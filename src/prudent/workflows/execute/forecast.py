"""Forecasts of an execution's cost and makespan, with 90 % intervals, before anything is rented.

The rest of the workflow is simulated in many worlds. `Uncertainty` tells how far run times are from their
estimates. For an activation of program p on machine v, in one execution,

    log(measured / estimated) = bias + run + program p + machine v + activation

where each part but the bias is normal with mean 0: `run` is one draw for the whole execution, `program` one
for all activations of a program, and so on. What is common to many activations does not average out, so the
parts matter more than their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.core.units import format_duration, format_money
from prudent.workflows.execute.dispatch import Lane, placement_of
from prudent.workflows.execute.money import RentalTerms
from prudent.workflows.fleet import Fleet
from prudent.workflows.plan import Policy
from prudent.workflows.simulation.compiled import Floats
from prudent.workflows.simulation.problem import Placement, SchedulingProblem, build_problem, sample_world
from prudent.workflows.simulation.simulator import RunTrace, follow_placement
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import Distribution, World

_TAIL = 0.05


@dataclass(frozen=True)
class Interval:
    """The expected value and the bounds of a 90 % interval.

    >>> Interval(1.0, 2.0, 4.0).plus(1.0)
    Interval(low=2.0, expected=3.0, high=5.0)
    """

    low: float
    expected: float
    high: float

    @classmethod
    def of(cls, drawn: NDArray[np.float64]) -> Interval:
        low, high = np.quantile(drawn, (_TAIL, 1.0 - _TAIL))
        return cls(float(low), float(drawn.mean()), float(high))

    def plus(self, known: float) -> Interval:
        """With what is known already."""
        return Interval(self.low + known, self.expected + known, self.high + known)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_dict(self) -> dict[str, float]:
        return {"low": self.low, "expected": self.expected, "high": self.high}


@dataclass(frozen=True)
class Forecast:
    """Cost and makespan, each with its 90 % interval."""

    cost_usd: Interval
    makespan_s: Interval

    def plus(self, usd: float, seconds: float) -> Forecast:
        """The forecast with what was paid and the time that passed before."""
        return Forecast(self.cost_usd.plus(usd), self.makespan_s.plus(seconds))

    @property
    def cost_text(self) -> str:
        """The cost in words."""
        return _text(self.cost_usd, format_money)

    @property
    def makespan_text(self) -> str:
        """The makespan in words."""
        return _text(self.makespan_s, format_duration)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `from_dict` reads them."""
        return {"cost_usd": self.cost_usd.to_dict(), "makespan_s": self.makespan_s.to_dict()}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Forecast:
        return cls(Interval(**said["cost_usd"]), Interval(**said["makespan_s"]))


def _text(interval: Interval, say: Callable[[float], str]) -> str:
    return f"{say(interval.expected)} (90 %: {say(interval.low)} to {say(interval.high)})"


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of the parts of log(measured / estimated), and its bias."""

    bias: float = 0.0
    run: float = 0.0
    program: float = 0.0
    machine: float = 0.0
    activation: float = 0.0

    def factors(self, rng: np.random.Generator, programs: Sequence[str], vms: int) -> tuple[Floats, Floats]:
        """One draw: factors of every activation's run time and of every machine's speed."""
        own = {name: rng.normal(0.0, self.program) for name in dict.fromkeys(programs)}
        common = self.bias + rng.normal(0.0, self.run)
        errors = common + np.array([own[name] for name in programs])
        errors += rng.normal(0.0, self.activation, len(programs))
        return np.exp(errors), np.exp(-rng.normal(0.0, self.machine, vms))


GUESSED = Uncertainty(bias=-0.2, run=0.15, program=0.6, machine=0.08, activation=0.5)
"""For run times that the user estimated, or that nominal speeds imply: as 20 recorded executions of
five applications (WfInstances) differ from estimates that are means over other inputs of the application."""


LEARNED = Uncertainty(bias=0.0, run=0.08, program=0.1, machine=0.05, activation=0.15)
"""For run times learned from executions of the same workflow: a little more than four recorded ones of one
input differ from each other."""


WORLDS = 400


_MIN_WORLDS = 60


_MAX_STEPS = 400_000
"""At most so many activations are simulated in all: large workflows in fewer worlds."""


def forecast(
    workflow: Workflow,
    fleet: Fleet,
    world: World,
    queues: Mapping[Lane, Sequence[str]],
    terms: RentalTerms,
    uncertainty: Uncertainty,
    policy: Policy = "static",
    seed: int = 0,
    worlds: int = WORLDS,
) -> Forecast:
    """Simulate the activations of `queues` in many worlds, each with its own errors of the estimates.

    VMs without a queue are not rented. The interval is that of the simulated outcomes from the 5th to the
    95th in a hundred.
    """
    names = {name for queue in queues.values() for name in queue}
    left = workflow
    if len(names) < len(workflow):
        left = workflow.part([activation for activation in workflow.activations if activation.id in names])
    problem = build_problem(left, fleet, replace(world, boot_s=Distribution("constant", 0.0)))
    placement = placement_of(left, fleet, queues)
    rented = {lane[0] for lane, queue in queues.items() if queue}
    programs = [activation.program for activation in left.activations]
    count = max(min(worlds, _MAX_STEPS // len(left)), _MIN_WORLDS)
    costs, makespans = np.empty(count), np.empty(count)
    for at in range(count):
        rng = rng_for(seed, "forecast", at)
        trace = _simulated(problem, world, placement, uncertainty, programs, policy, rng, seed + at)
        up_s = float(terms.boot.draw(rng, 1)[0])
        makespans[at] = up_s + trace.makespan_s
        costs[at] = _cost_usd(fleet, rented, terms, trace, up_s, rng)
    return Forecast(Interval.of(costs), Interval.of(makespans))


def _simulated(
    problem: SchedulingProblem,
    world: World,
    placement: Placement,
    uncertainty: Uncertainty,
    programs: Sequence[str],
    policy: Policy,
    rng: np.random.Generator,
    seed: int,
) -> RunTrace:
    longer, faster = uncertainty.factors(rng, programs, len(problem.vms))
    sample = sample_world(problem, problem.world, seed)
    vms = sample.vms.copy()
    vms["speed"] *= faster
    vms["boot_s"] = 0.0
    real = replace(problem, run_s=problem.run_s * longer[:, None])
    return follow_placement(real, replace(sample, vms=vms), placement, policy)


def _cost_usd(
    fleet: Fleet,
    rented: Collection[str],
    terms: RentalTerms,
    trace: RunTrace,
    up_s: float,
    rng: np.random.Generator,
) -> float:
    """Each machine from its order (or first use) to its last use and its give-back."""
    gone_s = terms.give_back.draw(rng, len(fleet.vms))
    total_usd = 0.0
    for at, vm in enumerate(fleet.vms):
        last_s = float(trace.vms[at]["last_s"])
        if vm.name not in rented and last_s < 0:
            continue
        first_s = max(float(trace.vms[at]["from_s"]), 0.0) if terms.from_first_use else 0.0
        since_s = -terms.held_s[vm.name] if vm.name in terms.held_s else first_s
        until_s = up_s + max(last_s, 0.0) + float(gone_s[at])
        bill_usd = terms.prices[vm.name].cost_usd(max(until_s - since_s, 0.0))
        total_usd += bill_usd - terms.paid_usd.get(vm.name, 0.0)
    return total_usd
