"""The search as Python calls it: placements in, better placements out; effort counts in tried changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from prudent.core.seeds import rng_for
from prudent.workflows.search.anneal import CoolingSchedule, SearchMemory, SearchObjective, anneal, energy
from prudent.workflows.search.walk import candidate_plan, search_arrays
from prudent.workflows.simulation.problem import Placement, SchedulingProblem
from prudent.workflows.simulation.simulator import run_calm

_SLICE = 20_000
"""How many changes are tried between two looks at the clock when there is a limit in seconds."""


_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class EvaluatedPlacement:
    """A placement with its makespan and cost."""

    placement: Placement
    makespan_s: float
    cost_usd: float

    def energy(self, objective: SearchObjective) -> float:
        """Its value under the objective; smaller is better."""
        return float(energy(objective, self.makespan_s, self.cost_usd))

    def within(self, objective: SearchObjective) -> bool:
        """Whether it keeps the deadline and the budget of the objective."""
        return self.makespan_s <= objective.deadline_s and self.cost_usd <= objective.budget_usd


class PlacementSearch:
    """Searches for one problem; the same calls with the same seed give the same answers.

    A clock, when one is given, only makes it stop earlier.
    """

    def __init__(
        self,
        problem: SchedulingProblem,
        seed: int,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = problem
        self.seed = seed
        self.tried = 0
        self._arrays = search_arrays(problem)
        self._runs = 0
        self._clock = clock
        self._until = clock() + seconds if math.isfinite(seconds) else math.inf

    def evaluate(self, placement: Placement) -> EvaluatedPlacement:
        """What a placement takes and costs in the calm world, by the simulator itself.

        The search itself is only nearly right where two slots share the files or the late boot of a VM: it
        looks at activations in the order of the plan, not in the order of time.
        """
        trace = run_calm(self.problem, placement)
        return EvaluatedPlacement(placement, trace.makespan_s, trace.cost_usd)

    @property
    def out_of_time(self) -> bool:
        """Whether the limit in seconds is reached."""
        return self._until < math.inf and self._clock() >= self._until

    def improve(
        self,
        start: EvaluatedPlacement,
        objective: SearchObjective,
        cooling: CoolingSchedule,
        tries: int,
        enough: float = 0.0,
    ) -> EvaluatedPlacement | None:
        """Anneal from a placement; the best found within the limits, which may be the start, or None."""
        found = self._anneal(start, _tightened(objective), cooling, tries, enough)
        if (
            found is not None
            and found.within(objective)
            and not found.energy(objective) > start.energy(objective)
        ):
            return found
        return start if start.within(objective) else None

    def _anneal(
        self,
        start: EvaluatedPlacement,
        objective: SearchObjective,
        cooling: CoolingSchedule,
        tries: int,
        enough: float,
    ) -> EvaluatedPlacement | None:
        candidate = candidate_plan(self._arrays, start.placement)
        memory = self._memory(start, objective)
        timed = self._until < math.inf
        step = min(_SLICE, tries) if timed else tries
        ratio = cooling.last / cooling.first
        enough *= 1 + _ROUNDING
        for at in range(0, tries, max(step, 1)):
            if self.out_of_time or memory.best[0] <= enough:
                break
            # A run that is cut into slices cools down along the same curve as a whole one.
            upto = min(at + step, tries)
            part = cooling._replace(
                first=cooling.first * ratio ** (at / tries), last=cooling.first * ratio ** (upto / tries)
            )
            anneal(self._arrays, candidate, objective, part, upto - at, enough, memory)
            self.tried += upto - at
        if memory.best[0] == math.inf:
            return None
        return self.evaluate(Placement(memory.lane, memory.order))

    def _memory(self, start: EvaluatedPlacement, objective: SearchObjective) -> SearchMemory:
        """Memory for one more search, with the start as the best plan if it is within the limits."""
        rng = rng_for(self.seed, "search", self._runs)
        self._runs += 1
        energy = start.energy(objective) if start.within(objective) else math.inf
        return SearchMemory(
            random=rng.integers(1 << 62, size=1).astype(np.uint64),
            path=np.zeros(len(self.problem.tasks), dtype=np.int64),
            move=np.zeros(4, dtype=np.int64),
            lane=start.placement.lane.copy(),
            order=start.placement.order.copy(),
            best=np.array([energy, start.makespan_s, start.cost_usd]),
        )


def _tightened(objective: SearchObjective) -> SearchObjective:
    """The objective with slightly tighter limits, so that rounding does not make a plan late."""
    return objective._replace(
        deadline_s=objective.deadline_s * (1 - _ROUNDING), budget_usd=objective.budget_usd * (1 - _ROUNDING)
    )
