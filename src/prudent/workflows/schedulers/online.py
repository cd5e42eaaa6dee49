"""Rules that decide while the workflow runs: a ready activation, an idle slot, nothing held back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prudent.core.seeds import rng_for
from prudent.workflows import policies
from prudent.workflows.problem import Problem, weather_of
from prudent.workflows.schedulers.registry import Proposal
from prudent.workflows.simulator import play


@dataclass(frozen=True)
class _Online:
    """Asked for a plan, a rule writes down what it does in the calm world."""

    name: ClassVar[str]
    policy: ClassVar[int]

    def propose(self, problem: Problem, seed: int) -> Proposal:
        """What the rule does when nothing unforeseen happens."""
        weather = weather_of(problem, problem.world.calm(), 0)
        luck = int(rng_for(seed, "scheduler", self.name).integers(1 << 62))
        trace = play(problem, weather, self.policy, seed=luck)
        return Proposal(trace.placement(problem.graph.order))


class Fcfs(_Online):
    """First come, first served: the activation that waits longest, the first idle slot of the fleet."""

    name = "fcfs"
    policy = policies.FCFS


class RoundRobin(_Online):
    """As fcfs, but slots take turns."""

    name = "round-robin"
    policy = policies.ROUND_ROBIN


class MinMin(_Online):
    """The pair of activation and slot that ends first."""

    name = "min-min"
    policy = policies.MIN_MIN


class MaxMin(_Online):
    """The activation whose best end is last, on the slot of that end: long ones first."""

    name = "max-min"
    policy = policies.MAX_MIN


class Mct(_Online):
    """Minimum completion time: the activation that waits longest, the slot on which it ends first."""

    name = "mct"
    policy = policies.MCT


class DataAware(_Online):
    """The activation that waits longest, the slot to which the fewest bytes have to move."""

    name = "data-aware"
    policy = policies.DATA_AWARE


class Random(_Online):
    """Any activation, any slot: what every other scheduler should beat."""

    name = "random"
    policy = policies.RANDOM
