"""Forecasts by the simulator: the rest of a workflow played in many worlds, before anything is rented."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from prudent.cloud.leases.delays import AT_ONCE, Delay
from prudent.core.money import Price
from prudent.core.seeds import rng_for
from prudent.workflows.distribution import Distribution
from prudent.workflows.execute.dispatch import Lane
from prudent.workflows.execute.forecast import Forecast, Interval
from prudent.workflows.execute.uncertainty import Uncertainty
from prudent.workflows.fleet import Fleet
from prudent.workflows.following import follow
from prudent.workflows.front import Policy
from prudent.workflows.problem import Problem, bring_together, weather_of
from prudent.workflows.simulator import Placement, Trace
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

WORLDS = 400
_LEAST_WORLDS = 60
_MOST_STEPS = 400_000
"""Large workflows are simulated less often: so many activations in all."""


@dataclass(frozen=True)
class Terms:
    """How machines are paid, by the name of the VM: prices, and the time they take to come and go.

    All are ordered together; `boot` is the time until the last is up and work begins. Where none is really
    rented, a VM may be paid from its first use on instead (`from_first_use`), or go on from an earlier
    session: `held_s` is for how long before, and `paid_usd` what of its bill was paid then.
    """

    prices: Mapping[str, Price]
    boot: Delay = AT_ONCE
    give_back: Delay = AT_ONCE
    from_first_use: bool = False
    held_s: Mapping[str, float] = field(default_factory=dict)
    paid_usd: Mapping[str, float] = field(default_factory=dict)


def forecast(
    workflow: Workflow,
    fleet: Fleet,
    world: World,
    queues: Mapping[Lane, Sequence[str]],
    terms: Terms,
    uncertainty: Uncertainty,
    policy: Policy = "static",
    seed: int = 0,
    worlds: int = WORLDS,
) -> Forecast:
    """Play what `queues` hold in many worlds, each with its own errors of the estimates.

    VMs without a queue are not rented. The interval is that of the simulated outcomes from the 5th to the
    95th in a hundred.
    """
    left = _only(workflow, {name for queue in queues.values() for name in queue})
    problem = bring_together(left, fleet, replace(world, boot_s=Distribution("constant", 0.0)))
    placement = _placement(left, fleet, queues)
    rented = {lane[0] for lane, queue in queues.items() if queue}
    programs = [activation.program for activation in left.activations]
    count = max(min(worlds, _MOST_STEPS // len(left)), _LEAST_WORLDS)
    costs, makespans = np.empty(count), np.empty(count)
    for at in range(count):
        rng = rng_for(seed, "forecast", at)
        trace = _played(problem, world, placement, uncertainty, programs, policy, rng, seed + at)
        up_s = float(terms.boot.draw(rng, 1)[0])
        makespans[at] = up_s + trace.makespan_s
        costs[at] = _cost_usd(fleet, rented, terms, trace, up_s, rng)
    return Forecast(Interval.of(costs), Interval.of(makespans))


def _only(workflow: Workflow, names: Collection[str]) -> Workflow:
    if len(names) == len(workflow):
        return workflow
    kept = tuple(activation for activation in workflow.activations if activation.id in names)
    edges = tuple(edge for edge in workflow.edges if edge[0] in names and edge[1] in names)
    return Workflow(workflow.name, kept, edges, workflow.gathered)


def _placement(workflow: Workflow, fleet: Fleet, queues: Mapping[Lane, Sequence[str]]) -> Placement:
    """Queues as arrays; the order within a lane is kept, parents come first overall."""
    at_lane = {(fleet.vms[vm].name, slot): lane for lane, (vm, slot) in enumerate(fleet.lanes)}
    lane = np.empty(len(workflow), dtype=np.int64)
    order = []
    for place, queue in queues.items():
        for name in queue:
            lane[workflow.index[name]] = at_lane[place]
            order.append(workflow.index[name])
    return Placement(lane, np.array(order, dtype=np.int64))


def _played(
    problem: Problem,
    world: World,
    placement: Placement,
    uncertainty: Uncertainty,
    programs: Sequence[str],
    policy: Policy,
    rng: np.random.Generator,
    seed: int,
) -> Trace:
    longer, faster = uncertainty.factors(rng, programs, len(problem.vms))
    weather = weather_of(problem, problem.world, seed)
    vms = weather.vms.copy()
    vms["speed"] *= faster
    vms["boot_s"] = 0.0
    real = replace(problem, run_s=problem.run_s * longer[:, None])
    return follow(real, replace(weather, vms=vms), placement, policy)


def _cost_usd(
    fleet: Fleet, rented: Collection[str], terms: Terms, trace: Trace, up_s: float, rng: np.random.Generator
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
