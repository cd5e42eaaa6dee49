"""The prudent scheduler against the classic ones: makespan, unknown worlds, cost under a deadline, optimum.

PRUDENT_DATA=/path/to/data python benchmarks/workflows_prudent.py [makespan] [worlds] [cost] [optimum]
    [--traces Montage_25,…] [--large 1,3] [--evaluations N] [--worlds 200] [--graphs 500]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from prudent.workflows import Activation, Fleet, Plan, Vm, Workflow, World, schedule
from prudent.workflows.schedulers.bounds import lower_bounds
from prudent.workflows.scheduling import evaluate
from workflows_makespan import FLEETS, TRACES, geometric_mean, trace_folder

BASELINES = ("fcfs", "round-robin", "min-min", "max-min", "mct", "data-aware", "cpop", "peft", "heft")
UNKNOWN = World(bandwidth_mb_s=15, speed="lognormal(1, 0.3)", failure_rate=0.02)
CALM = World(bandwidth_mb_s=15)
SLACK = 1.25
ROUNDING_S = 1e-6


class Table:
    """Ratios by column and cell, shown at the end as geometric means."""

    def __init__(self) -> None:
        self.columns: dict[str, list[float]] = {}

    def add(self, **ratios: float) -> str:
        for name, ratio in ratios.items():
            self.columns.setdefault(name, []).append(ratio)
        return "  ".join(f"{name} {ratio:.4f}" for name, ratio in ratios.items())

    def show(self, title: str) -> None:
        cells = len(next(iter(self.columns.values()), []))
        means = "  ".join(
            f"{name} {geometric_mean(values):.4f} (worst {max(values):.4f})"
            for name, values in self.columns.items()
        )
        print(f"{title}, geometric mean over {cells} cells: {means}", flush=True)


def planned(
    workflow: Workflow, fleet: Fleet, options: dict[str, object], seed: int, spent_s: list[float]
) -> Plan:
    start = time.process_time()
    plan = schedule(workflow, fleet, CALM, scheduler="prudent", options=options, seed=seed)
    spent_s.append(time.process_time() - start)
    return plan


class Cells:
    """The parts of the benchmark that go through traces and fleets."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.effort = {} if arguments.evaluations is None else {"evaluations": arguments.evaluations}
        self.makespans, self.worlds, self.costs = Table(), Table(), Table()
        self.spent_s: list[float] = []
        self.worse: list[str] = []
        self.late: list[str] = []

    def visit(self, cell: str, workflow: Workflow, fleet: Fleet) -> None:
        parts = self.arguments.parts
        classic = {name: schedule(workflow, fleet, CALM, scheduler=name) for name in BASELINES}
        if "makespan" in parts or "worlds" in parts:
            plan = planned(workflow, fleet, dict(self.effort), self.arguments.seed, self.spent_s)
            if "makespan" in parts:
                self.makespan(cell, workflow, plan, classic)
            if "worlds" in parts:
                self.unknown(cell, workflow, plan, classic["heft"])
        if "cost" in parts:
            self.cost(cell, workflow, classic["heft"])

    def makespan(self, cell: str, workflow: Workflow, plan: Plan, classic: dict[str, Plan]) -> None:
        bound_s = lower_bounds(workflow, plan.fleet, CALM).tight_s
        best_s, heft_s = min(each.makespan_s for each in classic.values()), classic["heft"].makespan_s
        ratios = self.makespans.add(
            over_heft=plan.makespan_s / heft_s,
            over_best=plan.makespan_s / best_s,
            over_tight=plan.makespan_s / bound_s,
            heft_over_tight=heft_s / bound_s,
        )
        if plan.makespan_s > best_s + ROUNDING_S:
            self.worse.append(cell)
        print(f"{cell} {plan.makespan_s:10.1f} s  {ratios}  {self.spent_s[-1]:.1f} CPU s", flush=True)

    def unknown(self, cell: str, workflow: Workflow, plan: Plan, heft: Plan) -> None:
        ours = evaluate(plan, workflow, plan.fleet, UNKNOWN, self.arguments.worlds)
        theirs = evaluate(heft, workflow, plan.fleet, UNKNOWN, self.arguments.worlds)
        ratios = self.worlds.add(mean=ours.mean_s / theirs.mean_s, p95=ours.p95_s / theirs.p95_s)
        print(f"{cell} unknown worlds, over heft: {ratios}", flush=True)

    def cost(self, cell: str, workflow: Workflow, heft: Plan) -> None:
        deadline_s = SLACK * heft.makespan_s
        options = {**self.effort, "objective": "cost", "deadline_s": deadline_s, "front": 0}
        cheap = planned(workflow, heft.fleet, options, self.arguments.seed, self.spent_s)
        if cheap.makespan_s > deadline_s:
            self.late.append(cell)
        ratios = self.costs.add(cost=cheap.cost_usd / heft.cost_usd, time=cheap.makespan_s / heft.makespan_s)
        print(f"{cell} cheapest by 1.25 heft: {ratios}  {self.spent_s[-1]:.1f} CPU s", flush=True)

    def show(self) -> None:
        if self.makespans.columns:
            self.makespans.show("makespan")
            print(f"worse than the best baseline in {len(self.worse)} cells {self.worse}")
        if self.worlds.columns:
            self.worlds.show(f"{self.arguments.worlds} unknown worlds, prudent / heft")
        if self.costs.columns:
            self.costs.show("cost and time over heft's")
            print(f"late in {len(self.late)} cells {self.late}")
        mean_s = sum(self.spent_s) / len(self.spent_s)
        print(f"planning: {max(self.spent_s):.1f} CPU s at most, {mean_s:.1f} on average")


