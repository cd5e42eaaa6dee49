"""What there is to do: a run's manner, what earlier sessions left, whether all that is needed is there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.workflows.execute.command import missing_programs
from prudent.workflows.execute.crew import Crew
from prudent.workflows.execute.journal import VERSION, Fact, Journal
from prudent.workflows.execute.prints import Print, prints_of
from prudent.workflows.execute.resume import why_again
from prudent.workflows.plan import Plan
from prudent.workflows.workflow import Workflow

Watch = Callable[[Fact], None]


@dataclass(frozen=True)
class Manner:
    """How a plan is executed; `execute` explains each."""

    directory: Path
    retries: int = 1
    timeout_s: float | None = None
    replay: float | None = None
    stop_at_failure: bool = False

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise BadInput(f"There are {self.retries} retries; give zero or more.")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise BadInput(f"The time-out is {self.timeout_s:g} s; give a number above zero.")
        if self.replay is not None and not (self.replay > 0 and math.isfinite(self.replay)):
            raise BadInput(f"The replay's scale is {self.replay:g}; give a number above zero, like 0.01.")
        if not self.directory.is_dir():
            raise BadInput(f'There is no folder "{self.directory}" to run in; name one that exists.')


class Notes:
    """The journal, if there is one, and whoever watches."""

    def __init__(self, journal: Journal | None, watch: Watch | None) -> None:
        self._journal, self._watch = journal, watch
        self.facts: list[Fact] = []

    def write(self, fact: Fact) -> None:
        """On disk first, then told."""
        if self._journal is not None:
            self._journal.write(fact)
        self.facts.append(fact)
        if self._watch is not None:
            self._watch(fact)

    def sign(self, at_s: float) -> None:
        """A sign of life, for whoever goes on after a kill; nobody is told."""
        if self._journal is not None:
            self._journal.sign(at_s)


@dataclass(frozen=True)
class Ground:
    """The folder in which commands run, seen from here, or from a worker where the workers are elsewhere."""

    directory: Path
    crew: Crew | None = None
    programs: bool = True
    """Whether programs are looked for, too; they are not here where machines are rented later."""

    def look(self, names: Iterable[str]) -> Mapping[str, Print]:
        """The prints of those of the files that are there."""
        if self.crew is None or self.crew.carries:
            return prints_of(str(self.directory), names)
        found: Mapping[str, Print] = self.crew.ask(
            min(self.crew.vms), prints_of, str(self.directory), list(names)
        )
        return found

    def absent(self, programs: list[str]) -> list[str]:
        """Programs that are not there."""
        if self.crew is None:
            return missing_programs(programs)
        found: list[str] = self.crew.ask(min(self.crew.vms), missing_programs, programs)
        return found

    def check(self, workflow: Workflow) -> None:
        """What nobody in the workflow writes has to be there, and so have the programs."""
        written = {file.name for activation in workflow.activations for file in activation.outputs}
        needed = {file.name: each.id for each in workflow.activations for file in each.inputs}
        given = sorted(name for name in needed if name not in written)
        found = self.look(given)
        lost = [name for name in given if name not in found]
        if lost:
            raise BadInput(
                f'Input "{lost[0]}" of "{needed[lost[0]]}" is not in {self.directory}'
                f"{f', nor are {len(lost) - 1} others' if len(lost) > 1 else ''}; put it there, or name the "
                "folder with --directory."
            )
        if self.programs:
            self.check_programs(workflow)

    def check_programs(self, workflow: Workflow) -> None:
        """The programs have to be there, too."""
        absent = self.absent(list(dict.fromkeys(each.command[0] for each in workflow.activations)))
        if absent:
            raise BadInput(
                f'The program "{absent[0]}" is not on the PATH where it should run; install it, or rehearse '
                "the plan with --replay."
            )


@dataclass(frozen=True)
class Agenda:
    """What has to run and why (`reasons`), after what earlier sessions did.

    `attempts` counts those made; `offset_s` is where the run's clock stood: a pause is not part of the run.
    """

    reasons: dict[str, str]
    earlier: list[Fact]
    attempts: dict[str, int]
    offset_s: float

    @classmethod
    def of(cls, workflow: Workflow, manner: Manner, earlier: list[Fact], ground: Ground) -> Agenda:
        """Look at what is there, and at what was done."""
        if manner.replay is None:
            ground.check(workflow)
        ended: dict[str, Fact] = {}
        under_way: set[str] = set()
        attempts: dict[str, int] = {}
        for fact in earlier:
            if fact["fact"] == "started":
                under_way.add(fact["activation"])
                attempts[fact["activation"]] = fact["attempt"]
            elif fact["fact"] == "ended":
                under_way.discard(fact["activation"])
                ended[fact["activation"]] = fact
        known = {name: fact for name, fact in ended.items() if name not in under_way}
        reasons = why_again(workflow, known, ground.look, rehearsal=manner.replay is not None)
        reasons |= dict.fromkeys(under_way, "was under way when the run was interrupted")
        offset_s = max((_clock_s(fact) for fact in earlier), default=0.0)
        return cls(reasons, earlier, attempts, offset_s)

    def open(
        self, notes: Notes, plan: Plan, workflow: Workflow, manner: Manner, run: str, more: Fact
    ) -> None:
        """Note the beginning: of the run, if it is its first session, and of this session."""
        if not self.earlier:
            notes.write(
                {
                    "fact": "run",
                    "version": VERSION,
                    "id": run,
                    "workflow": workflow.name,
                    "fingerprint": workflow.fingerprint,
                    "activations": len(workflow),
                    "directory": str(manner.directory),
                    "replay": manner.replay,
                }
            )
        notes.write(
            {
                "fact": "session",
                "at_s": self.offset_s,
                "wall_s": time.time(),
                "scheduler": plan.scheduler,
                "planned_makespan_s": plan.makespan_s,
                "vms": sorted({assignment.vm for assignment in plan.assignments.values()}),
                "skipped": len(workflow) - len(self.reasons),
                **more,
                **({"again": self.reasons} if self.earlier else {}),
            }
        )


def _clock_s(fact: Fact) -> float:
    """Where the run's clock stood, as far as a fact tells."""
    return float(fact["at_s"] if fact["fact"] == "stopped" else fact.get("finish_s", 0.0))
