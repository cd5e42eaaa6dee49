"""One simulated run: memory for the engine, its call, and what came out.

How a placement is followed when the world is not as promised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.workflows.plan import Policy
from prudent.workflows.schedulers.agent import INDEX_STATISTICS, LEARNER_PARAMETERS
from prudent.workflows.schedulers.list_scheduling import mean_occupancy_s, seconds_per_byte, upward_rank
from prudent.workflows.simulation.compiled import Floats, Ints, Records
from prudent.workflows.simulation.engine import process_events
from prudent.workflows.simulation.problem import Placement, SchedulingProblem, WorldSample, recorded_placement
from prudent.workflows.simulation.records import ADAPTIVE, ATTEMPT, EVENT, LOCAL, PLAN, READY_ENTRY
from prudent.workflows.simulation.replay import run_totals

_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RunTrace:
    """What happened, as the engine's records: `tasks` by activation, `log` by attempt."""

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


@dataclass(frozen=True, eq=False)
class QLearnerArrays:
    """The tables of the learning rule; a run changes them."""

    q: Floats
    mind: Records
    habits: Records


_NO_LEARNER = QLearnerArrays(
    np.zeros((1, 1)), np.zeros(1, dtype=LEARNER_PARAMETERS), np.zeros(1, dtype=INDEX_STATISTICS)
)


def run_simulation(
    problem: SchedulingProblem,
    weather: WorldSample,
    policy: int,
    *,
    placement: Placement | None = None,
    priority: Floats | None = None,
    closed: NDArray[np.bool_] | None = None,
    learner: QLearnerArrays = _NO_LEARNER,
    seed: int = 0,
) -> RunTrace:
    """Play one run: by a rule (`policies`), or a placement as planned (PLAN, or ADAPTIVE).

    ADAPTIVE needs a `priority` for each activation and does not use the lanes that are `closed`.
    """
    tasks, lanes, vms, rules = (
        weather.tasks.copy(),
        problem.lanes.copy(),
        weather.vms.copy(),
        weather.rules.copy(),
    )
    rules["policy"] = policy
    seq = _NOTHING
    if policy in (PLAN, ADAPTIVE) and placement is not None:
        seq = _sequences(lanes, placement)
    if priority is not None:
        tasks["priority"] = priority
    if closed is not None:
        lanes["closed"] = closed
    events, bag, log, present = _memory(problem, weather)
    sizes = np.zeros(3, dtype=np.int64)
    choice = np.zeros(len(lanes) + problem.run_s.shape[1], dtype=np.int64)
    random: NDArray[np.uint64] = np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
    process_events(
        tasks, problem.links, lanes, vms, rules, problem.run_s, weather.fails_at, weather.drift,
        weather.lives_s, seq, events, bag, sizes, choice, log, present, learner.q, learner.mind,
        learner.habits, random,
    )  # fmt: skip
    sums = run_totals(vms, rules, log)
    at_end = rules[0]
    return RunTrace(
        tasks,
        vms,
        log[: at_end["log"]],
        float(sums[0]),
        float(sums[1]),
        float(sums[2]),
        float(at_end["moved_bytes"]),
        int(at_end["retries"]),
        int(at_end["done"]),
    )


def _sequences(lanes: Records, placement: Placement) -> Ints:
    """Group the order by lane; each lane gets its stretch of the answer."""
    lane_of = placement.lane[placement.order]
    counts = np.bincount(lane_of, minlength=len(lanes))
    lanes["last"] = np.cumsum(counts)
    lanes["next"] = lanes["last"] - counts
    return np.ascontiguousarray(placement.order[np.argsort(lane_of, kind="stable")])


def _memory(
    problem: SchedulingProblem, weather: WorldSample
) -> tuple[Records, Records, Records, NDArray[np.uint8]]:
    """Room for the most that can happen: every attempt fails, every VM breaks as often as it can."""
    n, lanes, m = len(problem.tasks), len(problem.lanes), len(problem.vms)
    lives = weather.lives_s.shape[1]
    lost = lanes * lives if lives > 1 else 0
    events = np.empty(n + 2 * lanes + 3 * m + lost, dtype=EVENT)
    log = np.empty(n * weather.fails_at.shape[1] + lost, dtype=ATTEMPT)
    held = m if problem.rules[0]["storage"] == LOCAL else 1
    return events, np.empty(n, dtype=READY_ENTRY), log, np.zeros((held, problem.files), dtype=np.uint8)


def follow_placement(
    problem: SchedulingProblem, weather: WorldSample, placement: Placement, policy: Policy
) -> RunTrace:
    """Play one run of a placement: to the letter, or adaptively from the first surprise on.

    Adaptive runs rank activations by the longest way to the end, as HEFT does: over many worlds that did as
    well as the planned order or better, and it needs nothing but the problem.
    """
    if policy == "static":
        return run_simulation(problem, weather, PLAN, placement=placement)
    rank = upward_rank(problem, mean_occupancy_s(problem), seconds_per_byte(problem))
    closed = not_rented(problem, placement) if policy == "frugal" else None
    return run_simulation(problem, weather, ADAPTIVE, placement=placement, priority=rank, closed=closed)


def not_rented(problem: SchedulingProblem, placement: Placement) -> NDArray[np.bool_]:
    """Lanes of VMs on which nothing is planned."""
    rented = np.zeros(len(problem.vms), dtype=np.bool_)
    rented[problem.lanes["vm"][placement.lane]] = True
    return np.asarray(~rented[problem.lanes["vm"]])
