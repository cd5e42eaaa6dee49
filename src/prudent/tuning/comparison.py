"""Strategies beside each other: a table of measured runs, replayed by each of them with many seeds.

The table knows the true optimum, so every answer is judged by what its configuration was measured to be,
whether the strategy has run it or only recommends it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from prudent.core.documents import read_yaml
from prudent.core.errors import BadInput
from prudent.core.units import USD, parse_in
from prudent.tuning.goal import COST, Goal
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.registry import build, default_strategy, strategies
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Configuration
from prudent.tuning.tune import Event, TrialEnded, tune

ALL = "all"
AVERAGE = "avg"
SAME = 1e-9
"""Answers that differ from the optimum by no more than this share of it are the optimum."""


@dataclass(frozen=True)
class Contender:
    """A strategy with its options, as it is named: `lynceus`, or `lynceus:as=published:lookahead=2`.

    >>> Contender.parse("lynceus:lookahead=1").options
    {'lookahead': 1}
    """

    name: str
    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Contender:
        strategy, *settings = (part.strip() for part in text.split(":"))
        options = {}
        for setting in settings:
            name, sign, value = setting.partition("=")
            if not sign or not name.strip() or not value.strip():
                raise BadInput(f'"{text}" is no strategy with options; write it like lynceus:lookahead=1.')
            options[name.strip()] = read_yaml(value)
        return cls(text.strip(), strategy, options)


@dataclass(frozen=True)
class ReplayStep:
    """How a replay stood after a trial: the money spent, and the objective of its answer, if it had one."""

    spent_usd: float
    value: float | None


@dataclass(frozen=True)
class Replay:
    """One strategy with one seed; `broken` says that its answer does not keep the goal."""

    seed: int
    steps: tuple[ReplayStep, ...]
    spent_usd: float
    value: float | None
    configuration: Configuration | None
    broken: bool
    decision_s: float

    @property
    def runs(self) -> int:
        """NEX: how many runs were made."""
        return len(self.steps)

    def value_at(self, usd: float) -> float | None:
        """The objective of the answer when so much had been spent."""
        known = [step.value for step in self.steps if step.spent_usd <= usd * (1 + SAME)]
        return known[-1] if known else None


@dataclass(frozen=True)
class Optimum:
    """The best answer in a table, found by looking at every row; `average_usd` is the mean cost of a run."""

    goal: Goal
    value: float
    configuration: Configuration
    average_usd: float

    @property
    def has_cno(self) -> bool:
        """Whether answers are told as multiples of the optimum: cost and other amounts that are minimised."""
        return self.goal.minimise and self.value > 0

    def regret(self, value: float | None) -> float:
        """How much worse an answer is, in the objective's own unit; infinite without an answer."""
        return math.inf if value is None else max(self.goal.loss(value) - self.goal.loss(self.value), 0.0)

    def is_found(self, value: float | None) -> bool:
        return self.regret(value) <= SAME * max(abs(self.value), 1e-12)

    def distance(self, value: float | None) -> float:
        """CNO where there is one, else the regret."""
        if not self.has_cno:
            return self.regret(value)
        return math.inf if value is None else value / self.value