def cells(arguments: argparse.Namespace) -> None:
    """One line per cell and the geometric means."""
    table = Cells(arguments)
    traces = arguments.traces.split(",") if arguments.traces else TRACES
    larges = [int(word) for word in arguments.large.split(",")] if arguments.large else list(FLEETS.values())
    for trace in traces:
        if (trace_folder() / f"{trace}.xml").exists():
            workflow = Workflow.read(trace_folder() / f"{trace}.xml")
            if len(workflow) < arguments.least:
                continue
            for large in larges:
                fleet = Fleet.parse(f"8*m3.medium,{large}*m3.2xlarge", slots="vm")
                table.visit(f"{trace:16} {large:3}", workflow, fleet)
    table.show()


def random_problem(rng: np.random.Generator) -> tuple[Workflow, Fleet]:
    """A DAG of 2 to 8 activations and 1 to 3 VMs of different speeds."""
    size, machines = int(rng.integers(2, 9)), int(rng.integers(1, 4))
    edges = [(f"t{a}", f"t{b}") for b in range(size) for a in range(b) if rng.random() < 0.3]
    activations = tuple(Activation(f"t{at}", runtime_s=float(rng.integers(1, 30))) for at in range(size))
    vms = tuple(Vm(f"v{at}", f"m{at}", float(rng.choice([500, 1000, 2000, 4156]))) for at in range(machines))
    return Workflow("random", activations, tuple(edges)), Fleet(vms)


def optimum_s(workflow: Workflow, fleet: Fleet) -> float:
    """The best makespan over all placements and all orders, by branch and bound."""
    run_s = [[a.runtime_s / vm.speed for vm in fleet.vms] for a in workflow.activations]
    index = workflow.index
    parents = [[index[p] for p in workflow.parents[a.id]] for a in workflow.activations]
    tail_s = [0.0] * len(workflow)
    for name in reversed(workflow.order):
        behind = [tail_s[index[child]] for child in workflow.children[name]]
        tail_s[index[name]] = min(run_s[index[name]]) + max(behind, default=0.0)
    best = sum(min(row) for row in run_s) * 10 + 1e9

    def extend(finish: dict[int, float], free: list[float], after_s: float) -> None:
        nonlocal best
        if len(finish) == len(run_s):
            best = min(best, max(finish.values()))
            return
        for task in range(len(run_s)):
            if task in finish or any(parent not in finish for parent in parents[task]):
                continue
            ready_s = max((finish[parent] for parent in parents[task]), default=0.0)
            for lane in range(len(free)):
                start_s = max(ready_s, free[lane])
                # Every plan can be listed by start, so a list that goes back in time is met elsewhere.
                least_s = start_s + run_s[task][lane] + tail_s[task] - min(run_s[task])
                if start_s < after_s or least_s >= best:
                    continue
                until = free[lane]
                free[lane] = finish[task] = start_s + run_s[task][lane]
                extend(finish, free, start_s)
                del finish[task]
                free[lane] = until

    extend({}, [0.0] * len(fleet), 0.0)
    return best


def optimum(graphs: int) -> None:
    rng = np.random.default_rng(1)
    ratios: dict[str, list[float]] = {"prudent": [], "heft": []}
    spent_s = 0.0
    for _ in range(graphs):
        workflow, fleet = random_problem(rng)
        best_s = optimum_s(workflow, fleet)
        for name, row in ratios.items():
            start = time.process_time()
            row.append(schedule(workflow, fleet, World(), scheduler=name).makespan_s / best_s)
            spent_s += time.process_time() - start if name == "prudent" else 0.0
    for name, row in ratios.items():
        hits = sum(ratio < 1 + 1e-9 for ratio in row)
        print(
            f"{name}: {100 * (np.mean(row) - 1):.3f} % above the optimum on average, {hits} of {graphs} hit"
        )
    print(f"prudent: {spent_s / graphs:.3f} CPU s a graph")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["makespan", "worlds", "cost", "optimum"])
    parser.add_argument("--traces")
    parser.add_argument("--large")
    parser.add_argument("--least", type=int, default=25, help="leave out traces with fewer activations")
    parser.add_argument("--evaluations", type=int)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    if set(arguments.parts) - {"optimum"}:
        cells(arguments)
    if "optimum" in arguments.parts:
        optimum(arguments.graphs)


if __name__ == "__main__":
    main()
