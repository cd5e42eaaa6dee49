"""Forecasts of executions against what these really cost and took: how often the 90 % interval holds.

    python benchmarks/execute_forecasts.py         # made-up workflows: docs/explanation/benchmarks.md
    PRUDENT_DATA=/path/to/data python benchmarks/execute_forecasts.py traces    # recorded ones (WfInstances)

Every execution is a whole session of `prudent execute` on a simulated clock: machines boot and are paid from
their order, commands take their true times, machines are given back when their part is done, adaptive plans
plan anew. The forecast before it knows the estimates, the prices, and a model of the errors that was fitted
to other executions than those that are judged:

made-up: estimates of programs, speeds of machines, single commands, boots and failures err by distributions
    that are not those of the forecast (gamma, two-sided exponential). 120 executions teach, 200 others are
    judged.
traces: run times are those that were recorded. Estimates of an execution are the means of its application's
    other executions; the model of the errors is fitted to all executions but the one judged, whose run times
    nothing of it has seen. 20 executions on 10 fleets each.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from prudent.cloud.leases.machine_delays import Delay
from prudent.cloud.leases.machine_delays import fit_delay as fitted_delay
from prudent.core.money import Price
from prudent.core.seeds import rng_for
from prudent.workflows import Fleet, Plan, Workflow, World, schedule
from prudent.workflows.execute.forecast import Forecast, Uncertainty, forecast
from prudent.workflows.execute.learning import Residual, fit_uncertainty
from prudent.workflows.execute.limit_guard import LimitGuard
from prudent.workflows.execute.money import RentalTerms
from prudent.workflows.execute.options import RunLimits
from prudent.workflows.execute.run import planned_queues
from prudent.workflows.formats.generate import generate
from prudent.workflows.simulation.problem import build_problem

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "workflows" / "execute"))
from simulated import SimulatedCostMeter, SimulatedVmWorkers, execute_simulated

from tables import data_folder

WORLD = World(bandwidth_mb_s=15)
FLEETS = (
    "2*m3.medium", "4*m3.medium", "8*m3.medium", "m3.2xlarge", "2*m3.medium,m3.2xlarge", "2*m3.xlarge",
    "4*m3.large", "2*m3.2xlarge", "m3.medium,m3.large,m3.xlarge", "6*m3.medium,m3.2xlarge",
)  # fmt: skip
SHAPES = ("montage", "cybershake", "epigenomics", "inspiral", "sipht")
FAMILIES = ("blast", "cycles", "epigenomics", "montage", "soykb")
BOOT_S, GIVE_BACK_S = 60.0, 10.0
LEAST_S = 0.01
USUAL = Uncertainty(bias=0.0, run=0.3, program=0.4, machine=0.08, activation=0.3)
"""Where a model of the errors begins; nobody has looked at any execution for it."""


@dataclass(frozen=True)
class Case:
    """One execution: a plan made with estimates, and what really happens."""

    name: str
    plan: Plan
    workflow: Workflow
    true_s: Mapping[str, float]
    slower: Mapping[str, float]
    fails: frozenset[str]
    boot_s: float
    give_back_s: float

    @property
    def prices(self) -> dict[str, Price]:
        return {
            vm.name: Price(vm.usd_per_h, "", "plan", minimum_s=vm.minimum_s) for vm in self.plan.fleet.vms
        }

    def residuals(self) -> list[Residual]:
        """What this execution teaches about estimates."""
        found = []
        for each in self.workflow.activations:
            expected_s = max(each.runtime_s, LEAST_S)
            error = math.log(max(self.true_s[each.id], LEAST_S) / expected_s)
            found.append(Residual(each.program, error, expected_s))
        return found

    def execute(self) -> tuple[float, float, bool]:
        """What it really costs and takes, by the simulated machines' own count."""
        problem = build_problem(self.workflow, self.plan.fleet, WORLD)
        index, speed = self.workflow.index, {vm.name: vm.speed for vm in self.plan.fleet.vms}

        def truth(name: str, vm: str, attempt: int) -> tuple[float, bool]:
            staged_s = float(problem.tasks[index[name]]["stage_s"])
            whole_s = staged_s + self.true_s[name] / speed[vm] * self.slower[vm]
            failing = name in self.fails and attempt == 1
            return (0.5 * whole_s, False) if failing else (whole_s, True)

        used = {assignment.vm for assignment in self.plan.assignments.values()}
        prices = {vm: price for vm, price in self.prices.items() if vm in used}
        workers = SimulatedVmWorkers(prices, truth, self.boot_s, self.give_back_s)
        guard = LimitGuard(RunLimits(), SimulatedCostMeter(workers, GIVE_BACK_S), _no_forecast)
        facts = execute_simulated(self.plan, self.workflow, workers, guard)
        ended = [fact for fact in facts if fact["fact"] == "ended"]
        done = sum(fact["outcome"] == "done" for fact in ended) == len(self.workflow)
        return workers.cost_usd(), max(fact["finish_s"] for fact in ended), done

    def forecast(self, model: Uncertainty, boot: Delay, give_back: Delay, seed: int) -> Forecast:
        queues = planned_queues(self.plan, self.workflow, self.workflow.order)
        terms = RentalTerms(self.prices, boot, give_back)
        return forecast(self.workflow, self.plan.fleet, WORLD, queues, terms, model, self.plan.policy, seed)


