"""Q-learning from real runs: a real run is an episode like a simulated one, only dearer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from prudent.workflows.agent import remember, reward
from prudent.workflows.execute.record import Run
from prudent.workflows.execution import Execution
from prudent.workflows.fleet import Fleet
from prudent.workflows.graph import Floats
from prudent.workflows.policies import PLAN
from prudent.workflows.problem import Problem, bring_together, weather_of
from prudent.workflows.schedulers.qlearning import QLearning
from prudent.workflows.schedulers.tables import Tables
from prudent.workflows.simulator import Placement, placed, play
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World


def teach_tables(
    learner: QLearning, workflow: Workflow, fleet: Fleet, world: World, folders: Sequence[str | Path]
) -> int:
    """Add real runs to the learner's tables on disk; answers how many were new to them.

    `workflow` has the estimates as they are now (see `estimates`): what the best plan so far takes is judged
    anew by them. Runs on other VMs, and those that did not finish, say nothing about these tables' actions.
    """
    if learner.tables is None:
        return 0
    path = Path(learner.tables)
    problem = bring_together(workflow, fleet, world)
    tables = Tables.load(path, problem) if path.exists() else learner._first_tables(problem)
    runs = [Run.read(folder) for folder in folders]
    fitting = [run for run in runs if run.succeeded and run.plan.fleet == fleet]
    fresh = [run for run in fitting if run.makespan_s not in tables.makespans_s]
    if not fresh:
        return 0
    tables = _judged(tables, problem, [tables.placement] if tables.placement is not None else [])
    for run in fresh:
        tables = experienced(tables, run.execution, problem, learner)
    tables.save(path)
    return len(fresh)


def experienced(tables: Tables, execution: Execution, problem: Problem, learner: QLearning) -> Tables:
    """The tables after one more episode, which really happened: the rule of `agent.learn`, end by end."""
    q, habits, praised = tables.q.copy(), tables.habits.copy(), 0.0
    order = np.argsort(execution.trace.log["end_s"], kind="stable")
    log = execution.trace.log[order]
    done = log[log["outcome"] == 0]
    finish_s = np.full(len(problem.tasks), np.inf)
    finish_s[done["task"]] = done["end_s"]
    start_s = np.full(len(problem.tasks), np.inf)
    start_s[done["task"]] = done["start_s"]
    ready_s = _ready_s(problem, finish_s)
    for row in done:
        task, vm = int(row["task"]), int(problem.lanes[int(row["lane"])]["vm"])
        executed_s, queued_s = row["end_s"] - row["start_s"], max(row["start_s"] - ready_s[task], 0.0)
        index = learner.alpha * executed_s + (1.0 - learner.alpha) * queued_s
        praise = reward(habits, index)
        remember(habits, 0, index)
        remember(habits, 1 + vm, index)
        habits[1 + vm]["efficiency"] += learner.alpha * (praise - habits[1 + vm]["efficiency"])
        praised += praise
        waiting = (ready_s <= row["end_s"]) & (start_s > row["end_s"])
        idle = _idle(problem, log, float(row["end_s"]))
        best = float(q[np.ix_(waiting, idle)].max()) if waiting.any() and idle.any() else learner.initial_q
        target = habits[1 + vm]["efficiency"] + learner.gamma * best
        q[task, vm] += learner.rate * (target - q[task, vm])
    real = placed(execution.trace.tasks, problem.graph.order)
    learned = replace(
        tables,
        q=q,
        habits=habits,
        makespans_s=(*tables.makespans_s, execution.makespan_s),
        rewards=(*tables.rewards, praised),
        fingerprint=problem.workflow.fingerprint,
    )
    known = [tables.placement] if tables.placement is not None else []
    return _judged(learned, problem, [*known, real])


def _judged(tables: Tables, problem: Problem, placements: Sequence[Placement]) -> Tables:
    """With the best of these placements, by what they take with the estimates of the problem."""
    weather = weather_of(problem, problem.world.calm(), 0)
    best, best_s = None, np.inf
    for placement in placements:
        takes_s = play(problem, weather, PLAN, placement=placement).makespan_s
        if takes_s < best_s:
            best, best_s = placement, takes_s
    return replace(tables, placement=best, best_s=best_s)


def _ready_s(problem: Problem, finish_s: Floats) -> Floats:
    """When the last parent of every activation ended."""
    ready_s = np.zeros(len(problem.tasks))
    index = problem.workflow.index
    for parent, child in problem.workflow.edges:
        ready_s[index[child]] = max(ready_s[index[child]], finish_s[index[parent]])
    return ready_s


def _idle(problem: Problem, log: np.ndarray, now_s: float) -> np.ndarray:
    """Which VMs have a free slot right after a moment."""
    busy = np.bincount(
        log["lane"][(log["start_s"] <= now_s) & (log["end_s"] > now_s)], minlength=len(problem.lanes)
    )
    idle = np.zeros(len(problem.vms), dtype=bool)
    idle[problem.lanes["vm"][busy == 0]] = True
    return idle
