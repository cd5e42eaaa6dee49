"""Makespan over the lower bound for every trace, fleet and scheduler; q-learning against fcfs and its paper.

PRUDENT_DATA=/path/to/data python benchmarks/workflows_makespan.py [--schedulers heft,peft] [--cells]
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from pathlib import Path

from prudent.workflows import Fleet, Workflow, World, schedule
from prudent.workflows.schedulers.bounds import lower_bounds
from tables import data_folder

TRACES = [
    f"{family}_{size}"
    for family, sizes in {
        "CyberShake": (30, 50, 100, 1000),
        "Epigenomics": (24, 46, 100, 997),
        "Inspiral": (30, 50, 100, 1000),
        "Montage": (25, 50, 100, 1000),
        "Sipht": (30, 60, 100, 1000),
    }.items()
    for size in sizes
]
FLEETS = {16: 1, 32: 3, 64: 7, 128: 15}
"""vCPUs -> number of m3.2xlarge next to 8 m3.medium."""

PAPER_BUSY_S = {
    "CyberShake_30": (6559.71, 6517.74, 6278.79, 6166.39),
    "CyberShake_50": (12762.63, 12550.50, 12316.62, 12183.19),
    "CyberShake_100": (25354.15, 25113.91, 24562.39, 24199.95),
    "CyberShake_1000": (47807.61, 44118.30, 40629.30, 38257.61),
    "Epigenomics_24": (15085.01, 9496.22, 9798.79, 7766.11),
    "Epigenomics_46": (33232.34, 31314.53, 22698.94, 17552.66),
    "Epigenomics_100": (320684.21, 254145.95, 197687.41, 201803.33),
    "Epigenomics_997": (3006902.18, 2246804.08, 1707749.73, 1422339.80),
    "Inspiral_30": (6176.08, 4454.18, 4586.26, 3374.25),
    "Inspiral_50": (9720.62, 8972.35, 7286.11, 6228.70),
    "Inspiral_100": (16078.31, 12785.12, 10975.93, 10184.21),
    "Inspiral_1000": (172362.68, 126508.68, 95578.53, 77739.38),
    "Montage_25": (226.70, 174.01, 175.80, 114.62),
    "Montage_50": (477.42, 424.33, 330.19, 250.10),
    "Montage_100": (950.57, 774.25, 647.64, 520.82),
    "Montage_1000": (9938.84, 7834.66, 6347.65, 5264.15),
    "Sipht_30": (3733.51, 5180.81, 5213.30, 1388.70),
    "Sipht_60": (9643.12, 7425.38, 6878.84, 2968.70),
    "Sipht_100": (15379.13, 14702.93, 10397.34, 5846.22),
    "Sipht_1000": (131305.53, 102202.37, 75976.43, 66467.61),
}
"""Table 3 of the paper, for 16, 32, 64 and 128 vCPUs."""


def trace_folder() -> Path:
    """The traces: in PRUDENT_DATA, or in the folder next to the repository."""
    return data_folder("workflows") / "workflows"


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--schedulers", default="fcfs,round-robin,min-min,max-min,mct,random,cpop,peft,heft,q-learning"
    )
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cells", action="store_true", help="show every cell")
    arguments = parser.parse_args()
    names = arguments.schedulers.split(",")
    over: defaultdict[str, list[float]] = defaultdict(list)
    over_tight: defaultdict[str, list[float]] = defaultdict(list)
    spent_s: defaultdict[str, float] = defaultdict(float)
    below_fcfs, at_most_paper = [], []
    for trace in TRACES:
        path = trace_folder() / f"{trace}.xml"
        if not path.exists():
            continue
        workflow = Workflow.read(path)
        for column, (vcpus, large) in enumerate(FLEETS.items()):
            fleet = Fleet.parse(f"8*m3.medium,{large}*m3.2xlarge", slots="vm")
            world = World(storage="shared", bandwidth_mb_s=15)
            bounds = lower_bounds(workflow, fleet, world)
            plans = {}
            for name in names:
                options = {"episodes": arguments.episodes} if name == "q-learning" else {}
                start = time.process_time()
                plans[name] = schedule(
                    workflow, fleet, world, scheduler=name, options=options, seed=arguments.seed
                )
                spent_s[name] += time.process_time() - start
                over[name].append(plans[name].makespan_s / bounds.simple_s)
                over_tight[name].append(plans[name].makespan_s / bounds.tight_s)
            if "q-learning" in plans and "fcfs" in plans:
                below_fcfs.append(plans["q-learning"].makespan_s < plans["fcfs"].makespan_s)
                at_most_paper.append(plans["q-learning"].busy_s <= PAPER_BUSY_S[trace][column])
            if arguments.cells:
                cells = "  ".join(f"{name} {plan.makespan_s:.1f}" for name, plan in plans.items())
                marks = f"{below_fcfs[-1:]} {at_most_paper[-1:]}"
                print(
                    f"{trace:16} {vcpus:4} bound {bounds.simple_s:.1f} {bounds.tight_s:.1f}  {cells} {marks}"
                )
    print(
        f"{'scheduler':12} {'/ bound':>8} {'/ tight':>8} {'planning s':>11}   ({len(over[names[0]])} cells)"
    )
    for name in names:
        means = geometric_mean(over[name]), geometric_mean(over_tight[name])
        print(f"{name:12} {means[0]:8.3f} {means[1]:8.3f} {spent_s[name]:11.2f}")
    if below_fcfs:
        cells = len(below_fcfs)
        print(f"q-learning: makespan below fcfs in {sum(below_fcfs)} of {cells} cells")
        print(f"q-learning: busy time at most the paper's table 3 in {sum(at_most_paper)} of {cells} cells")


if __name__ == "__main__":
    main()
