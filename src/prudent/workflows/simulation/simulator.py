"""Simulated runs: the engine's memory and its call, the trace it leaves, and following a placement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.workflows.plan import Policy
from prudent.workflows.schedulers.agent import INDEX_STATISTICS, LEARNER_PARAMETERS
from prudent.workflows.schedulers.list_scheduling import mean_upward_rank
from prudent.workflows.simulation.compiled import Floats, Ints, Records
from prudent.workflows.simulation.engine import process_events
from prudent.workflows.simulation.problem import (
    Placement,
    SchedulingProblem,
    WorldSample,
    calm_sample,
    recorded_placement,
)
from prudent.workflows.simulation.records import (
    ADAPTIVE,
    ATTEMPT,
    EVENT,
    PLAN,
    READY_ENTRY,
    EngineArrays,
    QLearnerArrays,
)
from prudent.workflows.simulation.replay import run_totals

_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RunTrace:
    """What happened in a run, as records: `tasks` by activation, `log` by attempt."""

    tasks: Records
    vms: Records
    log: Records
    makespan_s: float
    busy_s: float
    cost_usd: float
    moved_bytes: float
    retries: int
    done: int

    def placement(self, order: Ints) -> Placement:
        """The lanes that were used, by start; `order` (parents first) settles equal starts."""
        return recorded_placement(self.tasks, order)


_NO_LEARNER = QLearnerArrays(
    np.zeros((1, 1)), np.zeros(1, dtype=LEARNER_PARAMETERS), np.zeros(1, dtype=INDEX_STATISTICS)
)


def run_simulation(
    problem: SchedulingProblem,
    sample: WorldSample,
    rule: int,
    *,
    placement: Placement | None = None,
    priority: Floats | None = None,
    closed: NDArray[np.bool_] | None = None,
    learner: QLearnerArrays = _NO_LEARNER,
    seed: int = 0,
) -> RunTrace:
    """Simulate one run by a rule (see `rules`); PLAN and ADAPTIVE follow a placement.

    ADAPTIVE needs a `priority` for each activation and does not use the lanes that are `closed`.
    """
    run = problem.run_arrays(sample)
    run.state["rule"] = rule
    seq = _NOTHING
    if rule in (PLAN, ADAPTIVE) and placement is not None:
        seq = _sequences(run.lanes, placement)
    if priority is not None:
        run.tasks["priority"] = priority
    if closed is not None:
        run.lanes["closed"] = closed
    engine = _engine_arrays(problem, sample, seq, learner, seed)
    process_events(run, engine)
    sums = run_totals(run.vms, run.state, engine.log)
    at_end = run.state[0]
    return RunTrace(
        run.tasks,
        run.vms,
        engine.log[: at_end["log"]],
        float(sums[0]),
        float(sums[1]),
        float(sums[2]),
        float(at_end["moved_bytes"]),
        int(at_end["retries"]),
        int(at_end["done"]),
    )


def run_calm(problem: SchedulingProblem, placement: Placement) -> RunTrace:
    """The run of a placement in the calm world: the times and the bill that a plan promises."""
    return run_simulation(problem, calm_sample(problem), PLAN, placement=placement)


def _sequences(lanes: Records, placement: Placement) -> Ints:
    """The order grouped by lane; each lane knows its slice (`next` to `last`)."""
    lane_of = placement.lane[placement.order]
    counts = np.bincount(lane_of, minlength=len(lanes))
    lanes["last"] = np.cumsum(counts)
    lanes["next"] = lanes["last"] - counts
    return np.ascontiguousarray(placement.order[np.argsort(lane_of, kind="stable")])


def _engine_arrays(
    problem: SchedulingProblem, sample: WorldSample, seq: Ints, learner: QLearnerArrays, seed: int
) -> EngineArrays:
    """Arrays for the worst case: every attempt fails, every VM breaks as often as it can."""
    n, lanes, m = len(problem.tasks), len(problem.lanes), len(problem.vms)
    lives = sample.lives_s.shape[1]
    lost = lanes * lives if lives > 1 else 0
    return EngineArrays(
        fails_at=sample.fails_at,
        drift=sample.drift,
        lives_s=sample.lives_s,
        seq=seq,
        events=np.empty(n + 2 * lanes + 3 * m + lost, dtype=EVENT),
        ready_queue=np.empty(n, dtype=READY_ENTRY),
        sizes=np.zeros(3, dtype=np.int64),
        candidates=np.zeros(lanes + problem.run_s.shape[1], dtype=np.int64),
        log=np.empty(n * sample.fails_at.shape[1] + lost, dtype=ATTEMPT),
        learner=learner,
        random=np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64),
    )


def follow_placement(
    problem: SchedulingProblem, sample: WorldSample, placement: Placement, policy: Policy
) -> RunTrace:
    """Simulate one run that follows a placement: exactly, or adaptively once times differ from the plan.

    Adaptive runs rank activations by the longest way to the end, as HEFT does: over many worlds that did as
    well as the planned order or better, and it needs nothing but the problem.
    """
    if policy == "static":
        return run_simulation(problem, sample, PLAN, placement=placement)
    rank = mean_upward_rank(problem)
    closed = not_rented(problem, placement) if policy == "frugal" else None
    return run_simulation(problem, sample, ADAPTIVE, placement=placement, priority=rank, closed=closed)


def not_rented(problem: SchedulingProblem, placement: Placement) -> NDArray[np.bool_]:
    """Lanes of VMs on which nothing is planned."""
    rented = np.zeros(len(problem.vms), dtype=np.bool_)
    rented[problem.lanes["vm"][placement.lane]] = True
    return np.asarray(~rented[problem.lanes["vm"]])
