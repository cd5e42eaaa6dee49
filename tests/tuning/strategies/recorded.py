"""Decisions of every strategy on small histories made by hand, and what they were when they were recorded.

    python -m tests.tuning.strategies.recorded

(in the folder of the repository) records them anew, in `recorded.json`. A change there must be meant: it says
that a strategy believes, scores or chooses otherwise than before. Numbers are kept at some candidates and as
moments over all; a choice only where it stays the same when every run time changes by a millionth, so that
another processor or BLAS cannot turn it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.candidates import candidate_pool
from prudent.tuning.strategies.fabulinus import Fabolas
from prudent.tuning.strategies.goal_posterior import bill_usd
from prudent.tuning.strategies.lynceus import Lynceus
from prudent.tuning.strategies.registry import build
from prudent.tuning.strategies.strategy import PredictiveStrategy
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Proposal, Trial

FILE = Path(__file__).with_name("recorded.json")
SEED = 3
PLACES = 5
"""At so many candidates, evenly spread, a number is kept as it is."""
SPEED, USD_PER_H = {"a": 1.0, "b": 1.9, "c": 3.1}, {"a": 0.4, "b": 0.9, "c": 1.7}

Told = dict[str, Any]


@dataclass(frozen=True)
class World:
    """What can be chosen and what is wanted; `billed` prices have a minimum, boot time and steps."""

    parameters: dict[str, Any]
    goal: str
    fraction: str | None = None
    early_stop: bool = True
    billed: bool = False

    def problem(self) -> Problem:
        return Problem(
            Space.parse(self.parameters),
            Goal.parse(self.goal),
            self.price,
            ("accuracy", "memory_mb", "loss"),
            self.fraction,
            self.early_stop,
        )

    def price(self, c: Configuration) -> Price:
        usd_per_h = USD_PER_H[c["vm"]] * int(c["n"])
        return (
            Price(usd_per_h, "", "test", 60.0, 20.0, 15.0, 5.0) if self.billed else Price(usd_per_h, "", "")
        )


def run(c: Configuration) -> tuple[float, dict[str, float]]:
    """Seconds and measures: no two configurations alike."""
    share, n = float(c.get("s", 1.0)), int(c["n"])
    rate = math.log10(float(c.get("rate", 1e-3))) + 3.0
    time_s = 6 + 700 * share / (SPEED[c["vm"]] * n**0.75) * (1 + 0.1 * rate**2) + 3.1 * n
    odds = 2.4 + 0.5 * math.log(share) - 0.9 * abs(rate - 0.3) - 0.11 * n + 0.07 * SPEED[c["vm"]]
    accuracy = 1 / (1 + math.exp(-odds))
    memory_mb = 900 * share + 2600 / n + 140 * USD_PER_H[c["vm"]]
    return time_s, {"accuracy": accuracy, "memory_mb": memory_mb, "loss": 0.3 - odds}


@dataclass(frozen=True)
class Past:
    """Which configurations of the space were tried, every `stride`-th, and how they ended."""

    count: int
    stride: int
    cut: dict[int, float | None] = field(default_factory=dict)
    """Place in the history: what its full time was estimated as, relative to where it was cut at 60 %."""
    failed: tuple[int, ...] = ()
    errors: tuple[float, ...] = ()
    """How far off estimates were for the first runs that finished."""
    pending: int = 0

    def history(self, problem: Problem, jitter: float = 0.0) -> History:
        everything = problem.everything.configurations
        below = [c for c in everything if problem.fraction is None or not problem.goal.at_full_data
                 or not problem.is_full(c)]  # fmt: skip
        chosen = [below[(7 + place * self.stride) % len(below)] for place in range(self.count + self.pending)]
        errors, trials = list(self.errors), []
        for place, c in enumerate(chosen[: self.count]):
            trials.append(self._trial(problem, place, c, errors, jitter))
        under_way = tuple(Proposal(c, expected_usd=0.02) for c in chosen[self.count :])
        return History(problem.goal, tuple(trials), under_way)

    def _trial(
        self, problem: Problem, place: int, c: Configuration, errors: list[float], jitter: float
    ) -> Trial:
        time_s, measures = run(c)
        time_s *= 1 + jitter * math.cos(place)
        estimate: dict[str, float] = {}
        status = CUT if place in self.cut else FAILED if place in self.failed else FINISHED
        if status == CUT:
            time_s *= 0.6
            measures = {**measures, "accuracy": 0.8 * measures["accuracy"]}
            stretch = self.cut[place]
            if stretch is not None:
                estimate["time_s"] = stretch * time_s
        elif status == FAILED:
            time_s, measures = 0.3 * time_s, {}
        elif errors:
            estimate["log_error"] = errors.pop(0)
        cost = time_s * problem.price(c).usd_per_h / 3600
        values = {**measures, "time_s": time_s, "cost_usd": cost}
        feasible = status == FINISHED and problem.goal.feasible(values)
        return Trial(place + 1, c, status, time_s, cost, cost, measures, feasible, estimate=estimate)


CLUSTER = {"vm": ["a", "b", "c"], "n": [1, 2, 3, 5, 8], "rate": [1e-4, 1e-3, 1e-2]}
PARTS = {"vm": ["a", "b"], "n": [1, 2, 4], "rate": [1e-4, 1e-3, 1e-2], "s": [0.05, 0.1, 0.3, 1.0]}
CHEAP = World(CLUSTER, "minimise cost_usd subject to time_s <= 260 and accuracy >= 0.8 and cost_usd <= 2",
              billed=True)  # fmt: skip
PATIENT = replace(CHEAP, early_stop=False, billed=False)
HARD = replace(CHEAP, goal="minimise cost_usd subject to accuracy >= 0.97 and time_s >= 20")
BEST = World(CLUSTER, "maximise accuracy subject to cost_usd <= 0.09 and memory_mb <= 2500")
FASTEST = World(CLUSTER, "minimise time_s subject to cost_usd <= 0.12 and loss <= -1.2", billed=True)
SAMPLED = World(PARTS, "minimise cost_usd subject to accuracy >= 0.75 and time_s <= 400", "s")
AT_FULL = World(PARTS, "maximise accuracy at full data subject to cost_usd <= 0.09 at full data", "s")
LOSS_AT_FULL = World(
    PARTS,
    "minimise loss at full data subject to time_s <= 500 at full data, cost_usd >= 0.001 at full data, "
    "cost_usd <= 0.2 at full data",
    "s",
    billed=True,
)
CHEAP_AT_FULL = World(
    PARTS, "minimise cost_usd at full data subject to accuracy >= 0.85 at full data, memory_mb <= 4000 "
    "at full data", "s",
)  # fmt: skip
FREE_AT_FULL = replace(AT_FULL, goal="maximise accuracy at full data")

FEW = Past(5, 8)
MIXED = Past(10, 13, {3: None, 6: 1.6}, (4,), (0.1, -0.2), pending=1)
DOUBTED = Past(9, 11, {2: 2.5, 5: None}, (7,), (0.9, -0.8, 1.1))
CUT_MOSTLY = Past(6, 17, {0: None, 1: 1.8, 2: None, 4: None}, ())
LONG = Past(31, 4, {8: None, 20: 1.5}, (12, 27), (0.3, 0.1, -0.4))
PARTLY = Past(12, 11, {3: None, 6: 1.6}, (4,), pending=2)
WHOLLY = Past(13, 5)


@dataclass(frozen=True)
class Case:
    """One decision."""

    strategy: str
    world: World
    past: Past
    money_usd: float
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "prudent first": Case("prudent", CHEAP, Past(0, 1), 0.9),
    "prudent mixed": Case("prudent", CHEAP, MIXED, 0.9),
    "prudent cut mostly": Case("prudent", CHEAP, CUT_MOSTLY, 0.5),
    "prudent nothing feasible": Case("prudent", HARD, DOUBTED, 2.0),
    "prudent fastest": Case("prudent", FASTEST, LONG, 0.8),
    "prudent best": Case("prudent", BEST, MIXED, 1.0),
    "prudent sampled": Case("prudent", SAMPLED, PARTLY, 0.5),
    "lynceus mixed": Case("lynceus", CHEAP, MIXED, 0.9),
    "lynceus doubted": Case("lynceus", PATIENT, DOUBTED, 0.12),
    "lynceus cut mostly": Case("lynceus", CHEAP, CUT_MOSTLY, 0.5),
    "lynceus long": Case("lynceus", CHEAP, LONG, 3.0),
    "lynceus nothing feasible": Case("lynceus", HARD, DOUBTED, 2.0),
    "lynceus best": Case("lynceus", BEST, MIXED, 1.0, {"lookahead": 1}),
    "lynceus fastest": Case("lynceus", FASTEST, DOUBTED, 0.8, {"lookahead": 1, "gamma": 0.7, "nodes": 2}),
    "lynceus two ahead": Case("lynceus", CHEAP, DOUBTED, 0.4, {"lookahead": 2, "confidence": 0.8}),
    "lynceus first": Case("lynceus", CHEAP, Past(2, 5, failed=(1,)), 0.4),
    "lynceus failed only": Case("lynceus", CHEAP, Past(4, 5, failed=(0, 1, 2, 3)), 0.07),
    "obol": Case("obol", CHEAP, MIXED, 0.7, {"start_trials": 4, "lookahead": 1, "trees": 6}),
    "obol best": Case("obol", BEST, MIXED, 1.5, {"start_trials": 4, "lookahead": 0}),
    "obol first": Case("obol", CHEAP, FEW, 0.7),
    "cherrypick": Case("cherrypick", CHEAP, MIXED, 0.8, {"stop_below": 0.0}),
    "cherrypick enough": Case("cherrypick", PATIENT, LONG, 0.8),
    "gp-ei": Case("gp-ei", FASTEST, DOUBTED, 0.8),
    "gp-eic": Case("gp-eic", SAMPLED, PARTLY, 0.8),
    "nephele": Case("nephele", SAMPLED, PARTLY, 0.5),
    "nephele chooses": Case("nephele", SAMPLED, PARTLY, 0.5, {"halving": 0}),
    "nephele first": Case("nephele", SAMPLED, Past(0, 1), 0.5),
    "nephele means": Case(
        "nephele", SAMPLED, PARTLY, 0.5,
        {"feasible": "means", "halving": 0, "lookahead": 1, "accuracy_nodes": 3},
    ),
    "nephele hopeless": Case(
        "nephele", replace(SAMPLED, goal="minimise cost_usd subject to accuracy >= 0.99"), PARTLY, 0.5,
        {"feasible": "means", "halving": 0, "drop": False},
    ),
    "nephele whole data": Case("nephele", CHEAP_AT_FULL, PARTLY, 0.5),
    "hyperband": Case("hyperband", AT_FULL, FEW, 1.0),
    "hyperband climbs": Case("hyperband", SAMPLED, Past(22, 12, failed=(3,)), 1.0),
    "bohb": Case("bohb", AT_FULL, Past(40, 5), 1.0, {"random_share": 0.0}),
    "random": Case("random", CHEAP, MIXED, 0.5),
    "grid": Case("grid", CHEAP, MIXED, 0.009),
    "fabolas": Case("fabolas", AT_FULL, PARTLY, 0.4),
    "fabolas as published": Case("fabolas", AT_FULL, WHOLLY, 0.4, {"curves": "paper", "nodes": 5}),
    "fabolas loss": Case("fabolas", LOSS_AT_FULL, WHOLLY, 0.4),
    "fabolas narrow": Case("fabolas", AT_FULL, WHOLLY, 0.4, {"breadth": 9, "representers": 6, "draws": 16}),
    "fabolas trees": Case("fabolas", AT_FULL, PARTLY, 0.4, {"surrogate": "trees"}),
    "fabulinus": Case("fabulinus", AT_FULL, PARTLY, 0.4),
    "fabulinus loss": Case("fabulinus", LOSS_AT_FULL, WHOLLY, 0.02, {"confidence": 0.8}),
    "fabulinus cheap": Case("fabulinus", CHEAP_AT_FULL, PARTLY, 0.3),
    "fabulinus free": Case("fabulinus", FREE_AT_FULL, WHOLLY, 0.3),
    "fabulinus as published": Case(
        "fabulinus", AT_FULL, WHOLLY, 0.4, {"acquisition": "es", "curves": "paper"}
    ),
    "fabulinus trees": Case("fabulinus", CHEAP_AT_FULL, PARTLY, 0.4, {"surrogate": "trees", "beta": 0.5}),
}  # fmt: skip


def decision(case: Case, jitter: float = 0.0) -> Told:
    """What a strategy believes and scores, and what it proposes, recommends and predicts."""
    problem = case.world.problem()
    history = case.past.history(problem, jitter)
    strategy = build(case.strategy, problem, case.options, SEED)
    proposal = strategy.propose(history, case.money_usd)
    out: Told = {"choice": _proposed(proposal, problem), "recommended": strategy.recommend(history)}
    if isinstance(strategy, Lynceus) and not strategy._is_early(history):
        out["beliefs"] = _of_lynceus(strategy, problem, history, case.money_usd)
    if isinstance(strategy, Fabolas):
        out["beliefs"] = _of_fabolas(strategy, history, case.money_usd)
    if isinstance(strategy, PredictiveStrategy):
        everything = problem.everything.configurations
        out["predicted"] = [strategy.predict(history, everything[place]) for place in (5, 44)]
    return out


def _proposed(proposal: Proposal | None, problem: Problem) -> Told | None:
    if proposal is None:
        return None
    return {
        "index": problem.index(proposal.configuration),
        "why": proposal.why,
        "usd": [proposal.expected_usd, proposal.likely_usd, proposal.cap_usd],
    }


def _of_lynceus(strategy: Lynceus, problem: Problem, history: History, money_usd: float) -> Told:
    pool, fresh = candidate_pool(problem, history, SEED, strategy._full_only)
    eligible = strategy._eligible(pool, history)
    belief, acquisition = strategy._acquisition(history, pool)
    best = strategy._best_loss(history, belief)
    reward = acquisition.reward(belief.mean, belief.std, best)
    bill = acquisition.bill(belief.mean, belief.std, best, money_usd)
    affordable = acquisition.affordable(
        belief.mean, belief.std, money_usd, strategy._lookahead_settings().confidence_z
    )
    return {
        "candidates": [int(mask.sum()) for mask in (fresh, eligible, fresh & eligible, affordable)],
        "best": best,
        "objective": [_digest(belief.mean), _digest(belief.std)],
        "cost": [_digest(acquisition.cost_mean), _digest(acquisition.cost_std)],
        "limits": [
            _digest(one)
            for one in (acquisition.bound, acquisition.floor, acquisition.cap, acquisition.others)
        ],
        "margins": [[_digest(margin.mean), _digest(margin.std)] for margin in acquisition.margins],
        "reward": _digest(reward),
        "bill": _digest(bill),
    }


def _of_fabolas(strategy: Fabolas, history: History, money_usd: float) -> Told:
    view = strategy._snapshot(history)
    tests = strategy._affordable(view, money_usd)
    bill = bill_usd(view.pool, view.cost, tests)
    curves = {"cost": view.cost, **{name: curve for name, (curve, _) in view.measures.items()}}
    prospect, full = view.posterior, view.pool.full
    return {
        "candidates": [len(view.pool), len(full), len(view.pool.tests), len(tests)],
        "curves": {name: [_digest(curve.mean), _digest(curve.std)] for name, curve in curves.items()},
        "bands": [
            [_digest(interval.lower[full]), _digest(interval.upper[full])] for interval in prospect.intervals
        ],
        "allowed": _digest(prospect.probability(full)),
        "missed": _digest(prospect.excess(full)),
        "bill": _digest(bill),
        "told": _digest(strategy._information(view, tests, bill)),
    }


def _digest(values: Any) -> list[float]:
    """How many are finite, their mean and deviation, and some of them."""
    values = np.asarray(values, dtype=np.float64)
    finite = values[np.isfinite(values)]
    some = np.clip(values[np.linspace(0, len(values) - 1, PLACES).astype(int)], -1e9, 1e9)
    moments = [float(finite.mean()), float(finite.std())] if len(finite) else [0.0, 0.0]
    return [len(finite), *moments, *(float(one) for one in some)]


def rounded(said: Any) -> Any:
    """Ten digits are enough to compare and leave the file readable."""
    match said:
        case float():
            return float(f"{said:.10g}")
        case dict():
            return {name: rounded(value) for name, value in said.items()}
        case list() | tuple():
            return [rounded(value) for value in said]
    return said


def record(case: Case, say: Callable[[str], object]) -> Told:
    """A decision, without the choice where a little more or less of a time would turn it."""
    said = decision(case)
    moved = [decision(case, jitter) for jitter in (1e-6, -1e-6)]
    for what in ("choice", "recommended"):
        if any(_steady(one[what]) != _steady(said[what]) for one in moved):
            say(f"{what} hangs by a thread")
            del said[what]
    return rounded(said)


def _steady(said: Any) -> Any:
    return said["index"] if isinstance(said, dict) and "index" in said else said


def main() -> None:
    said = {}
    for name, case in CASES.items():
        said[name] = record(case, lambda text, name=name: sys.stderr.write(f"{name}: {text}\n"))
    lines = (f" {json.dumps(name)}: {json.dumps(told)}" for name, told in said.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
