"""What every strategy owes to a study, whichever it is: the same suite for all that are registered."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.core.space import Space
from prudent.tuning.history import History
from prudent.tuning.strategies import candidates as pool
from prudent.tuning.strategies.registry import build, strategies
from prudent.tuning.strategies.strategy import Strategy
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Outcome
from prudent.tuning.tune import tune

from ..metered import MeteredJob

FULL_ONLY = ("cherrypick", "gp-ei", "gp-eic")
OF_FRACTIONS = ("hyperband", "bohb", "fabolas", "fabulinus")
OF_PARTS = ("fabolas", "fabulinus")
"""Of these a part of the data must be something that can be run."""
OPTIONS: dict[tuple[str, bool], dict[str, Any]] = {
    ("obol", True): {"lookahead": 1, "start_trials": 4, "trees": 4},
    ("obol", False): {"lookahead": 0, "start_trials": 4, "trees": 4},
}
"""By strategy and whether the space is finite: less thought where the usual would take the suite minutes."""


@dataclass(frozen=True, eq=False)
class World:
    """A job to search: what can be chosen, what is wanted, and how a run comes out."""

    parameters: dict[str, Any]
    goal: str
    rule: str | None = None
    fraction: str | None = None

    @property
    def space(self) -> Space:
        return Space.parse(self.parameters, rule=self.rule)

    def suits(self, strategy: str) -> bool:
        """A strategy may refuse a job that lacks what it is about: listed values, or shares of the data."""
        if strategy in OF_PARTS and self.parameters.get("s") == [1.0]:
            return False
        if strategy in OF_FRACTIONS:
            return self.fraction is not None
        return strategy != "grid" or self.space.finite

    def study(self, strategy: str, seed: int = 1) -> Study:
        return Study(
            self.space,
            self.goal,
            price,
            None,
            strategy,
            OPTIONS.get((strategy, self.space.finite)),
            measures=["accuracy"],
            fraction=self.fraction,
            seed=seed,
        )

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


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every strategy owes does not depend on how many configurations a decision looks at."""
    monkeypatch.setattr(pool, "SAMPLED", 128)
    monkeypatch.setattr(pool, "NEIGHBOURS", 8)


