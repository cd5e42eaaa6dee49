"""How fast workflows are read, simulated, learned and planned.

PRUDENT_DATA=/path/to/data python benchmarks/workflows_speed.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from prudent.workflows import Fleet, Workflow, World, schedule, simulate
from prudent.workflows.formats.generate import generate
from prudent.workflows.schedulers.registry import scheduler_named
from prudent.workflows.simulation.problem import build_problem
from prudent.workflows.simulation.replay import replay
from workflows_makespan import trace_folder

SIZES = (1_000, 10_000, 100_000)


def cpu_s(work: Callable[[], object], repeats: int = 5) -> float:
    """Median CPU seconds of a piece of work, after one run to warm up."""
    work()
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return statistics.median(spent)


def main() -> None:
    path = trace_folder() / "Montage_1000.xml"
    print(f"parsing Montage_1000: {cpu_s(lambda: Workflow.read(path)):.3f} s")
    workflow = Workflow.read(path)
    fleet, world = Fleet.parse("8*m3.medium,3*m3.2xlarge", slots="vm"), World(bandwidth_mb_s=15)
    n = len(workflow)

    def hundred_runs() -> None:
        for _ in range(100):
            simulate(workflow, fleet, world, "fcfs")

    print(f"simulate(fcfs): {100 * n / cpu_s(hundred_runs):,.0f} activations per CPU second")
    problem = build_problem(workflow, fleet, world)
    placement = scheduler_named("heft").propose(problem, 0).placement
    run, free_s = problem.run_arrays(), np.zeros(len(problem.lanes))

    def thousand_replays() -> None:
        for _ in range(1000):
            replay(run, placement.lane, placement.order, free_s)

    print(f"replaying a plan of {n} activations: {1000 / cpu_s(thousand_replays):,.0f} plans per CPU second")
    learning = cpu_s(lambda: schedule(workflow, fleet, world, "q-learning", {"episodes": 100}), repeats=3)
    print(f"100 episodes of q-learning on {n} activations: {learning:.2f} s")
    for size in SIZES:
        large = generate("montage", size)
        for machines in (100, 1000):
            vms = Fleet.parse(f"{machines // 2}*m3.medium,{machines // 2}*m3.2xlarge")
            start = time.process_time()
            build_problem(large, vms, world)
            prepared = time.process_time() - start
            spent = cpu_s(lambda large=large, vms=vms: schedule(large, vms, world, "heft"), repeats=1)
            what = f"{size:7,} activations on {machines:5,} VMs"
            print(f"heft: {what}: {spent:6.2f} s (arrays made in {prepared:.2f} s)")


if __name__ == "__main__":
    main()
