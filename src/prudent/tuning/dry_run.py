"""What a study would do and what its budget buys, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prudent.core.units import format_duration, format_money
from prudent.tuning.goal import COST, TIME
from prudent.tuning.history import History
from prudent.tuning.jobs.job import Job, RentingJob
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.strategy import read_options
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Configuration, Proposal

SAMPLED = 2000
"""Configurations whose prices are looked at where there are too many to list."""
SHOWN = 4
"""At most so many of the first trials are shown."""


@dataclass(frozen=True)
class PricePoint:
    """A configuration at the low, middle or high end of prices, and what the budget buys there."""

    which: str
    configuration: Configuration
    usd_per_h: float
    hours: float
    runs: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "which": self.which,
            "configuration": self.configuration,
            "usd_per_h": self.usd_per_h,
            "hours": _finite(self.hours),
            "runs": _finite(self.runs),
        }


@dataclass(frozen=True)
class DryRun:
    """The plan of a study.

    `size` counts the allowed configurations (None: too many to count). `runs` of a price point is how many
    runs the budget pays if each takes as long as the goal allows (inf without such a bound).
    """

    goal: str
    strategy: str
    parameters: tuple[str, ...]
    size: int | None
    prices: tuple[PricePoint, ...]
    sampled: bool
    budget_usd: float | None
    bound_s: float
    first: tuple[tuple[Configuration, float], ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        return {
            "goal": self.goal,
            "strategy": self.strategy,
            "parameters": list(self.parameters),
            "configurations": self.size,
            "prices": [point.to_dict() for point in self.prices],
            "prices_sampled": self.sampled,
            "budget_usd": self.budget_usd,
            "time_bound_s": _finite(self.bound_s),
            "first": [{"configuration": c, "usd_per_h": usd_per_h} for c, usd_per_h in self.first],
            "warnings": list(self.warnings),
        }


def dry_run(job: Job, study: Study) -> DryRun:
    """Look at a study that has not begun; nothing is run and no money is touched."""
    problem, budget = study.problem, study.ledger.budget_usd
    looked_at = _look(problem)
    bound_s = problem.goal.max_time_s
    first = _first(study)
    return DryRun(
        goal=str(problem.goal),
        strategy=study.strategy_name,
        parameters=tuple(str(job.space).splitlines()),
        size=len(looked_at) if problem.listed else job.space.count(),
        prices=_points(looked_at, budget, bound_s),
        sampled=not problem.listed,
        budget_usd=budget,
        bound_s=bound_s,
        first=first,
        warnings=tuple(
            _warnings(job, problem, looked_at, budget, [configuration for configuration, _ in first])
        ),
    )


def endless(study: Study, max_trials: int | None) -> bool:
    """Whether nothing would ever end a study: no money is spent and there is always more to try."""
    if max_trials is not None or study.problem.listed or study.problem.space.finite:
        return False
    return study.ledger.budget_usd is None or float(_look(study.problem).usd_per_h.max(initial=0.0)) == 0.0


def _look(problem: Problem) -> Candidates:
    if problem.listed:
        return problem.everything
    return problem.candidates(problem.space.sample(SAMPLED, np.random.default_rng(0), "random"))


def _points(looked_at: Candidates, budget: float | None, bound_s: float) -> tuple[PricePoint, ...]:
    order = np.argsort(looked_at.usd_per_h, kind="stable")
    places = {"cheapest": order[0], "median": order[(len(order) - 1) // 2], "dearest": order[-1]}
    money = math.inf if budget is None else budget
    bills = looked_at.bill_usd(bound_s)
    points = []
    for which, place in places.items():
        usd_per_h = float(looked_at.usd_per_h[place])
        hours = math.inf if usd_per_h == 0 else money / usd_per_h
        bill_usd = float(bills[place])
        runs = math.inf if bill_usd == 0 or not math.isfinite(bill_usd) else money / bill_usd
        points.append(PricePoint(which, looked_at.configurations[place], usd_per_h, hours, runs))
    return tuple(points)


def _first(study: Study) -> tuple[tuple[Configuration, float], ...]:
    """The first trials, as if all of them were under way at once."""
    pending: list[Proposal] = []
    left = study.ledger.left_usd
    while len(pending) < _starters(study):
        history = History(study.goal, study.known, tuple(pending))
        proposal = study.strategy.propose(history, left)
        if proposal is None:
            break
        pending.append(proposal)
    return tuple((p.configuration, study.problem.price(p.configuration).usd_per_h) for p in pending)


def _starters(study: Study) -> int:
    """How many trials are chosen before anything is learnt."""
    kind = getattr(type(study.strategy), "Options", None)
    if kind is None:
        return SHOWN
    chosen = read_options(kind, study.options, study.strategy_name)
    return min(SHOWN, int(getattr(chosen, "start_trials", SHOWN)))


def _warnings(
    job: Job, problem: Problem, looked_at: Candidates, budget: float | None, first: Sequence[Configuration]
) -> list[str]:
    found = list(job.check()) if isinstance(job, RentingJob) else []
    goal, setup_s = problem.goal, float(getattr(job, "setup_s", 0.0))
    least = float((np.maximum(looked_at.minimum_s, setup_s) * looked_at.usd_per_s).min())  # own time alone
    if least > goal.max_cost_usd:
        found.append(
            f"No configuration can keep {COST} <= {format_money(goal.max_cost_usd)}: the shortest run of the "
            f"cheapest one is billed {format_money(least)}."
        )
    if setup_s >= goal.max_time_s:
        found.append(
            f"No run can keep {TIME} <= {format_duration(goal.max_time_s)}: setting up alone takes "
            f"{format_duration(setup_s)}."
        )
    if float(looked_at.usd_per_h.max()) == 0:
        found.append(
            'Every configuration is free, so the budget limits nothing; say what a run costs with "price".'
        )
        return found
    if budget is None:
        found.append('There is no budget: everything may be tried, whatever it costs; set one with "budget".')
        return found
    return found + _money_warnings(problem, looked_at, budget, first)


def _money_warnings(
    problem: Problem, looked_at: Candidates, budget: float, first: Sequence[Configuration]
) -> list[str]:
    """What the budget is too small for, if every run takes as long as the goal allows."""
    bound_s = problem.goal.max_time_s
    if not math.isfinite(bound_s):
        if problem.early_stop:
            return ['No "time_s <= …" in the goal: the first runs can only be cut when the money is gone.']
        return []
    cheapest = float(looked_at.bill_usd(bound_s).min())
    if cheapest > budget:
        return [
            f"The budget may be too small for even one run: {format_duration(bound_s)} on the cheapest "
            f"configuration cost {format_money(cheapest)}."
        ]
    first_usd = math.fsum(problem.price(configuration).bill_usd(bound_s) for configuration in first)
    if first_usd > budget / 2:
        return [
            f"The first {len(first)} trials may cost up to {format_money(first_usd)} of the "
            f"{format_money(budget)}, if each takes as long as the goal allows."
        ]
    return []


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