def _no_forecast(*_: object) -> Forecast:
    raise AssertionError("no limit, no stop")


def case(name: str, workflow: Workflow, true_s: Mapping[str, float], fleet: str, seed: int) -> Case:
    """A plan for the estimates, adaptive for every second, on machines that differ from their promise."""
    rng = rng_for(seed, "machines", name)
    machines = Fleet.parse(fleet)
    plan = schedule(workflow, machines, WORLD, scheduler="heft")
    if seed % 2:
        plan = replace(plan, policy="frugal")
    slower = {vm.name: float(rng.gamma(200, 1 / 200)) for vm in machines.vms}
    fails = frozenset(each for each in workflow.order if rng.random() < 0.005)
    boot_s, give_back_s = BOOT_S * float(rng.gamma(12, 1 / 12)), GIVE_BACK_S * float(rng.gamma(12, 1 / 12))
    return Case(name, plan, workflow, true_s, slower, fails, boot_s, give_back_s)


def made_up(seed: int) -> Case:
    """A made-up workflow whose estimates err in every way."""
    rng = rng_for(seed, "made up")
    shape = SHAPES[seed % len(SHAPES)]
    workflow = generate(shape, int(rng.integers(24, 90)), seed=seed)
    longer = {each.program: float(rng.gamma(12, 1.1 / 12)) for each in workflow.activations}
    whole = float(rng.gamma(80, 1.05 / 80))
    true_s = {
        each.id: each.runtime_s * whole * longer[each.program] * math.exp(float(rng.laplace(0.0, 0.18)))
        for each in workflow.activations
    }
    return case(f"{shape} {seed}", workflow, true_s, FLEETS[int(rng.integers(len(FLEETS)))], seed)


def program_of(name: str) -> str:
    """A task's program without its number."""
    return re.sub(r"[-_]?(ID)?[0-9].*$", "", name.partition(".")[0]) or name


def recorded(folder: Path) -> dict[str, dict[str, Workflow]]:
    """The recorded executions by application; run times are the true ones."""
    found: dict[str, dict[str, Workflow]] = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        family = path.stem.partition("-")[0]
        if family in FAMILIES:
            read = Workflow.read(path)
            named = tuple(replace(each, program=program_of(each.program)) for each in read.activations)
            found[family][path.stem] = replace(read, activations=named)
    return found


def estimated(real: Workflow, others: Sequence[Workflow]) -> Workflow:
    """The same workflow with the mean run times of other executions."""
    means: dict[str, list[float]] = defaultdict(list)
    for other in others:
        for each in other.activations:
            means[each.program].append(each.runtime_s)
    every = fmean(value for values in means.values() for value in values)
    return replace(
        real,
        activations=tuple(
            replace(
                each, runtime_s=max(fmean(means[each.program]) if each.program in means else every, LEAST_S)
            )
            for each in real.activations
        ),
    )


