"""The rows of memory that compiled code works on: one array of records per noun.

Few arrays of many fields, because every array handed to a compiled function costs time at each call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prudent.workflows.simulation.compiled import inlined

SHARED, LOCAL, NETWORK = 0, 1, 2


LOCKED, WAITING, IS_READY, RUNNING, SUCCEEDED, FAILED = 0, 1, 2, 3, 4, 5


IDLE, DOWN = -1, -2


OUTCOME_DONE, OUTCOME_FAILED, OUTCOME_LOST = 0, 1, 2


FINISH, VM_DOWN, VM_UP, READY = 0, 1, 2, 3


def _record(floats: str, ints: str) -> np.dtype[Any]:
    names = [(name, np.float64) for name in floats.split()] + [(name, np.int64) for name in ints.split()]
    return np.dtype(names, align=True)


TASK = _record(
    # What it takes: bytes of all inputs, of those nobody here writes; time to stage on shared storage.
    "staged_bytes foreign_bytes stage_s "
    # The weather's overheads for it.
    "engine_s hold_s post_s "
    # What happens: when its parents were heard of, when it was ready, ran, ended.
    "heard_s ready_s start_s finish_s priority",
    # Where its links are: parents, then children, inputs to stage, files it writes, up to `end`.
    "parents children staged written end "
    # What happens: parents still missing, attempts made, lane, whether its planned VM is gone.
    "status missing attempt lane orphan",
)


LINK = _record("bytes", "other")


LANE = _record(
    # When what runs here began to compute; when the lane is expected to be free (scratch of a rule).
    "computes_s free_s",
    # Whether the adaptive rule must not use it.
    "vm kind task mark row next last closed",
)


VM = _record(
    # Computing time promised for what was done here, and seen.
    "price minimum_s speed boot_s from_s up_s last_s promised_s seen_s",
    "kind mortal life",
)


RUN_STATE = _record(
    "bytes_per_s grain_s drift_period_s moved_bytes",
    "storage boots_late policy done retries log turn dead seed adrift",
)


EVENT = _record("time", "code mark")


READY_ENTRY = _record("key", "task")


ATTEMPT = _record("start_s end_s", "task lane outcome")


PLAN, FCFS, ROUND_ROBIN, MIN_MIN, MAX_MIN, MCT, DATA_AWARE, RANDOM, PRIORITY, Q_LEARNING, ADAPTIVE = range(11)


@inlined
def is_ordered(policy: int) -> bool:
    """Whether the rule takes ready activations in the order of a key; the others look at all of them."""
    return policy not in (MIN_MIN, MAX_MIN, RANDOM)
