"""Who plays on the families of jobs: our strategies, and peers in the same game."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import prudent
from family_jobs import Bench, Choice
from prudent.tuning.problem import Problem
from prudent.tuning.study.limits import early_limit
from prudent.tuning.trial import Trial

NOTHING = 5.0
"""The score where nothing was found that keeps the goal; of a regret it is the best value there is."""
CONTENDERS = ("default", "lynceus", "gp-eic", "obol", "random", "optuna TPE")
WITH_READINGS = " with readings"
"""After the name of a contender: it is told what runs did to their machines, where a family knows."""
_OPTUNA_TRIALS = 400


@dataclass(frozen=True)
class Played:
    """How a study ended: the answer over the optimum, or the regret; runs made, decision CPU seconds."""

    score: float
    found: bool
    runs: int
    decision_s: float


def play(contender: str, bench: Bench, budget: float, mode: str, seed: int) -> Played:
    """Play one study. A contender is a name, perhaps with options: `lynceus {"start": "latin"}`."""
    budget_usd = budget * bench.average_usd
    if contender == "optuna TPE":
        return _optuna(bench, budget_usd, mode != "full", seed)
    name, _, options = contender.removesuffix(WITH_READINGS).partition(" ")
    strategy = None if name == "default" else name
    clock = time.process_time()
    result = prudent.tune(
        bench.job, bench.goal, budget_usd, strategy, json.loads(options or "{}"),
        early_stop=mode != "full", seed=seed,
    )  # fmt: skip
    spent_s = (time.process_time() - clock) / max(len(result.trials), 1)
    assert result.spent_usd <= budget_usd + 1e-9, "the budget was overrun"
    answer = result.recommended if bench.goal.speaks_of_full_data else None
    if answer is None and result.best is not None:
        answer = result.best.configuration
    score, found = judged(bench, answer)
    return Played(score, found, len(result.trials), spent_s)


def judged(bench: Bench, configuration: object) -> tuple[float, bool]:
    """The score of an answer by the table, and whether it keeps the goal."""
    goal = bench.goal
    job, values = bench.job, None
    if configuration is not None:
        run = job.recorded(configuration)  # type: ignore[arg-type]
        cost_usd = job.price(configuration).cost_usd(run.time_s)  # type: ignore[arg-type]
        values = {**run.measures, "time_s": run.time_s, "cost_usd": cost_usd}
    if values is None or not goal.feasible(values):
        return (bench.optimum if goal.speaks_of_full_data else NOTHING), False
    if goal.speaks_of_full_data:
        return bench.optimum - values[goal.measure], True
    return values[goal.measure] / bench.optimum, True


def _optuna(bench: Bench, budget_usd: float, early: bool, seed: int) -> Played:
    """Optuna's TPE with its constraints function: same prices, same cuts, same budget, full data only."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space, goal = bench.job.space, bench.goal
    problem = Problem(space, goal, bench.job.price, bench.job.measures, bench.job.fraction, early_stop=early)
    able = [c for c in bench.choices if problem.is_full(c.configuration)]
    features = space.encode([choice.configuration for choice in able])
    sampler = optuna.samplers.TPESampler(
        seed=seed, constraints_func=lambda trial: (trial.user_attrs["violation"],)
    )
    study = optuna.create_study(sampler=sampler, direction="minimize" if goal.minimise else "maximize")
    left, seen, best = budget_usd, {}, None
    clock = time.process_time()
    for _ in range(_OPTUNA_TRIALS):
        if left <= 1e-9 or len(seen) == len(able):
            break
        trial = study.ask()
        wanted = {p.name: _suggested(trial, p.name, p.values) for p in space.parameters}
        place = int(space.distances(features, space.encode([wanted])[0]).argmin())
        if place not in seen:
            paid, ended = _paid(problem, able[place], left, best)
            left -= paid
            choice = able[place]
            good = ended and not choice.fails and goal.feasible(choice.values)
            if good and (best is None or goal.loss(choice.values[goal.measure]) < best.cost_usd):
                best = _as_trial(choice, goal.loss(choice.values[goal.measure]))
                answer = choice
            excess = goal.excess(choice.values) if ended and not choice.fails else 1.0
            value = choice.values[goal.measure] if ended and not choice.fails else None
            seen[place] = (value, 0.0 if good else max(excess, 1e-3))
        value, violation = seen[place]
        trial.set_user_attr("violation", violation)
        worst = [v for v, _ in seen.values() if v is not None] or [able[place].cost_usd]
        study.tell(trial, value if value is not None else (max if goal.minimise else min)(worst))
    spent_s = (time.process_time() - clock) / max(len(seen), 1)
    score, found = judged(bench, answer.configuration if best is not None else None)
    return Played(score, found, len(seen), spent_s)


def _as_trial(choice: Choice, loss: float) -> Trial:
    """The best so far, as limits want it; `number` is not looked at."""
    return Trial(
        0, choice.configuration, "finished", choice.run.time_s, loss, loss, choice.run.measures, True
    )


def _paid(problem: Problem, choice: Choice, left: float, best: Trial | None) -> tuple[float, bool]:
    """What a run costs that is cut as ours are, and whether it came to its end."""
    if best is not None:
        best = _as_trial(choice, best.cost_usd)
    seconds, ended = choice.run.time_s, True
    limit = early_limit(problem, choice.configuration, choice.price, None).seconds
    if problem.early_stop and best is not None and problem.goal.minimise:
        most = best.cost_usd
        own = choice.price.seconds_for(most) if problem.goal.measure == "cost_usd" else most
        limit = min(limit, own)
    if seconds > limit * (1 + 1e-9):
        seconds, ended = limit, False
    bill = choice.price.bill_usd(seconds)
    return (bill, ended) if bill <= left else (left, False)


def _suggested(trial: object, name: str, values: tuple[object, ...]) -> object:
    """Numbers keep their order, which TPE does better with."""
    if all(isinstance(value, (int, float)) for value in values):
        ordered = sorted(values)  # type: ignore[type-var]
        return ordered[trial.suggest_int(name, 0, len(ordered) - 1)]  # type: ignore[attr-defined]
    return trial.suggest_categorical(name, list(values))  # type: ignore[attr-defined]
