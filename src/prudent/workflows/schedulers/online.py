"""Online schedulers: rules that place ready activations on idle slots during the run, without a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prudent.core.seeds import rng_for
from prudent.workflows.schedulers.registry import ScheduleProposal
from prudent.workflows.simulation import records
from prudent.workflows.simulation.problem import SchedulingProblem, calm_sample
from prudent.workflows.simulation.simulator import run_simulation


@dataclass(frozen=True)
class _OnlineRule:
    """An online rule; as a plan it proposes what it does in the calm world."""

    name: ClassVar[str]
    rule: ClassVar[int]

    def propose(self, problem: SchedulingProblem, seed: int) -> ScheduleProposal:
        """What the rule does in the calm world."""
        rule_seed = int(rng_for(seed, "scheduler", self.name).integers(1 << 62))
        trace = run_simulation(problem, calm_sample(problem), self.rule, seed=rule_seed)
        return ScheduleProposal(trace.placement(problem.graph.order))


class Fcfs(_OnlineRule):
    """First come, first served: the activation that waits longest, the first idle slot of the fleet."""

    name = "fcfs"
    rule = records.FCFS


class RoundRobin(_OnlineRule):
    """As fcfs, but slots take turns."""

    name = "round-robin"
    rule = records.ROUND_ROBIN


class MinMin(_OnlineRule):
    """The pair of activation and slot that ends first."""

    name = "min-min"
    rule = records.MIN_MIN


class MaxMin(_OnlineRule):
    """The activation whose earliest end is the latest of all, on the slot of that end: long ones go first."""

    name = "max-min"
    rule = records.MAX_MIN


class Mct(_OnlineRule):
    """Minimum completion time: the activation that waits longest, the slot on which it ends first."""

    name = "mct"
    rule = records.MCT


class DataAware(_OnlineRule):
    """The activation that waits longest, the slot to which the fewest bytes have to move."""

    name = "data-aware"
    rule = records.DATA_AWARE


class Random(_OnlineRule):
    """Any activation, any slot: what every other scheduler should beat."""

    name = "random"
    rule = records.RANDOM
