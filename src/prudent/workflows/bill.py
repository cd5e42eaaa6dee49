"""What a run costs: each VM from its boot to its last use."""

from __future__ import annotations

import math

import numpy as np

from prudent.workflows.compiled import bare, compiled
from prudent.workflows.graph import Floats
from prudent.workflows.records import Records


@bare
def bill_usd(vms: Records, rules: Records, vm: int, rented_s: float) -> float:
    """What a VM costs that was rented for so long."""
    billed_s = max(rented_s, vms[vm].minimum_s)
    if rules[0].grain_s > 0.0:
        billed_s = max(math.ceil(billed_s / rules[0].grain_s - 1e-9), 1.0) * rules[0].grain_s
    return billed_s * vms[vm].price  # type: ignore[no-any-return]


@compiled
def totals(vms: Records, rules: Records, log: Records) -> Floats:
    """Makespan (s), busy time (s) and cost (USD), over all attempts."""
    sums = np.zeros(3)
    for row in range(rules[0].log):
        sums[0] = max(sums[0], log[row].end_s)
        sums[1] += log[row].end_s - log[row].start_s
    for vm in range(len(vms)):
        if vms[vm].last_s >= 0.0:
            sums[2] += bill_usd(vms, rules, vm, vms[vm].last_s - vms[vm].from_s)
    return sums
