"""What is expected of one configuration on the full data, in the words of the goal."""

from __future__ import annotations

import math

import numpy as np

from prudent.tuning.acquisition import hermite_nodes
from prudent.tuning.goal import COST, TIME
from prudent.tuning.strategies.extrapolation import LOG, Curve, ProcessCurve, Warp
from prudent.tuning.strategies.prospect import Prospect
from prudent.tuning.strategies.strategy import with_word
from prudent.tuning.strategies.subsampling import Field

SURE_Z = 1.959963984540054
"""Low and high enclose 95 % of what is expected."""


def foretold(
    field: Field, cost: Curve, measures: dict[str, tuple[Curve, Warp]], prospect: Prospect
) -> dict[str, float]:
    """Median, deviation and 95 % interval of every measure at the field's only place."""
    out: dict[str, float] = {}
    for name, (curve, warp) in measures.items():
        out |= _told(name, curve, warp, 0.0)
    out |= _told(COST, cost, LOG, 0.0)
    out |= _told(TIME, cost, LOG, -float(field.log_price[0]))
    out["probability_feasible"] = float(prospect.probability(np.array([0]))[0])
    return out


def _told(name: str, curve: Curve, warp: Warp, offset: float) -> dict[str, float]:
    noise = curve.process.noise_std if isinstance(curve, ProcessCurve) else 0.0
    centre, spread = float(curve.mean[0]) + offset, math.hypot(float(curve.std[0]), noise)
    middle, low, high = warp.back(np.array([centre, centre - SURE_Z * spread, centre + SURE_Z * spread]))
    nodes, weights = hermite_nodes(9)
    around = warp.back(centre + spread * nodes)
    mean = float(weights @ around)
    deviation = math.sqrt(max(float(weights @ (around - mean) ** 2), 0.0))
    return {
        name: float(middle),
        with_word(name, "std"): deviation,
        with_word(name, "low"): float(low),
        with_word(name, "high"): float(high),
    }
