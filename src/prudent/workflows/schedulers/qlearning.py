"""Q-learning as in WorkflowSim4RL: an episode is a simulated run, the best one's placement is the plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from prudent.core.errors import BadInput, RunFailed
from prudent.core.seeds import rng_for
from prudent.workflows.agent import HABIT, MIND, remember
from prudent.workflows.policies import Q_LEARNING
from prudent.workflows.problem import Problem, weather_of
from prudent.workflows.schedulers.registry import Proposal
from prudent.workflows.schedulers.tables import Tables
from prudent.workflows.simulator import Learner, Trace, play


@dataclass(frozen=True)
class QLearning:
    """The paper's parameters are the defaults; `epsilon` is the chance of a random machine.

    `tables` names a file: the tables and the best plan so far are saved there after every episode, and with
    `carry_on` learning goes on from them. `episodes` are those of this call.
    """

    episodes: int = 100
    epsilon: float = 0.2
    alpha: float = 0.5
    gamma: float = 0.5
    rate: float = 1.0
    initial_q: float = 0.2
    tables: str | None = None
    carry_on: bool = False

    name: ClassVar[str] = "q-learning"
    policy: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise BadInput(f"There are {self.episodes} episodes; give at least one.")
        for name in ("epsilon", "alpha", "gamma", "rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"{name} is {getattr(self, name):g}; give a number from 0 to 1.")
        if self.carry_on and self.tables is None:
            raise BadInput("Learning cannot carry on without tables; name the file they were saved in.")

    def propose(self, problem: Problem, seed: int) -> Proposal:
        """Learn for `episodes`, answer with the placement of the fastest one so far."""
        tables = self._first_tables(problem)
        learner = self._learner(tables)
        for episode in range(len(tables.makespans_s), len(tables.makespans_s) + self.episodes):
            learner.mind["reward"] = 0.0
            trace = self._play(problem, learner, seed, episode)
            tables = tables.after(trace, float(learner.mind["reward"][0]), problem)
            if self.tables is not None:
                tables.save(Path(self.tables))
        if tables.placement is None:
            raise RunFailed("No episode finished the workflow; allow more retries or more episodes.")
        return Proposal(tables.placement, tables.details())

    def _play(self, problem: Problem, learner: Learner, seed: int, episode: int) -> Trace:
        luck = rng_for(seed, "episode", episode)
        weather = weather_of(problem, problem.world, int(luck.integers(1 << 62)))
        return play(problem, weather, Q_LEARNING, learner=learner, seed=int(luck.integers(1 << 62)))

    def _first_tables(self, problem: Problem) -> Tables:
        if self.carry_on and self.tables is not None and Path(self.tables).exists():
            return Tables.load(Path(self.tables), problem)
        q = np.full((len(problem.tasks), len(problem.vms)), self.initial_q)
        return Tables(q, self._time_alone(problem))

    def _time_alone(self, problem: Problem) -> np.ndarray:
        """Before the first episode every activation runs alone, on the first machine: that is usual."""
        habits = np.zeros(1 + len(problem.vms), dtype=HABIT)
        alone_s = (
            problem.tasks["hold_s"] + problem.tasks["stage_s"] + problem.run_s[:, problem.lanes[0]["kind"]]
        )
        for index in self.alpha * alone_s:
            remember(habits, 0, index)
        return habits

    def _learner(self, tables: Tables) -> Learner:
        mind = np.zeros(1, dtype=MIND)
        for name in ("alpha", "gamma", "rate", "epsilon", "initial_q"):
            mind[name] = getattr(self, name)
        return Learner(tables.q, mind, tables.habits)
