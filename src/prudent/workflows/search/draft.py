"""A plan under change: where and in which order, its times, and where to take up again after a change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prudent.workflows.graph import Floats, Ints
from prudent.workflows.search.ground import Ground
from prudent.workflows.simulator import Placement

_LEAST_BLOCK = 32


class Draft(NamedTuple):
    """`place[i]` is the position of activation i in `order`; the other arrays are the times of this order.

    After every `block` activations the state of all lanes is kept, so that a walk starts at the last such
    mark. `free_s[b, l]`: when lane l is free before position b * block (-1: not used yet); `from_s` likewise
    for the boot of VMs. The fields that begin with `new_` are those of the change that is tried.
    """

    lane: Ints
    order: Ints
    place: Ints
    start_s: Floats
    finish_s: Floats
    free_s: Floats
    from_s: Floats
    new_start_s: Floats
    new_finish_s: Floats
    new_free_s: Floats
    new_from_s: Floats
    lane_free_s: Floats
    vm_from_s: Floats
    block: int


def draft_of(ground: Ground, placement: Placement) -> Draft:
    """Room for a placement; its times are not set yet."""
    n, lanes, vms = len(placement.lane), len(ground.kind), len(ground.boot_s)
    # Keeping the state of many lanes takes as long as walking over as many activations.
    block = max(_LEAST_BLOCK, lanes)
    blocks = n // block + 1
    place = np.empty(n, dtype=np.int64)
    place[placement.order] = np.arange(n)
    return Draft(
        lane=placement.lane.astype(np.int64),
        order=placement.order.astype(np.int64),
        place=place,
        start_s=np.zeros(n),
        finish_s=np.zeros(n),
        free_s=np.zeros((blocks, lanes)),
        from_s=np.zeros((blocks, vms)),
        new_start_s=np.zeros(n),
        new_finish_s=np.zeros(n),
        new_free_s=np.zeros((blocks, lanes)),
        new_from_s=np.zeros((blocks, vms)),
        lane_free_s=np.zeros(lanes),
        vm_from_s=np.zeros(vms),
        block=block,
    )
