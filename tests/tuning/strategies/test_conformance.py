"""What every strategy owes to a study, whichever it is: the same suite for all that are registered."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.core.space import Space
from prudent.tuning.history import History
from prudent.tuning.strategies.registry import build, strategies
from prudent.tuning.strategies.strategy import Strategy
from prudent.tuning.study import Study
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Outcome

PATIENCE = 60
FULL_ONLY = ("cherrypick", "gp-ei", "gp-eic")
OPTIONS: dict[tuple[str, bool], dict[str, Any]] = {
    ("obol", True): {"lookahead": 1, "start_trials": 4, "trees": 4},
    ("obol", False): {"lookahead": 0, "start_trials": 4, "trees": 4},
}
"""By strategy and whether the space is finite: less thought where the usual would take the suite minutes."""


@dataclass(frozen=True)
class World:
    """A job to search: what can be chosen, what is wanted, and how a run comes out."""

    parameters: dict[str, Any]
    goal: str
    rule: str | None = None
    fraction: str | None = None

    def study(self, strategy: str, seed: int = 1, **more: Any) -> Study:
        space = Space.parse(self.parameters, rule=self.rule)
        if strategy == "grid" and not space.finite:
            pytest.skip("a grid needs listed values")
        try:
            return Study(
                space,
                self.goal,
                price,
                more.pop("budget_usd", None),
                strategy,
                OPTIONS.get((strategy, space.finite)),
                measures=["accuracy"],
                fraction=self.fraction,
                seed=seed,
                **more,
            )
        except BadInput as refusal:
            # A strategy may refuse a job that lacks what it is about; then it says what to add or choose.
            if not any(word in str(refusal) for word in ("fraction", "full data")):
                raise
            pytest.skip(f"{strategy} is not for this job: {refusal}")

    def fresh(self, study: Study) -> Strategy:
        return build(study.strategy_name, study.problem, study.options, study.seed)


CLUSTER = World({"vm": ["a", "b", "c"], "n": [1, 2, 4, 8]}, "minimise cost_usd subject to time_s <= 200")
RULED = World(
    {"vm": ["a", "b", "c"], "n": {"integer": [1, 6]}, "epochs": 3},
    "minimise cost_usd subject to accuracy >= 0.6",
    rule="not (vm == 'c' and n > 2)",
)
SAMPLED = World(
    {"vm": ["a", "b"], "n": [1, 2, 4], "s": [0.1, 0.3, 1.0]},
    "minimise cost_usd subject to accuracy >= 0.7 and time_s <= 300",
    fraction="s",
)
AT_FULL = World(
    {"vm": ["a", "b"], "n": [1, 2, 4], "s": [0.1, 0.3, 1.0]},
    "maximise accuracy at full data subject to cost_usd <= 0.2 at full data",
    fraction="s",
)
ENDLESS = World(
    {"n": {"integer": [1, 64]}, "rate": {"log": [1e-4, 1.0]}}, "minimise cost_usd subject to accuracy >= 0.6"
)
ENDLESS_SAMPLED = World(
    {"n": {"integer": [1, 64]}, "rate": {"log": [1e-4, 1.0]}, "s": {"log": [0.02, 1.0]}},
    "maximise accuracy at full data subject to cost_usd <= 1 at full data",
    fraction="s",
)
BEST = World({"vm": ["a", "b", "c"], "n": [1, 2, 4, 8]}, "maximise accuracy subject to cost_usd <= 0.5")
FASTEST = World({"vm": ["a", "b", "c"], "n": [1, 2, 4, 8]}, "minimise time_s subject to cost_usd <= 0.5")

FINITE = {
    "cluster": CLUSTER,
    "ruled": RULED,
    "sampled": SAMPLED,
    "at full data": AT_FULL,
    "best": BEST,
    "fastest": FASTEST,
}
ALL = {**FINITE, "endless": ENDLESS, "endless sampled": ENDLESS_SAMPLED}

every_strategy = pytest.mark.parametrize("name", strategies())
finite_worlds = pytest.mark.parametrize("world", FINITE.values(), ids=FINITE)
all_worlds = pytest.mark.parametrize("world", ALL.values(), ids=ALL)


def price(configuration: Configuration) -> float:
    return {"a": 1.0, "b": 2.0, "c": 4.0}.get(str(configuration.get("vm")), 1.5) * int(
        configuration.get("n", 1)
    )


def run(configuration: Configuration) -> Outcome:
    """Faster with more machines up to a point; more accurate with more data and a middling rate."""
    n, share = int(configuration.get("n", 1)), float(configuration.get("s", 1.0))
    speed = {"a": 1.0, "b": 1.7, "c": 3.5}.get(str(configuration.get("vm")), 1.0)
    miss = abs(math.log10(float(configuration.get("rate", 0.01))) + 2.0)
    time_s = 5.0 + 600.0 * share / (speed * n**0.8) + 4.0 * n
    accuracy = 0.95 - 0.12 * miss - 0.25 * (1.0 - share) ** 2 - 0.01 * n
    return Outcome(FINISHED, time_s, {"accuracy": max(accuracy, 0.0)})


def trouble(number: int, outcome: Outcome) -> Outcome:
    """The same run when every third fails and every fourth is cut half-way."""
    if number % 3 == 0:
        return replace(outcome, status=FAILED, time_s=1.0, measures={}, why="no memory")
    if number % 4 == 0:
        seen = {name: value * 0.6 for name, value in outcome.measures.items()}
        return replace(outcome, status=CUT, time_s=outcome.time_s / 2, measures=seen, why="too slow")
    return outcome


def walk(
    study: Study, trials: int, parallel: int = 1, change: Callable[[int, Outcome], Outcome] | None = None
) -> list[Configuration]:
    """Run a study; the configurations that it asked for, in order."""
    asked: list[Configuration] = []
    while len(asked) < trials:
        batch = []
        for _ in range(min(parallel, trials - len(asked))):
            ask = study.ask()
            if ask is None:
                break
            batch.append(ask)
            asked.append(ask.configuration)
        if not batch:
            break
        for ask in reversed(batch):
            outcome = run(ask.configuration)
            study.tell(ask.number, change(ask.number, outcome) if change else outcome)
    return asked


def check(study: Study, asked: list[Configuration]) -> None:
    """Nothing was asked twice, everything is in the space, and so is what is recommended."""
    space = study.problem.space
    assert all(configuration in space for configuration in asked)
    keys = [space.key(configuration) for configuration in asked]
    assert len(set(keys)) == len(keys)
    recommended = study.recommended
    assert recommended is None or recommended in space
    if recommended is not None and study.goal.speaks_of_full_data:
        assert study.problem.is_full(recommended)


@every_strategy
@finite_worlds
def test_never_repeats_itself_and_stops_when_everything_was_tried(name: str, world: World) -> None:
    study = world.study(name)
    size = study.problem.space.count()
    assert size is not None
    asked = walk(study, size + 5)
    assert 1 <= len(asked) <= size
    check(study, asked)
    assert study.ask() is None


@every_strategy
@all_worlds
def test_is_pure_so_a_resumed_study_goes_on_alike(name: str, world: World) -> None:
    study = world.study(name)
    for _ in range(7):
        again = world.fresh(study).propose(study.history, math.inf)
        assert study.strategy.propose(study.history, math.inf) == again
        assert study.strategy.recommend(study.history) == world.fresh(study).recommend(study.history)
        if not walk(study, 1, change=trouble):
            break


@every_strategy
@all_worlds
def test_another_seed_may_search_otherwise_but_the_same_one_does_not(name: str, world: World) -> None:
    assert walk(world.study(name, seed=5), 6) == walk(world.study(name, seed=5), 6)


@every_strategy
@all_worlds
def test_copes_with_failures_cuts_and_trials_under_way(name: str, world: World) -> None:
    study = world.study(name)
    asked = walk(study, 11, parallel=3, change=trouble)
    assert len(asked) >= 3
    check(study, asked)


@every_strategy
@all_worlds
def test_goes_on_when_everything_so_far_failed(name: str, world: World) -> None:
    study = world.study(name)

    def fail(number: int, outcome: Outcome) -> Outcome:
        return replace(outcome, status=FAILED, measures={}, why=f"trial {number} broke")

    asked = walk(study, 6, change=fail)
    assert len(asked) == 6
    check(study, asked)
    assert study.best is None


@every_strategy
@pytest.mark.parametrize("world", [ENDLESS, ENDLESS_SAMPLED], ids=["endless", "endless sampled"])
def test_searches_spaces_without_end(name: str, world: World) -> None:
    study = world.study(name)
    asked = walk(study, 9)
    assert len(asked) == 9 or name == "cherrypick"
    check(study, asked)


@every_strategy
@pytest.mark.parametrize(
    "parameters",
    [{"vm": ["a"], "n": [2]}, {"vm": {"constant": "a"}, "n": {"constant": 2}}],
    ids=["one", "constants"],
)
def test_one_configuration_is_run_once(name: str, parameters: dict[str, Any]) -> None:
    study = World(parameters, "minimise cost_usd").study(name)
    assert walk(study, 5) == [{"vm": "a", "n": 2}]
    assert study.recommended == {"vm": "a", "n": 2}


@every_strategy
@all_worlds
def test_takes_little_money_calmly(name: str, world: World) -> None:
    study = world.study(name)
    walk(study, 5)
    for left in (1e-6, 0.001, 0.05):
        proposal = study.strategy.propose(study.history, left)
        if proposal is not None:
            assert proposal.configuration in study.problem.space
            assert proposal.likely_usd is None or proposal.likely_usd <= left * (1 + 1e-9)


@every_strategy
@all_worlds
def test_recommends_nothing_before_the_first_trial(name: str, world: World) -> None:
    study = world.study(name)
    recommended = study.strategy.recommend(History(study.goal))
    assert recommended is None or recommended in study.problem.space


@every_strategy
@pytest.mark.parametrize("budget_usd", [0.2, 1.0])
def test_the_budget_holds(name: str, budget_usd: float) -> None:
    for world in (CLUSTER, SAMPLED):
        try:
            study = world.study(name, budget_usd=budget_usd)
        except pytest.skip.Exception:
            continue
        walk(study, PATIENCE)
        assert study.spent_usd <= budget_usd * (1 + 1e-9)


@pytest.mark.parametrize("name", FULL_ONLY)
@pytest.mark.parametrize("world", [SAMPLED, AT_FULL], ids=["sampled", "at full data"])
def test_what_knows_nothing_of_fractions_uses_the_full_data(name: str, world: World) -> None:
    study = world.study(name)
    assert all(study.problem.is_full(configuration) for configuration in walk(study, 6))
