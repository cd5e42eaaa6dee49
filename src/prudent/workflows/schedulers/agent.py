"""The learning scheduler of WorkflowSim4RL inside the simulation: its Q-table, its choice, its reward.

The workflow is in one of four states (ready, running, finished with success, finished with failure) and a
machine in one of two (idle, running). Only (idle, ready) has a choice: the action "activation i to machine
j", so the table is `q[i, j]`; the other states have one action each ("wait" or "end"), which keeps its first
value.

When activation i ends on machine j, its index is P = alpha * t_exec + (1 - alpha) * t_queue. The reward is -1
if P is above the mean of all indices by more than their deviation, +1 if it is below by more, else 0;
smoothed per machine, e[j] += alpha * (r - e[j]). Then q[i, j] += rate * (e[j] + gamma * max q(next state, .)
- q[i, j]).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from prudent.workflows.simulation.compiled import Records, allocation_free, uniform
from prudent.workflows.simulation.records import IDLE, EngineArrays, QLearnerArrays, RunArrays

LEARNER_PARAMETERS = np.dtype([(name, np.float64) for name in
    ("alpha", "gamma", "rate", "epsilon", "initial_q", "reward")], align=True)  # fmt: skip
"""The parameters, and the sum of rewards of an episode."""


INDEX_STATISTICS = np.dtype(
    [(name, np.float64) for name in ("count", "mean", "squares", "efficiency")], align=True
)
"""Running mean and deviation of P, and the smoothed reward: row 0 of all machines, row 1 + j of machine j."""


@allocation_free
def choose_lane(lanes: Records, learner: QLearnerArrays, random: Any, task: int) -> int:
    """Any idle lane with probability epsilon, else one on the machine of largest q (ties at random)."""
    explores = uniform(random) < learner.parameters[0].epsilon
    best, best_q, equals = -1, 0.0, 0
    for lane in range(len(lanes)):
        if lanes[lane].task != IDLE:
            continue
        value = 0.0 if explores else learner.q[task, lanes[lane].vm]
        if best < 0 or value > best_q:
            best, best_q, equals = lane, value, 1
        elif value == best_q:
            equals += 1
            if uniform(random) * equals < 1.0:
                best = lane
    return best


@allocation_free
def update_statistics(statistics: Records, row: int, index: float) -> None:
    """Add one index to a running mean and deviation (Welford)."""
    statistics[row].count += 1.0
    away = index - statistics[row].mean
    statistics[row].mean += away / statistics[row].count
    statistics[row].squares += away * (index - statistics[row].mean)


@allocation_free
def reward(statistics: Records, index: float) -> float:
    """-1 if the index is above the mean by more than the deviation, 1 if below by more, else 0."""
    usual = statistics[0]
    if usual.count < 2.0:
        return 0.0
    deviation = math.sqrt(usual.squares / usual.count)
    if index > usual.mean + deviation:
        return -1.0
    if index < usual.mean - deviation:
        return 1.0
    return 0.0


@allocation_free
def record_index(statistics: Records, alpha: float, vm: int, executed_s: float, queued_s: float) -> float:
    """Add the index of an activation that has ended on a machine; answers its reward."""
    index = alpha * executed_s + (1.0 - alpha) * queued_s
    praise = reward(statistics, index)
    update_statistics(statistics, 0, index)
    update_statistics(statistics, 1 + vm, index)
    statistics[1 + vm].efficiency += alpha * (praise - statistics[1 + vm].efficiency)
    return praise


@allocation_free
def update_q(
    run: RunArrays, engine: EngineArrays, task: int, vm: int, executed_s: float, queued_s: float
) -> None:
    """Update the tables with an activation that has just ended."""
    q, parameters, statistics = engine.learner
    parameters[0].reward += record_index(statistics, parameters[0].alpha, vm, executed_s, queued_s)
    target = statistics[1 + vm].efficiency + parameters[0].gamma * _best_next(run.lanes, engine)
    q[task, vm] += parameters[0].rate * (target - q[task, vm])


@allocation_free
def _best_next(lanes: Records, engine: EngineArrays) -> float:
    """The largest q of what could come next: a ready activation on an idle machine, else to wait."""
    best = -np.inf
    for lane in range(len(lanes)):
        if lanes[lane].task == IDLE:
            vm = lanes[lane].vm
            for at in range(engine.sizes[1]):
                best = max(best, engine.learner.q[engine.ready_queue[at].task, vm])
    return best if best > -np.inf else engine.learner.parameters[0].initial_q
