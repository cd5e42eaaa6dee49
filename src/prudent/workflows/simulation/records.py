"""Record types (NumPy dtypes) and constants of the simulator, and the named tuples of their arrays.

There are few arrays with many fields, one per noun, because each array that Python hands to a compiled
function costs time at every call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prudent.workflows.simulation.compiled import Floats, Ints, Records, inlined

SHARED, LOCAL, NETWORK = 0, 1, 2


LOCKED, WAITING, IS_READY, RUNNING, SUCCEEDED, FAILED = 0, 1, 2, 3, 4, 5


IDLE, DOWN = -1, -2


OUTCOME_DONE, OUTCOME_FAILED, OUTCOME_LOST = 0, 1, 2


FINISH, VM_DOWN, VM_UP, READY = 0, 1, 2, 3


def _record(floats: str, ints: str) -> np.dtype[Any]:
    names = [(name, np.float64) for name in floats.split()] + [(name, np.int64) for name in ints.split()]
    return np.dtype(names, align=True)


TASK = _record(
    # Needs: bytes of all inputs, of those no activation writes; seconds to stage them on shared storage.
    "staged_bytes external_bytes stage_s "
    # Its overheads in this sample of the world.
    "engine_s hold_s post_s "
    # Progress: when the end of its parents was known, when it was ready, started, finished.
    "notified_s ready_s start_s finish_s priority",
    # Where its links begin: parents, then children, inputs to stage, files it writes, up to `end`.
    "parents children staged written end "
    # Progress: parents still missing, attempts made, lane, whether its planned VM is gone.
    "status missing attempt lane orphan",
)


LINK = _record("bytes", "other")


LANE = _record(
    # When the running activation began to compute; when the lane is expected to be free (scratch space).
    "compute_from_s free_s",
    # `generation` counts starts, so that outdated events are known; `closed`: adaptive rules must not use it.
    "vm kind task generation row next last closed",
)


VM = _record(
    # promised_s, measured_s: nominal and measured computing time of what was done here.
    "price minimum_s speed boot_s from_s up_s last_s promised_s measured_s",
    "kind revocable boots",
)


RUN_STATE = _record(
    "bytes_per_s billing_step_s drift_period_s moved_bytes",
    "storage boots_at_first_use rule done retries log next_lane given_up seed plan_abandoned",
)


EVENT = _record("time", "code generation")


READY_ENTRY = _record("key", "task")


ATTEMPT = _record("start_s end_s", "task lane outcome")


class RunArrays(NamedTuple):
    """A problem and how far its run is: what happens is written into the records.

    `run_s[i, k]`: how long activation i computes on a VM of kind k. `present[v, f]`: whether file f is on VM
    v, for local storage only.
    """

    tasks: Records
    links: Records
    lanes: Records
    vms: Records
    state: Records
    run_s: Floats
    present: Any


class QLearnerArrays(NamedTuple):
    """The arrays of the Q-learning rule; a run changes them in place."""

    q: Floats
    parameters: Records
    statistics: Records


class EngineArrays(NamedTuple):
    """What only the engine of events needs besides: the sample of the world, its queues, and the learner.

    `fails_at`, `drift` and `lives_s` are those of `WorldSample`. `seq` is the planned order, grouped by lane.
    `sizes` counts the events, the ready activations and the idle lanes. `candidates` is scratch space.
    """

    fails_at: Floats
    drift: Floats
    lives_s: Floats
    seq: Ints
    events: Records
    ready_queue: Records
    sizes: Ints
    candidates: Ints
    log: Records
    learner: QLearnerArrays
    random: Any


PLAN, FCFS, ROUND_ROBIN, MIN_MIN, MAX_MIN, MCT, DATA_AWARE, RANDOM, PRIORITY, Q_LEARNING, ADAPTIVE = range(11)


@inlined
def is_ordered(rule: int) -> bool:
    """Whether the rule takes ready activations by a key; the other rules look at all of them."""
    return rule not in (MIN_MIN, MAX_MIN, RANDOM)
