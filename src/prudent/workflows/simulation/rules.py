"""Online rules: they place ready activations on idle lanes while the simulation runs."""

from __future__ import annotations

from typing import Any

from prudent.workflows.schedulers.adaptation import pick_adaptively
from prudent.workflows.schedulers.agent import choose_lane
from prudent.workflows.simulation.compiled import Ints, Records, allocation_free, inlined, uniform
from prudent.workflows.simulation.records import (
    ADAPTIVE,
    DATA_AWARE,
    FCFS,
    IDLE,
    MAX_MIN,
    MIN_MIN,
    Q_LEARNING,
    RANDOM,
    ROUND_ROBIN,
    SHARED,
    EngineArrays,
    RunArrays,
)
from prudent.workflows.simulation.staging import estimate_s, missing_bytes


@inlined
def pick_next(run: RunArrays, engine: EngineArrays, now: float) -> tuple[int, int]:
    """Position in the ready queue and lane of the next placement; lane -1 when nothing should start now."""
    lanes, state = run.lanes, run.state
    rule = state[0].rule
    if rule == ADAPTIVE:
        return pick_adaptively(run, engine, now)
    if rule in (MIN_MIN, MAX_MIN):
        return _pick_extreme(run, engine, now)
    if rule == RANDOM:
        return int(uniform(engine.random) * engine.sizes[1]), _random_lane(lanes, engine.random)
    task = engine.ready_queue[0].task
    if rule == FCFS:
        lane = _next_idle(lanes, 0)
    elif rule == ROUND_ROBIN:
        lane = _next_idle(lanes, state[0].next_lane)
        state[0].next_lane = (lane + 1) % len(lanes) if lane >= 0 else state[0].next_lane
    elif rule == Q_LEARNING:
        lane = choose_lane(lanes, engine.learner, engine.random, task)
    elif rule == DATA_AWARE:
        lane = _nearest_lane(run, task)
    else:
        lane = quickest_lane(run, task, now)
    return 0, lane


@allocation_free
def quickest_lane(run: RunArrays, task: int, now: float) -> int:
    """The idle lane on which the activation ends first, the earlier of equals."""
    best, best_s = -1, 0.0
    for lane in range(len(run.lanes)):
        if run.lanes[lane].task == IDLE:
            held_s = estimate_s(run, task, lane, now)
            if best < 0 or held_s < best_s:
                best, best_s = lane, held_s
    return best


@inlined
def _next_idle(lanes: Records, next_lane: int) -> int:
    for lane in range(next_lane, len(lanes)):
        if lanes[lane].task == IDLE:
            return lane
    for lane in range(next_lane):
        if lanes[lane].task == IDLE:
            return lane
    return -1


@allocation_free
def _random_lane(lanes: Records, random: Any) -> int:
    idle = 0
    for lane in range(len(lanes)):
        idle += lanes[lane].task == IDLE
    if idle == 0:
        return -1
    skip = int(uniform(random) * idle)
    for lane in range(len(lanes)):
        if lanes[lane].task == IDLE:
            if skip == 0:
                return lane
            skip -= 1
    return -1


@allocation_free
def _nearest_lane(run: RunArrays, task: int) -> int:
    """The idle lane to which the fewest bytes have to move."""
    best, least = -1, 0.0
    for lane in range(len(run.lanes)):
        if run.lanes[lane].task == IDLE:
            away = missing_bytes(run, task, run.lanes[lane].vm)
            if best < 0 or away < least:
                best, least = lane, away
    return best


@allocation_free
def _pick_extreme(run: RunArrays, engine: EngineArrays, now: float) -> tuple[int, int]:
    """Min-min: the pair that ends first. Max-min: of every activation's best pair, the one that ends last."""
    ready_queue, candidates = engine.ready_queue, engine.candidates
    count = _distinct_lanes(run, candidates)
    best_at, best_lane, best_s = 0, -1, 0.0
    sign = -1.0 if run.state[0].rule == MAX_MIN else 1.0
    for at in range(engine.sizes[1]):
        task = ready_queue[at].task
        lane = candidates[0]
        held_s = estimate_s(run, task, lane, now)
        for place in range(1, count):
            other = candidates[place]
            other_s = estimate_s(run, task, other, now)
            if other_s < held_s:
                lane, held_s = other, other_s
        before = sign * held_s < sign * best_s or (held_s == best_s and task < ready_queue[best_at].task)
        if best_lane < 0 or before:
            best_at, best_lane, best_s = at, lane, held_s
    return best_at, best_lane


@allocation_free
def _distinct_lanes(run: RunArrays, candidates: Ints) -> int:
    """Put the idle lanes into `candidates` and count them.

    On shared storage lanes of one kind are alike, so the first stands for its kind; which kinds were seen is
    noted behind the lanes.
    """
    lanes, state = run.lanes, run.state
    size = 0
    seen = len(lanes)
    candidates[seen : seen + run.run_s.shape[1]] = 0
    for lane in range(len(lanes)):
        at = seen + lanes[lane].kind
        if lanes[lane].task == IDLE and (state[0].storage != SHARED or candidates[at] == 0):
            candidates[at] = 1
            candidates[size] = lane
            size += 1
    return size
