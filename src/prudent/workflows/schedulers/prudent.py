"""Our best scheduler: classic plans as starts, annealing from there, and a plan that adapts when followed.

Where money counts, HEFT's plans on parts of the fleet are starts as well: few machines are cheap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prudent.core.errors import BadInput, RunFailed, unknown
from prudent.workflows.plan import ParetoPoint, pareto_front
from prudent.workflows.schedulers.bounds import MakespanBounds, least_cost_usd, lower_bounds
from prudent.workflows.schedulers.heft_family import Heft
from prudent.workflows.schedulers.registry import BASELINES, MANY_PAIRS, ScheduleProposal, scheduler_named
from prudent.workflows.search.anneal import CoolingSchedule, SearchObjective
from prudent.workflows.search.searcher import EvaluatedPlacement, PlacementSearch
from prudent.workflows.simulation.compiled import Ints
from prudent.workflows.simulation.problem import Placement, SchedulingProblem

OBJECTIVES = ("makespan", "cost")


_QUICK_BASELINES = ("heft", "mct")


_SMALL = 300
"""Up to so many activations there is time for several starts; more need one long run."""


_ROUNDS_OF_SMALL = ((0, 1.0), (1, 1.0), (2, 3.0), (3, 3.0), (0, 10.0), (0, 1.0), (0, 0.3))


_ROUNDS_OF_LARGE = ((0, 1.0), (0, 0.3))
"""Rounds of a search: which start (0: the best so far), and the temperature's factor."""


_ANSWER_SHARE = 0.7
"""This part of the changes is tried for the answer, the rest for the front."""


