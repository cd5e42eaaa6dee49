"""Q-learning as in WorkflowSim4RL: an episode is a simulated run, the best episode's placement is the plan.

Real runs are episodes, too (`with_real_episode`): only dearer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np

from prudent.core.errors import BadInput, RunFailed
from prudent.core.seeds import rng_for
from prudent.workflows.execution import Execution
from prudent.workflows.schedulers.agent import (
    INDEX_STATISTICS,
    LEARNER_PARAMETERS,
    record_index,
    update_statistics,
)
from prudent.workflows.schedulers.episode_files import write_episode
from prudent.workflows.schedulers.registry import ScheduleProposal
from prudent.workflows.simulation.compiled import Floats, Records
from prudent.workflows.simulation.problem import (
    Placement,
    SchedulingProblem,
    recorded_placement,
    sample_world,
)
from prudent.workflows.simulation.records import Q_LEARNING, QLearnerArrays
from prudent.workflows.simulation.simulator import RunTrace, run_calm, run_simulation


@dataclass(frozen=True)
class QLearning:
    """The paper's parameters are the defaults; `epsilon` is the chance of a random machine.

    `tables` names a file: the tables and the best plan so far are saved there after every episode, and with
    `carry_on` learning goes on from them. `episodes` are those of this call. `record` names a folder that
    gets a file of each episode for people to read: plan, states of the machines, Q, rewards, simulated and
    wall time.
    """

    episodes: int = 100
    epsilon: float = 0.2
    alpha: float = 0.5
    gamma: float = 0.5
    rate: float = 1.0
    initial_q: float = 0.2
    tables: str | None = None
    carry_on: bool = False
    record: str | None = None

    name: ClassVar[str] = "q-learning"
    rule: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise BadInput(f"There are {self.episodes} episodes; give at least one.")
        for name in ("epsilon", "alpha", "gamma", "rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"{name} is {getattr(self, name):g}; give a number from 0 to 1.")
        if self.carry_on and self.tables is None:
            raise BadInput("Learning cannot carry on without tables; name the file they were saved in.")

    def propose(self, problem: SchedulingProblem, seed: int) -> ScheduleProposal:
        """Learn for `episodes`, answer with the placement of the fastest one so far."""
        tables = self.first_tables(problem)
        learner = self._learner(tables)
        for episode in range(len(tables.makespans_s), len(tables.makespans_s) + self.episodes):
            learner.parameters["reward"] = 0.0
            begun = time.perf_counter()
            trace = self._play(problem, learner, seed, episode)
            tables = tables.after(trace, float(learner.parameters["reward"][0]), problem)
            wall_s = time.perf_counter() - begun
            if self.tables is not None:
                tables.save(Path(self.tables))
            if self.record is not None:
                write_episode(
                    Path(self.record), episode + 1, problem, trace, tables.q, tables.statistics,
                    tables.rewards, wall_s,
                )  # fmt: skip
        if tables.placement is None:
            raise RunFailed("No episode finished the workflow; allow more retries or more episodes.")
        return ScheduleProposal(tables.placement, tables.details())

    def _play(self, problem: SchedulingProblem, learner: QLearnerArrays, seed: int, episode: int) -> RunTrace:
        rng = rng_for(seed, "episode", episode)
        sample = sample_world(problem, problem.world, int(rng.integers(1 << 62)))
        return run_simulation(problem, sample, Q_LEARNING, learner=learner, seed=int(rng.integers(1 << 62)))

    def first_tables(self, problem: SchedulingProblem) -> QTables:
        if self.carry_on and self.tables is not None and Path(self.tables).exists():
            return QTables.load(Path(self.tables), problem)
        q = np.full((len(problem.tasks), len(problem.vms)), self.initial_q)
        return QTables(q, self._time_alone(problem))

    def _time_alone(self, problem: SchedulingProblem) -> np.ndarray:
        """What the first episode is compared with: each activation once, alone, on the first machine."""
        statistics = np.zeros(1 + len(problem.vms), dtype=INDEX_STATISTICS)
        alone_s = (
            problem.tasks["hold_s"] + problem.tasks["stage_s"] + problem.run_s[:, problem.lanes[0]["kind"]]
        )
        for index in self.alpha * alone_s:
            update_statistics(statistics, 0, index)
        return statistics

    def _learner(self, tables: QTables) -> QLearnerArrays:
        parameters = np.zeros(1, dtype=LEARNER_PARAMETERS)
        for name in ("alpha", "gamma", "rate", "epsilon", "initial_q"):
            parameters[name] = getattr(self, name)
        return QLearnerArrays(tables.q, parameters, tables.statistics)


@dataclass(frozen=True, eq=False)
class QTables:
    """Q-values of actions, statistics of machines, and the best episode so far; saved between calls."""

    q: Floats
    statistics: Records
    makespans_s: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    placement: Placement | None = None
    best_s: float = np.inf
    fingerprint: str = ""

    def after(self, trace: RunTrace, reward: float, problem: SchedulingProblem) -> QTables:
        """The tables after one more episode; a run that did not finish cannot be the best."""
        finished = trace.done == len(problem.tasks)
        better = finished and trace.makespan_s < self.best_s
        return replace(
            self,
            makespans_s=(*self.makespans_s, trace.makespan_s),
            rewards=(*self.rewards, reward),
            placement=trace.placement(problem.graph.order) if better else self.placement,
            best_s=trace.makespan_s if better else self.best_s,
            fingerprint=problem.workflow.fingerprint,
        )

    def details(self) -> dict[str, Any]:
        """The learning curve, for the plan."""
        return {
            "episodes": len(self.makespans_s),
            "best_episode": int(np.argmin(np.abs(np.array(self.makespans_s) - self.best_s))),
            "learning_curve_s": list(self.makespans_s),
            "rewards": list(self.rewards),
        }

    def save(self, path: Path) -> None:
        """Write the tables; the old file stays intact until the new one is complete."""
        nothing = np.zeros(0, dtype=np.int64)
        fresh = path.with_name(path.name + ".new")
        with fresh.open("wb") as file:
            np.savez(
                file,
                q=self.q,
                habits=self.statistics,
                makespans_s=self.makespans_s,
                rewards=self.rewards,
                lane=self.placement.lane if self.placement else nothing,
                order=self.placement.order if self.placement else nothing,
                best_s=self.best_s,
                fingerprint=self.fingerprint,
            )
        os.replace(fresh, path)

    @classmethod
    def load(cls, path: Path, problem: SchedulingProblem) -> QTables:
        """Read tables that were learned for this workflow on as many machines."""
        try:
            with np.load(path, allow_pickle=False) as file:
                kept = {name: file[name] for name in file.files}
            placement = Placement(kept["lane"], kept["order"]) if len(kept["lane"]) else None
            tables = cls(
                kept["q"].copy(),
                kept["habits"].copy(),
                tuple(kept["makespans_s"].tolist()),
                tuple(kept["rewards"].tolist()),
                placement,
                float(kept["best_s"]),
                str(kept["fingerprint"]),
            )
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise BadInput(f'"{path}" holds no tables ({error}); learn again without carrying on.') from None
        if tables.fingerprint != problem.workflow.fingerprint or tables.q.shape[1] != len(problem.vms):
            raise BadInput(
                f'The tables in "{path}" were learned for another workflow or fleet; use a file of their own.'
            )
        return tables


def with_real_episode(
    tables: QTables, execution: Execution, problem: SchedulingProblem, learner: QLearning
) -> QTables:
    """The tables after a real run as one more episode: the rule of `agent.update_q`, end by end."""
    q, statistics, praised = tables.q.copy(), tables.statistics.copy(), 0.0
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
        praised += record_index(statistics, learner.alpha, vm, executed_s, queued_s)
        waiting = (ready_s <= row["end_s"]) & (start_s > row["end_s"])
        idle = _idle(problem, log, float(row["end_s"]))
        best = float(q[np.ix_(waiting, idle)].max()) if waiting.any() and idle.any() else learner.initial_q
        target = statistics[1 + vm]["efficiency"] + learner.gamma * best
        q[task, vm] += learner.rate * (target - q[task, vm])
    real = recorded_placement(execution.trace.tasks, problem.graph.order)
    learned = replace(
        tables,
        q=q,
        statistics=statistics,
        makespans_s=(*tables.makespans_s, execution.makespan_s),
        rewards=(*tables.rewards, praised),
        fingerprint=problem.workflow.fingerprint,
    )
    known = [tables.placement] if tables.placement is not None else []
    return with_best_placement(learned, problem, [*known, real])


def with_best_placement(
    tables: QTables, problem: SchedulingProblem, placements: Sequence[Placement]
) -> QTables:
    """The tables with the fastest of these placements, by the estimates of the problem."""
    best, best_s = None, np.inf
    for placement in placements:
        takes_s = run_calm(problem, placement).makespan_s
        if takes_s < best_s:
            best, best_s = placement, takes_s
    return replace(tables, placement=best, best_s=best_s)


def _ready_s(problem: SchedulingProblem, finish_s: Floats) -> Floats:
    """When the last parent of every activation ended."""
    ready_s = np.zeros(len(problem.tasks))
    index = problem.workflow.index
    for parent, child in problem.workflow.edges:
        ready_s[index[child]] = max(ready_s[index[child]], finish_s[index[parent]])
    return ready_s


def _idle(problem: SchedulingProblem, log: np.ndarray, now_s: float) -> np.ndarray:
    """Which VMs have a free slot right after a moment."""
    busy = np.bincount(
        log["lane"][(log["start_s"] <= now_s) & (log["end_s"] > now_s)], minlength=len(problem.lanes)
    )
    idle = np.zeros(len(problem.vms), dtype=bool)
    idle[problem.lanes["vm"][busy == 0]] = True
    return idle
