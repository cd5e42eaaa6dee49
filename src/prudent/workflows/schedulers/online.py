"""Rules that decide while the workflow runs: a ready activation, an idle slot, nothing held back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prudent.core.seeds import rng_for
from prudent.workflows.schedulers.registry import ScheduleProposal
from prudent.workflows.simulation import records
from prudent.workflows.simulation.problem import SchedulingProblem, sample_world
from prudent.workflows.simulation.simulator import run_simulation


@dataclass(frozen=True)
class _OnlineRule:
    """Asked for a plan, a rule writes down what it does in the calm world."""

    name: ClassVar[str]
    policy: ClassVar[int]

    def propose(self, problem: SchedulingProblem, seed: int) -> ScheduleProposal:
        """What the rule does when nothing unforeseen happens."""
        weather = sample_world(problem, problem.world.calm(), 0)
        luck = int(rng_for(seed, "scheduler", self.name).integers(1 << 62))
        trace = run_simulation(problem, weather, self.policy, seed=luck)
        return ScheduleProposal(trace.placement(problem.graph.order))


class Fcfs(_OnlineRule):
    """First come, first served: the activation that waits longest, the first idle slot of the fleet."""

    name = "fcfs"
    policy = records.FCFS


class RoundRobin(_OnlineRule):
    """As fcfs, but slots take turns."""

    name = "round-robin"
    policy = records.ROUND_ROBIN


class MinMin(_OnlineRule):
    """The pair of activation and slot that ends first."""

    name = "min-min"
    policy = records.MIN_MIN


class MaxMin(_OnlineRule):
    """The activation whose best end is last, on the slot of that end: long ones first."""

    name = "max-min"
    policy = records.MAX_MIN


class Mct(_OnlineRule):
    """Minimum completion time: the activation that waits longest, the slot on which it ends first."""

    name = "mct"
    policy = records.MCT


class DataAware(_OnlineRule):
    """The activation that waits longest, the slot to which the fewest bytes have to move."""

    name = "data-aware"
    policy = records.DATA_AWARE


class Random(_OnlineRule):
    """Any activation, any slot: what every other scheduler should beat."""

    name = "random"
    policy = records.RANDOM