@dataclass(frozen=True)
class PrudentScheduler:
    """The best classic plan, then simulated annealing over lanes and order.

    `objective` is "makespan" or "cost"; `deadline_s` and `budget_usd` hold in the calm world. `evaluations`:
    how many changes are tried (by default what takes 10 to 20 s for 1000 activations); the answer depends on
    it and on the seed alone, unless `seconds` makes the search stop earlier. `front`: how many points of time
    against money are searched for; 0 for none. `adapt`: whether the plan adapts when it is followed.
    """

    objective: str = "makespan"
    deadline_s: float | None = None
    budget_usd: float | None = None
    evaluations: int | None = None
    seconds: float | None = None
    front: int = 8
    adapt: bool = True

    name: ClassVar[str] = "prudent"
    rule: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise unknown("objective", self.objective, OBJECTIVES)
        for name, unit in (("deadline_s", "s"), ("budget_usd", "USD"), ("seconds", "s")):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise BadInput(f"{name} is {value:g} {unit}; give a number above zero, or leave it out.")
        if self.evaluations is not None and self.evaluations < 0:
            raise BadInput(f"evaluations is {self.evaluations}; give zero or more.")
        if self.front < 0:
            raise BadInput(f"front is {self.front}; give how many points it should have, or 0 for none.")

    def propose(self, problem: SchedulingProblem, seed: int) -> ScheduleProposal:
        """Deterministic for a seed and a number of evaluations."""
        bounds = lower_bounds(problem.workflow, problem.fleet, problem.world)
        self._refuse_impossible_limits(problem, bounds)
        searcher = PlacementSearch(problem, seed, self.seconds or math.inf)
        tries = default_evaluations(len(problem.tasks)) if self.evaluations is None else self.evaluations
        baselines = _baselines(problem, searcher, seed)
        starts = list(baselines.values())
        if self.front or self._is_about_money:
            starts += [searcher.evaluate(placement) for placement in placements_on_subfleets(problem)]
        share = _ANSWER_SHARE if self.front else 1.0
        answer = self._answer(searcher, starts, bounds, int(tries * share))
        points = self._front(searcher, [*starts, answer], tries - int(tries * share))
        details: dict[str, Any] = {
            "lower_bound_s": bounds.tight_s,
            "baselines_s": {name: found.makespan_s for name, found in baselines.items()},
            "evaluations": searcher.tried,
        }
        policy = ("frugal" if self._is_about_money else "adaptive") if self.adapt else "static"
        return ScheduleProposal(answer.placement, details, policy, points)  # type: ignore[arg-type]

    @property
    def _is_about_money(self) -> bool:
        return self.objective == "cost" or self.budget_usd is not None

    def _refuse_impossible_limits(self, problem: SchedulingProblem, bounds: MakespanBounds) -> None:
        if self.deadline_s is not None and self.deadline_s < bounds.tight_s:
            raise BadInput(
                f"The deadline of {self.deadline_s:g} s cannot be kept: no plan on this fleet takes under "
                f"{bounds.tight_s:.6g} s; allow more time or add machines."
            )
        least_usd = least_cost_usd(problem)
        if self.budget_usd is not None and self.budget_usd < least_usd:
            raise BadInput(
                f"The budget of ${self.budget_usd:g} cannot be kept: no plan on this fleet costs less than "
                f"${least_usd:.4g}; allow more money or add cheaper machines."
            )

    def _search_objective(self, start: EvaluatedPlacement) -> SearchObjective:
        """The objective; the other measure counts a little, so that equal plans are not all alike."""
        deadline_s = math.inf if self.deadline_s is None else self.deadline_s
        budget_usd = math.inf if self.budget_usd is None else self.budget_usd
        return objective_for(self.objective, start, deadline_s, budget_usd)

    def _answer(
        self, searcher: PlacementSearch, starts: list[EvaluatedPlacement], bounds: MakespanBounds, tries: int
    ) -> EvaluatedPlacement:
        objective = self._search_objective(starts[0])
        if not any(found.within(objective) for found in starts):
            starts = [*starts, *self._rescue(searcher, starts, objective, tries // 4)]
        allowed = sorted(
            (found for found in starts if found.within(objective)), key=lambda each: each.energy(objective)
        )
        for_cost, n = self.objective == "cost", len(searcher.problem.tasks)
        rounds = _ROUNDS_OF_SMALL if n <= _SMALL else _ROUNDS_OF_LARGE
        enough = bounds.tight_s * objective.time_weight if self.objective == "makespan" else 0.0
        best = allowed[0]
        for place, factor in rounds:
            start = allowed[place] if 0 < place < len(allowed) else best
            found = searcher.improve(
                start, objective, cooling_for(n, factor, for_cost), tries // len(rounds), enough
            )
            if found is not None and found.energy(objective) < best.energy(objective):
                best = found
        return best

    def _rescue(
        self,
        searcher: PlacementSearch,
        starts: list[EvaluatedPlacement],
        objective: SearchObjective,
        tries: int,
    ) -> list[EvaluatedPlacement]:
        """No start keeps the limits: look only for plans that do."""
        for start in sorted(starts, key=lambda each: each.energy(objective))[:3]:
            found = searcher.improve(start, objective, cooling_for(len(searcher.problem.tasks)), tries // 3)
            if found is not None:
                return [found]
        fastest = min(found.makespan_s for found in starts)
        cheapest = min(found.cost_usd for found in starts)
        limits = [] if self.deadline_s is None else [f"{self.deadline_s:g} s"]
        limits += [] if self.budget_usd is None else [f"${self.budget_usd:g}"]
        raise RunFailed(
            f"No plan was found within {' and '.join(limits)}, though nothing proves that there is none; the "
            f"fastest found takes {fastest:.6g} s and the cheapest costs ${cheapest:.4g}; allow more."
        )

    def _front(
        self, searcher: PlacementSearch, pool: list[EvaluatedPlacement], tries: int
    ) -> tuple[ParetoPoint, ...]:
        """Cheap plans for deadlines between the fastest and the cheapest, each from the best known so far."""
        if not self.front:
            return ()
        known = pareto_front(pool)
        fastest, slowest = known[0], known[-1]
        steps, cooling = max(self.front - 1, 1), cooling_for(len(searcher.problem.tasks), for_cost=True)
        ratio = slowest.makespan_s / fastest.makespan_s if fastest.makespan_s > 0 else 1.0
        for step in range(steps, 0, -1):
            deadline_s = fastest.makespan_s * ratio ** (step / steps)
            start = min(
                (each for each in pool if each.makespan_s <= deadline_s), key=lambda each: each.cost_usd
            )
            objective = objective_for("cost", start, deadline_s, math.inf)
            found = searcher.improve(start, objective, cooling, tries // steps)
            if found is not None:
                pool.append(found)
        points = _thinned(pareto_front(pool), self.front)
        return tuple(ParetoPoint.of(each.placement, each.makespan_s, each.cost_usd) for each in points)


def default_evaluations(activations: int) -> int:
    """Enough tries for the search to settle in small workflows; 10 to 20 s of one processor in larger ones.

    A change in a larger workflow takes longer than in proportion, because it no longer fits into caches.

    >>> default_evaluations(8), default_evaluations(1000), default_evaluations(10_000)
    (320000, 1200000, 60142)
    """
    return int(max(min(2_000_000, 40_000 * activations, 1_200_000 * (1000 / activations) ** 1.3), 1))


def cooling_for(activations: int, factor: float = 1.0, for_cost: bool = False) -> CoolingSchedule:
    """Temperatures of about what one activation adds to the energy: the more there are, the less it is.

    The cost seldom depends on what ends last, so a search for cost moves all activations alike.
    """
    first = factor * min(0.1 / activations, 0.01)
    return CoolingSchedule(first, first / 50, 0.1, 0.0) if for_cost else CoolingSchedule(first, first / 50)


def objective_for(
    objective: str, start: EvaluatedPlacement, deadline_s: float, budget_usd: float
) -> SearchObjective:
    """Weights such that a plan one per cent beyond a limit is as bad as one that is 20 per cent worse."""
    usd, seconds = max(start.cost_usd, 1e-12), max(start.makespan_s, 1e-12)
    time_weight, cost_weight = (1.0, 0.0) if objective == "makespan" else (1e-4 * usd / seconds, 1.0)
    scale = seconds if objective == "makespan" else usd
    late = 20.0 * scale / deadline_s if 0 < deadline_s < math.inf else 0.0
    over = 20.0 * scale / budget_usd if budget_usd < math.inf else 0.0
    return SearchObjective(time_weight, cost_weight, deadline_s, late, budget_usd, over)


def _baselines(
    problem: SchedulingProblem, searcher: PlacementSearch, seed: int
) -> dict[str, EvaluatedPlacement]:
    large = len(problem.tasks) * len(problem.lanes) > MANY_PAIRS
    return {
        name: searcher.evaluate(scheduler_named(name).propose(problem, seed).placement)
        for name in (_QUICK_BASELINES if large else BASELINES)
    }


def _thinned(points: list[EvaluatedPlacement], most: int) -> list[EvaluatedPlacement]:
    """At most `most` points, the first and the last among them."""
    if len(points) <= most:
        return points
    if most == 1:
        return points[:1]
    return [points[round(at * (len(points) - 1) / (most - 1))] for at in range(most)]


_MAX_PAIRS = 100_000_000
"""The most pairs of activation and lane that are looked at in all."""


_MAX_SUBFLEETS = 400
"""The most subfleets that are tried."""


def placements_on_subfleets(problem: SchedulingProblem) -> Iterator[Placement]:
    """HEFT's plans on parts of the fleet: mixes of so many VMs of each kind, as many mixes as time allows."""
    per_part = len(problem.tasks) * len(problem.lanes)
    for vms in _subfleets(problem, max(min(_MAX_SUBFLEETS, _MAX_PAIRS // per_part), 1)):
        keep = np.flatnonzero(np.isin(problem.lanes["vm"], vms))
        part = replace(problem, lanes=problem.lanes[keep])
        placement = Heft().propose(part, 0).placement
        yield Placement(keep[placement.lane], placement.order)


def _subfleets(problem: SchedulingProblem, most: int) -> Iterator[Ints]:
    """Sets of VMs, each with the first few of every kind and price; fewer sets when there are many VMs."""
    kinds: dict[tuple[int, float], list[int]] = {}
    for at, vm in enumerate(problem.vms):
        kinds.setdefault((int(vm["kind"]), float(vm["price"])), []).append(at)
    levels = int(most ** (1 / len(kinds)))
    if levels < 2:
        for members in itertools.islice(kinds.values(), most):
            yield np.array(members)
        return
    steps = [_steps(len(members), levels) for members in kinds.values()]
    for counts in itertools.product(*steps):
        chosen = [members[:count] for members, count in zip(kinds.values(), counts, strict=True)]
        if any(chosen):
            yield np.array([at for members in chosen for at in members])


def _steps(count: int, levels: int) -> list[int]:
    """Up to `levels` numbers from 0 to `count`.

    >>> _steps(3, 10), _steps(100, 4)
    ([0, 1, 2, 3], [0, 1, 10, 100])
    """
    if count < levels:
        return list(range(count + 1))
    return [0, *sorted({round(step) for step in np.geomspace(1, count, levels - 1)})]
