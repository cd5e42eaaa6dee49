"""WorkflowSim4RL, table 3 and figure 4: learned plans by workflow and fleet, and a real run."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks.papers.page import BETTER, NOT, REPRODUCED, Headline, PaperPage, Table, number
from benchmarks.papers.real_montage import EPISODES, WORLD, all_runs, chart, headline, table
from benchmarks.papers.replays import Effort

from prudent.workflows import Fleet, Workflow, schedule
from workflows_makespan import FLEETS, PAPER_BUSY_S, TRACES, trace_folder

SEEDS, QUICK_SEEDS = 10, 2


@dataclass(frozen=True)
class Cell:
    """A workflow on a fleet, means over the seeds; `random_s`: as many episodes without learning."""

    trace: str
    vcpus: int
    paper_busy_s: float
    busy_s: float
    makespan_s: float
    random_s: float
    fcfs_s: float
    heft_s: float


def cell(trace: str, column: int, seeds: int) -> Cell:
    vcpus = list(FLEETS)[column]
    fleet = Fleet.parse(f"8*m3.medium,{FLEETS[vcpus]}*m3.2xlarge", slots="vm")
    workflow = Workflow.read(trace_folder() / f"{trace}.xml")
    learned, blind = (
        [schedule(workflow, fleet, WORLD, "q-learning", {"episodes": EPISODES, **options}, seed)
         for seed in range(seeds)]
        for options in ({}, {"epsilon": 1.0})
    )  # fmt: skip
    fcfs, heft = (schedule(workflow, fleet, WORLD, name) for name in ("fcfs", "heft"))
    return Cell(
        trace, vcpus, PAPER_BUSY_S[trace][column],
        sum(plan.busy_s for plan in learned) / seeds, sum(plan.makespan_s for plan in learned) / seeds,
        sum(plan.makespan_s for plan in blind) / seeds, fcfs.makespan_s, heft.makespan_s,
    )  # fmt: skip


def run(effort: Effort) -> PaperPage:
    there = [trace for trace in TRACES if (trace_folder() / f"{trace}.xml").exists()]
    with ProcessPoolExecutor(effort.processes) as workers:
        tasks = [
            workers.submit(cell, trace, column, effort.seeds)
            for trace in there
            for column in range(len(FLEETS))
        ]
        cells = [task.result() for task in tasks]
    runs = all_runs(effort.quick)
    missing = [trace for trace in TRACES if trace not in there]
    return PaperPage(
        "workflowsim4rl",
        "WorkflowSim4RL: Q-learning schedules of workflows",
        f"{EPISODES} episodes, {effort.seeds} seeds; shared storage of 15 MB/s, no failures. Traces that are "
        f"not here: {', '.join(missing) or 'none'}.",
        [*headlines(cells), headline(runs)],
        [
            Table(
                "Table 3: busy seconds, the paper's and ours",
                ("workflow", *(f"{vcpus} vCPUs" for vcpus in FLEETS)),
                [
                    [trace, *(f"{c.paper_busy_s:,.1f} / {c.busy_s:,.1f}" for c in cells if c.trace == trace)]
                    for trace in there
                ],
            ),
            Table(
                "Makespan in seconds: q-learning, random episodes, fcfs, heft",
                ("workflow", *(f"{vcpus} vCPUs" for vcpus in FLEETS)),
                [
                    [
                        trace,
                        *(
                            " / ".join(f"{s:,.1f}" for s in (c.makespan_s, c.random_s, c.fcfs_s, c.heft_s))
                            for c in cells
                            if c.trace == trace
                        ),
                    ]
                    for trace in there
                ],
            ),
            table(runs),
        ],
        [chart(runs)],
    )


def headlines(cells: list[Cell]) -> list[Headline]:
    below = sum(c.busy_s <= c.paper_busy_s for c in cells)
    faster = sum(c.makespan_s < c.fcfs_s for c in cells)
    ratio = math.exp(sum(math.log(c.makespan_s / c.random_s) for c in cells) / len(cells))
    montage = [c for c in cells if c.trace == "Montage_25"]
    won = sum(c.makespan_s < c.fcfs_s for c in montage)
    return [
        Headline(
            "Cells of table 3 whose busy time is at most the paper's", f"{len(cells)} (its own)",
            f"{below} of {len(cells)}", BETTER if below > 0.8 * len(cells) else NOT,
            "busy time depends on how the simulator counts staging, which the paper leaves open",
        ),
        Headline(
            "Montage_25 in less time than first come, first served, simulated", "every fleet",
            f"{won} of {len(montage)} fleets", REPRODUCED if won == len(montage) else NOT,
        ),
        Headline(
            "All workflows in less time than first come, first served", "not told",
            f"{faster} of {len(cells)} cells", REPRODUCED if faster == len(cells) else NOT,
        ),
        Headline(
            "Makespan over that of the best of as many random episodes", "not told", number(ratio),
            BETTER if ratio < 0.98 else NOT, "learning against its own absence",
        ),
    ]  # fmt: skip