def suited(worlds: dict[str, World], soak: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Every strategy in each of these worlds that it is for; some of the worlds only in the soak."""
    pairs = [
        pytest.param(name, world, id=f"{name}-{place}", marks=[pytest.mark.soak] if place in soak else [])
        for name in strategies()
        for place, world in worlds.items()
        if world.suits(name)
    ]
    return pytest.mark.parametrize(("name", "world"), pairs)


def worlds(*names: str) -> dict[str, World]:
    return {name: ALL[name] for name in names}


def varied() -> pytest.MarkDecorator:
    """Listed values under a rule, shares of the data, and a space without end: one of each.

    Shares without end, which take long, are for strategies about shares.
    """
    pairs = [
        pytest.param(name, world, id=f"{name}-{place}")
        for name in strategies()
        for place, world in worlds(
            "ruled", "at full data", "endless sampled" if name in OF_FRACTIONS else "endless"
        ).items()
        if world.suits(name)
    ]
    return pytest.mark.parametrize(("name", "world"), pairs)


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


@functools.cache
def walked(name: str, world: World) -> Study:
    """A study with a failure and a cut behind it, to look at: what asks or tells makes its own."""
    study = world.study(name)
    walk(study, 5, change=trouble)
    return study


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


@suited(FINITE, soak=("cluster", "best"))
def test_never_repeats_itself_and_stops_when_everything_was_tried(name: str, world: World) -> None:
    study = world.study(name)
    size = study.problem.space.count()
    assert size is not None
    asked = walk(study, size + 5)
    assert 1 <= len(asked) <= size
    check(study, asked)
    assert study.ask() is None


@varied()
def test_is_pure_so_a_resumed_study_goes_on_alike(name: str, world: World) -> None:
    for study in (world.study(name), walked(name, world)):
        resumed = world.fresh(study)
        assert resumed.propose(study.history, math.inf) == study.strategy.propose(study.history, math.inf)
        assert resumed.recommend(study.history) == study.strategy.recommend(study.history)


@every_strategy
def test_another_seed_searches_otherwise_and_the_same_one_does_not(name: str) -> None:
    first = walk(SAMPLED.study(name, seed=5), 6)
    assert walk(SAMPLED.study(name, seed=5), 6) == first
    others = [walk(SAMPLED.study(name, seed=seed), 6) for seed in (6, 7, 8)]
    if name == "grid":
        assert others == [first] * 3
    else:
        assert any(other != first for other in others)


@varied()
def test_copes_with_failures_cuts_and_trials_under_way(name: str, world: World) -> None:
    study = world.study(name)
    asked = walk(study, 11, parallel=3, change=trouble)
    assert len(asked) >= 3
    check(study, asked)


@varied()
def test_goes_on_when_everything_so_far_failed(name: str, world: World) -> None:
    study = world.study(name)

    def fail(number: int, outcome: Outcome) -> Outcome:
        return replace(outcome, status=FAILED, measures={}, why=f"trial {number} broke")

    asked = walk(study, 6, change=fail)
    assert len(asked) == 6
    check(study, asked)
    assert study.best is None


@suited(worlds("endless"))
def test_searches_spaces_without_end(name: str, world: World) -> None:
    study = world.study(name)
    asked = walk(study, 9)
    assert len(asked) == 9 or name == "cherrypick"
    check(study, asked)


LONE = {
    "one": World({"vm": ["a"], "n": [2]}, "minimise cost_usd"),
    "constants": World({"vm": {"constant": "a"}, "n": {"constant": 2}}, "minimise cost_usd"),
    "one share": World({"vm": ["a"], "n": [2], "s": [1.0]}, "minimise cost_usd", fraction="s"),
}


@suited(LONE)
def test_one_configuration_is_run_once(name: str, world: World) -> None:
    study = world.study(name)
    [only] = world.space.configurations()
    assert walk(study, 5) == [only]
    assert study.recommended == only


@varied()
def test_takes_little_money_calmly(name: str, world: World) -> None:
    study = walked(name, world)
    for left in (1e-6, 0.05):
        proposal = study.strategy.propose(study.history, left)
        if proposal is not None:
            assert proposal.configuration in study.problem.space
            assert proposal.likely_usd is None or proposal.likely_usd <= left * (1 + 1e-9)


@varied()
def test_recommends_nothing_before_the_first_trial(name: str, world: World) -> None:
    study = world.study(name)
    assert study.strategy.recommend(History(study.goal)) is None


@suited(worlds("cluster", "sampled"))
@pytest.mark.parametrize("budget_usd", [0.2, 3.0])
def test_the_budget_holds_by_a_meter_of_the_jobs_own(name: str, world: World, budget_usd: float) -> None:
    job = MeteredJob(world.space, run, price, ["accuracy"], world.fraction)
    options = OPTIONS.get((name, True))
    result = tune(job, world.goal, budget_usd, name, options, seed=1, parallel=2)
    assert budget_usd < 1 or any(trial.finished for trial in result.trials)
    assert sorted(trial.number for trial in result.trials) == sorted(job.runs)
    for trial in result.trials:
        assert trial.time_s == pytest.approx(job.runs[trial.number].lasted_s)
        assert trial.spent_usd == pytest.approx(job.runs[trial.number].used_usd)
    assert result.spent_usd == pytest.approx(job.used_usd)
    assert 0.0 < job.used_usd <= budget_usd + 1e-9


@pytest.mark.parametrize("name", [name for name in strategies() if not CLUSTER.suits(name)])
def test_a_strategy_refuses_a_job_without_shares_of_the_data(name: str) -> None:
    for world in (CLUSTER, ENDLESS):
        with pytest.raises(BadInput, match=r"fraction|full data"):
            world.study(name)


@pytest.mark.parametrize("name", OF_PARTS)
def test_a_strategy_refuses_a_job_without_smaller_shares(name: str) -> None:
    with pytest.raises(BadInput, match=r'The fraction "s" has no value below 1; add smaller ones\.'):
        LONE["one share"].study(name)


def test_a_grid_needs_listed_values() -> None:
    with pytest.raises(BadInput, match=r'infinite in "rate"; sample it, or list'):
        ENDLESS.study("grid").ask()


@pytest.mark.parametrize("name", FULL_ONLY)
@pytest.mark.parametrize("world", [SAMPLED, AT_FULL], ids=["sampled", "at full data"])
def test_what_knows_nothing_of_fractions_uses_the_full_data(name: str, world: World) -> None:
    study = world.study(name)
    assert all(study.problem.is_full(configuration) for configuration in walk(study, 6))
