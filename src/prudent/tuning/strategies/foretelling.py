"""What is expected of one configuration on the full data, in the words of the goal."""

from __future__ import annotations

import math

import numpy as np

from prudent.tuning.acquisition import hermite_nodes
from prudent.tuning.goal import COST, TIME
from prudent.tuning.strategies.extrapolation import LOG, CurveBelief, GPCurve, Warp
from prudent.tuning.strategies.prospect import GoalPosterior
from prudent.tuning.strategies.strategy import prediction_key
from prudent.tuning.strategies.subsampling import FractionCandidates

INTERVAL_Z = 1.959963984540054
"""Low and high enclose 95 % of what is expected."""


def prediction_of(
    field: FractionCandidates, cost: CurveBelief, measures: dict[str, tuple[CurveBelief, Warp]], prospect: GoalPosterior
) -> dict[str, float]:
    """Median, deviation and 95 % interval of every measure at the field's only place."""
    out: dict[str, float] = {}
    for name, (curve, warp) in measures.items():
        out |= _told(name, curve, warp, 0.0)
    out |= _told(COST, cost, LOG, 0.0)
    out |= _told(TIME, cost, LOG, -float(field.log_price[0]))
    out["probability_feasible"] = float(prospect.probability(np.array([0]))[0])
    return out


def _told(name: str, curve: CurveBelief, warp: Warp, offset: float) -> dict[str, float]:
    noise = curve.process.noise_std if isinstance(curve, GPCurve) else 0.0
    centre, spread = float(curve.mean[0]) + offset, math.hypot(float(curve.std[0]), noise)
    middle, low, high = warp.back(np.array([centre, centre - INTERVAL_Z * spread, centre + INTERVAL_Z * spread]))
    nodes, weights = hermite_nodes(9)
    around = warp.back(centre + spread * nodes)
    mean = float(weights @ around)
    deviation = math.sqrt(max(float(weights @ (around - mean) ** 2), 0.0))
    return {
        name: float(middle),
        prediction_key(name, "std"): deviation,
        prediction_key(name, "low"): float(low),
        prediction_key(name, "high"): float(high),
    }
