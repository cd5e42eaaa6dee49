"""How a placement is followed when the world is not as promised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prudent.workflows.front import Policy
from prudent.workflows.policies import ADAPTIVE, PLAN
from prudent.workflows.problem import Problem, Weather
from prudent.workflows.schedulers import ranks
from prudent.workflows.simulator import Placement, Trace, play


def follow(problem: Problem, weather: Weather, placement: Placement, policy: Policy) -> Trace:
    """Play one run of a placement: to the letter, or adaptively from the first surprise on.

    Adaptive runs rank activations by the longest way to the end, as HEFT does: over many worlds that did as
    well as the planned order or better, and it needs nothing but the problem.
    """
    if policy == "static":
        return play(problem, weather, PLAN, placement=placement)
    rank = ranks.upward(problem, ranks.mean_held_s(problem), ranks.seconds_per_byte(problem))
    closed = not_rented(problem, placement) if policy == "frugal" else None
    return play(problem, weather, ADAPTIVE, placement=placement, priority=rank, closed=closed)


def not_rented(problem: Problem, placement: Placement) -> NDArray[np.bool_]:
    """Lanes of VMs on which nothing is planned."""
    rented = np.zeros(len(problem.vms), dtype=np.bool_)
    rented[problem.lanes["vm"][placement.lane]] = True
    return np.asarray(~rented[problem.lanes["vm"]])