@dataclass(frozen=True)
class StrategyScore:
    """How a strategy did over its seeds; distances are CNO, or regret where the goal has none.

    answered, found, broken: shares of the seeds with an answer, with the optimum, and with an answer that
    breaks the goal. Quantiles are those of all seeds, one without an answer counting as infinitely far.
    """

    strategy: str
    answered: float
    found: float
    broken: float
    mean: float
    p50: float
    p90: float
    p99: float
    runs: float
    spent_usd: float
    decision_s: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` answers: every replay, and the scores by strategy, in the order of their naming."""

    job: str
    goal: Goal
    budget_usd: float
    early_stop: bool
    optimum: Optimum
    replays: Mapping[str, Sequence[Replay]]

    @property
    def distance_name(self) -> str:
        """What distances are called: CNO (cost over that of the optimum), or regret."""
        return "CNO" if self.optimum.has_cno else "regret"

    @cached_property
    def scores(self) -> tuple[StrategyScore, ...]:
        return tuple(self._score(name, replays) for name, replays in self.replays.items())

    def distances_at(self, strategy: str, usd: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The distance of each seed's answer from the optimum when so much had been spent."""
        replays = self.replays[strategy]
        return np.array([self.optimum.distance(replay.value_at(usd)) for replay in replays])

    def _score(self, name: str, replays: Sequence[Replay]) -> StrategyScore:
        distances = np.array([self.optimum.distance(replay.value) for replay in replays])
        p50, p90, p99 = (float(np.quantile(distances, q, method="higher")) for q in (0.5, 0.9, 0.99))
        return StrategyScore(
            name,
            fmean(replay.value is not None for replay in replays),
            fmean(self.optimum.is_found(replay.value) for replay in replays),
            fmean(replay.broken for replay in replays),
            float(distances.mean()),
            p50,
            p90,
            p99,
            fmean(replay.runs for replay in replays),
            fmean(replay.spent_usd for replay in replays),
            fmean(replay.decision_s for replay in replays),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for `--json`; what is infinite is left empty."""
        return {
            "job": self.job,
            "goal": str(self.goal),
            "budget_usd": self.budget_usd,
            "early_stop": self.early_stop,
            "optimum": {"value": self.optimum.value, "configuration": self.optimum.configuration},
            "average_usd": self.optimum.average_usd,
            "distance": self.distance_name,
            "strategies": [
                {name: _finite(value) for name, value in asdict(score).items()} for score in self.scores
            ],
            "replays": {
                name: [
                    {
                        "seed": replay.seed,
                        "value": replay.value,
                        "configuration": replay.configuration,
                        "broken": replay.broken,
                        "runs": replay.runs,
                        "spent_usd": replay.spent_usd,
                        "steps": [[step.spent_usd, step.value] for step in replay.steps],
                    }
                    for replay in replays
                ]
                for name, replays in self.replays.items()
            },
        }


def compare(
    job: TableJob,
    goal: Goal | str | Mapping[str, Any],
    budget_usd: float | str,
    strategies: Iterable[str] | str = (),
    seeds: int = 20,
    early_stop: bool = False,
    *,
    processes: int = 1,
    first_seed: int = 0,
) -> Comparison:
    """Replay a table of measured runs with several strategies, `seeds` times each, and judge their answers.

    `budget_usd` may be told in average runs of the table: `"10 avg"`. A strategy may have options:
    `"lynceus:as=published"`. Without strategies it is the default one beside gp-eic and random; `"all"` takes
    every one that can play the goal.
    """
    goal = Goal.parse(goal)
    if seeds < 1 or processes < 1:
        raise BadInput("seeds and processes must be at least 1; 20 seeds tell strategies apart.")
    optimum = find_optimum(job, goal)
    money = _budget_usd(budget_usd, optimum.average_usd)
    problem = Problem(job.space, goal, job.price, job.measures, job.fraction, early_stop)
    problem.check_budget(money)
    chosen = _contenders(strategies, problem)
    tasks = [
        (each, job, goal, money, early_stop, seed)
        for each in chosen
        for seed in range(first_seed, first_seed + seeds)
    ]
    played = _play_all(tasks, processes)
    replays = {
        each.name: tuple(played[place * seeds : (place + 1) * seeds]) for place, each in enumerate(chosen)
    }
    return Comparison(job.name, goal, money, early_stop, optimum, replays)


def find_optimum(job: TableJob, goal: Goal) -> Optimum:
    """The best configuration of a table that keeps the goal, by looking at all of them."""
    problem = Problem(job.space, goal, job.price, job.measures, job.fraction)
    best: tuple[float, float, Configuration] | None = None
    costs = []
    for configuration in job.space.configurations():
        values = recorded_values(job, configuration)
        costs.append(values[COST])
        if not problem.answers(configuration) or goal.measure not in values or not goal.feasible(values):
            continue
        if best is None or goal.loss(values[goal.measure]) < best[0]:
            best = (goal.loss(values[goal.measure]), values[goal.measure], configuration)
    if best is None:
        raise BadInput(f'No run of {job.name} keeps "{goal}"; loosen the goal.')
    return Optimum(goal, best[1], dict(best[2]), fmean(costs))


def recorded_values(job: TableJob, configuration: Configuration) -> dict[str, float]:
    """What a configuration was measured to be: its measures, time and cost."""
    run = job.recorded(configuration)
    usd = job.price(configuration).cost_usd(run.time_s)
    return {**run.measures, "time_s": run.time_s, COST: usd}


def _budget_usd(said: float | str, average_usd: float) -> float:
    text = str(said).strip()
    if text.endswith(AVERAGE):
        return parse_in(text.removesuffix(AVERAGE).strip(), "") * average_usd
    return parse_in(said, USD)


def _contenders(said: Iterable[str] | str, problem: Problem) -> list[Contender]:
    names = [said] if isinstance(said, str) else list(said)
    if not names:
        names = list(dict.fromkeys((default_strategy(problem), "gp-eic", "random")))
    contenders: dict[str, Contender] = {}
    for name in names:
        found = _playable(problem) if name == ALL else [Contender.parse(name)]
        contenders.update({each.name: each for each in found})
    for each in contenders.values():
        build(each.strategy, problem, each.options, 0)  # a wrong option is told before anything is played
    return list(contenders.values())


def _playable(problem: Problem) -> list[Contender]:
    """Every strategy that can play this goal on this table."""
    able = []
    for name in strategies():
        try:
            build(name, problem, {}, 0)
        except BadInput:
            continue
        able.append(Contender(name, name))
    return able


Task = tuple[Contender, TableJob, Goal, float, bool, int]


def _play_all(tasks: Sequence[Task], processes: int) -> list[Replay]:
    if processes == 1:
        return [play(*task) for task in tasks]
    with ProcessPoolExecutor(processes) as workers:
        futures: list[Future[Replay]] = [workers.submit(play, *task) for task in tasks]
        return [future.result() for future in futures]


def play(
    contender: Contender, job: TableJob, goal: Goal, budget_usd: float, early_stop: bool, seed: int
) -> Replay:
    """One replay."""
    steps: list[ReplayStep] = []

    def watch(event: Event, study: Study) -> None:
        if isinstance(event, TrialEnded):
            value, _ = judged(job, goal, study.recommended)
            steps.append(ReplayStep(study.spent_usd, value))

    result = tune(
        job, goal, budget_usd, contender.strategy, contender.options, early_stop, seed=seed, watch=watch
    )
    value, broken = judged(job, goal, result.recommended)
    decisions = [trial.decision_s for trial in result.trials]
    return Replay(
        seed,
        tuple(steps),
        result.spent_usd,
        value,
        result.recommended,
        broken,
        fmean(decisions) if decisions else 0.0,
    )


def judged(job: TableJob, goal: Goal, answer: Configuration | None) -> tuple[float | None, bool]:
    """The objective that an answer was measured to have, None if it breaks the goal; and whether it does.

    An answer to a goal at full data is judged at full data, whatever fraction it names.
    """
    if answer is None:
        return None, False
    if job.fraction is not None and goal.speaks_of_full_data:
        answer = {**answer, job.fraction: 1.0}
    values = recorded_values(job, answer)
    if goal.measure not in values or not goal.feasible(values):
        return None, True
    return values[goal.measure], False


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
