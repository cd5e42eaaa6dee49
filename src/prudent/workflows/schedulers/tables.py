"""What q-learning keeps between episodes, and between processes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from prudent.core.errors import BadInput
from prudent.workflows.graph import Floats
from prudent.workflows.problem import Problem
from prudent.workflows.records import Records
from prudent.workflows.simulator import Placement, Trace


@dataclass(frozen=True, eq=False)
class Tables:
    """The values of every action, the machines' habits, and the best episode so far."""

    q: Floats
    habits: Records
    makespans_s: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    placement: Placement | None = None
    best_s: float = np.inf
    fingerprint: str = ""

    def after(self, trace: Trace, reward: float, problem: Problem) -> Tables:
        """With one more episode; a run that did not finish cannot be the best."""
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
        """Write all of it; the old file stays whole until the new one is."""
        nothing = np.zeros(0, dtype=np.int64)
        fresh = path.with_name(path.name + ".new")
        with fresh.open("wb") as file:
            np.savez(
                file,
                q=self.q,
                habits=self.habits,
                makespans_s=self.makespans_s,
                rewards=self.rewards,
                lane=self.placement.lane if self.placement else nothing,
                order=self.placement.order if self.placement else nothing,
                best_s=self.best_s,
                fingerprint=self.fingerprint,
            )
        os.replace(fresh, path)

    @classmethod
    def load(cls, path: Path, problem: Problem) -> Tables:
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