def errors(real: Workflow, others: Sequence[Workflow]) -> list[Residual]:
    """What an execution teaches about estimates that others gave."""
    guessed = estimated(real, others)
    return [
        Residual(g.program, math.log(max(r.runtime_s, LEAST_S) / g.runtime_s), g.runtime_s)
        for r, g in zip(real.activations, guessed.activations, strict=True)
    ]


def traces(folder: Path) -> Iterator[tuple[Case, Uncertainty]]:
    """Every recorded execution on every fleet, with a model that has seen nothing of it."""
    known = recorded(folder)
    for executions in known.values():
        for at, (name, real) in enumerate(executions.items()):
            taught = []
            for siblings in known.values():
                for each, workflow in siblings.items():
                    rest = [one for key, one in siblings.items() if key not in (each, name)]
                    if each != name and rest:
                        taught.append(errors(workflow, rest))
            model = fit_uncertainty(taught, USUAL)
            guessed = estimated(real, [one for key, one in executions.items() if key != name])
            true_s = {each.id: each.runtime_s for each in real.activations}
            for number, fleet in enumerate(FLEETS):
                yield case(f"{name} on {fleet}", guessed, true_s, fleet, at + number), model


def delays(seed: int, count: int) -> tuple[Delay, Delay]:
    """Boot and give-back as so many other executions measured them."""
    rng = rng_for(seed, "delays")
    draws = rng.gamma(12, 1 / 12, (2, count))
    return fitted_delay(BOOT_S * draws[0], BOOT_S), fitted_delay(GIVE_BACK_S * draws[1], GIVE_BACK_S)


def judge(cases: Sequence[tuple[Case, Uncertainty]], verbose: bool) -> tuple[float, float]:
    """How often cost and makespan lie within their intervals; every execution is told if wanted."""
    boot, give_back = delays(1, 120)
    inside: dict[str, list[bool]] = defaultdict(list)
    widths, off = [], []
    for at, (each, model) in enumerate(cases):
        cost_usd, makespan_s, done = each.execute()
        ahead = each.forecast(model, boot, give_back, seed=at)
        if not done:
            raise AssertionError(f"{each.name} did not finish")
        inside["cost"].append(cost_usd in ahead.cost_usd)
        inside["makespan"].append(makespan_s in ahead.makespan_s)
        inside[each.name.partition(" ")[0].partition("-")[0]].append(cost_usd in ahead.cost_usd)
        widths.append(ahead.cost_usd.high / ahead.cost_usd.low)
        off.append(math.log(cost_usd / ahead.cost_usd.expected))
        if verbose:
            mark = " " if inside["cost"][-1] else "!"
            print(f"{mark} {each.name:45} ${cost_usd:.4f}, forecast {ahead.cost_text}")
    for name, hits in inside.items():
        print(f"{name:12} {fmean(hits):6.1%} of {len(hits)} within the 90 % interval")
    print(f"the interval's high end is {float(np.median(widths)):.2f} times its low end (median); "
          f"real cost / expected cost {math.exp(fmean(off)):.3f}")  # fmt: skip
    return fmean(inside["cost"]), fmean(inside["makespan"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?", default="made-up", choices=("made-up", "traces"))
    parser.add_argument("--judged", type=int, default=200)
    parser.add_argument("--taught", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0, help="other made-up workflows")
    parser.add_argument("--verbose", action="store_true")
    said = parser.parse_args()
    if said.source == "traces":
        found = list(traces(data_folder("wfinstances") / "wfinstances"))
    else:
        model = fit_uncertainty(
            [made_up(10**6 + 1000 * said.seed + seed).residuals() for seed in range(said.taught)], USUAL
        )
        print(f"model fitted to {said.taught} other executions: {model}")
        found = [(made_up(1000 * said.seed + at), model) for at in range(said.judged)]
    cost, _ = judge(found, said.verbose)
    raise SystemExit(0 if 0.85 <= cost <= 0.95 else 1)


if __name__ == "__main__":
    main()
