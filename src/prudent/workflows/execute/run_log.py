"""The clock of a run, and what has happened in it so far."""

from __future__ import annotations

from prudent.workflows.execute.agenda import Agenda, Manner, Notes
from prudent.workflows.execute.crew import Crew
from prudent.workflows.execute.journal import Fact

SIGN_S, SIGN_SHARE = 1.0, 0.01
"""How often signs of life are given: what a kill leaves unpaid is no more than this, or this share of the
session."""


class RunLog:
    """A session's clock and facts; `begun_s` tells when activations began.

    A pause between two sessions is not part of the run: its clock goes on where it stopped. The boot of its
    machines is: it is waited for, and paid.
    """

    def __init__(self, crew: Crew, manner: Manner, agenda: Agenda, notes: Notes) -> None:
        self.offset_s = agenda.offset_s
        self.begun_s: dict[str, float] = {}
        self._crew, self._scale = crew, manner.replay or 1.0
        self._earlier, self._notes = agenda.earlier, notes
        self._facts: list[Fact] = []
        self._zero_s = crew.time_s() if crew.ordered_s is None else crew.ordered_s
        self._sign_due_s = self._zero_s

    def begin(self) -> None:
        """Workers that nobody had to wait for begin now."""
        if self._crew.ordered_s is None:
            self._zero_s = self._crew.time_s()

    def clock_s(self) -> float:
        """Seconds of this run, in those of the plan: a rehearsal's clock runs faster."""
        return self.offset_s + (self._crew.time_s() - self._zero_s) / self._scale

    def note(self, fact: Fact) -> None:
        """Write a fact down."""
        self._facts.append(fact)
        self._notes.write(fact)

    def sign(self) -> None:
        """Note now and then that the session lives."""
        if (now_s := self._crew.time_s()) >= self._sign_due_s:
            self._sign_due_s = now_s + max(SIGN_S, SIGN_SHARE * (now_s - self._zero_s))
            self._notes.sign(self.clock_s())

    @property
    def heard(self) -> list[Fact]:
        """All facts of the run, those of earlier sessions first."""
        return [*self._earlier, *self._facts]
