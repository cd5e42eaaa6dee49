"""One simulated run: memory for the engine, its call, and what came out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.workflows.agent import HABIT, MIND
from prudent.workflows.bill import totals
from prudent.workflows.engine import run
from prudent.workflows.graph import Floats, Ints
from prudent.workflows.policies import ADAPTIVE, PLAN
from prudent.workflows.problem import Problem, Weather
from prudent.workflows.records import ATTEMPT, ENTRY, EVENT, LOCAL, Records

_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Placement:
    """Where and in which order: `lane[i]` of activation i; `order` lists all, first to start first."""

    lane: Ints
    order: Ints


def placed(tasks: Records, order: Ints) -> Placement:
    """The placement that records describe, once their lanes and starts are set."""
    by_start = order[np.argsort(tasks["start_s"][order], kind="stable")]
    return Placement(tasks["lane"].copy(), by_start)


@dataclass(frozen=True, eq=False)
class Trace:
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
        return placed(self.tasks, order)


@dataclass(frozen=True, eq=False)
class Learner:
    """The tables of the learning rule; a run changes them."""

    q: Floats
    mind: Records
    habits: Records


_NO_LEARNER = Learner(np.zeros((1, 1)), np.zeros(1, dtype=MIND), np.zeros(1, dtype=HABIT))


def play(
    problem: Problem,
    weather: Weather,
    policy: int,
    *,
    placement: Placement | None = None,
    priority: Floats | None = None,
    closed: NDArray[np.bool_] | None = None,
    learner: Learner = _NO_LEARNER,
    seed: int = 0,
) -> Trace:
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
    run(
        tasks, problem.links, lanes, vms, rules, problem.run_s, weather.fails_at, weather.drift,
        weather.lives_s, seq, events, bag, sizes, choice, log, present, learner.q, learner.mind,
        learner.habits, random,
    )  # fmt: skip
    sums = totals(vms, rules, log)
    at_end = rules[0]
    return Trace(
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


def _memory(problem: Problem, weather: Weather) -> tuple[Records, Records, Records, NDArray[np.uint8]]:
    """Room for the most that can happen: every attempt fails, every VM breaks as often as it can."""
    n, lanes, m = len(problem.tasks), len(problem.lanes), len(problem.vms)
    lives = weather.lives_s.shape[1]
    lost = lanes * lives if lives > 1 else 0
    events = np.empty(n + 2 * lanes + 3 * m + lost, dtype=EVENT)
    log = np.empty(n * weather.fails_at.shape[1] + lost, dtype=ATTEMPT)
    held = m if problem.rules[0]["storage"] == LOCAL else 1
    return events, np.empty(n, dtype=ENTRY), log, np.zeros((held, problem.files), dtype=np.uint8)
