"""One request from its data to its leaderboard, within its budget."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prudent.cloud.meter import Guard
from prudent.core.errors import BadInput, PrudentError
from prudent.core.units import format_money
from prudent.training.algorithms.domains import FUNCTION, domain
from prudent.training.charging import ByMeter, ByPrice, Charging
from prudent.training.engine import Engine, Session
from prudent.training.events import Paid, Watch
from prudent.training.functions import FunctionSession
from prudent.training.leaderboard import Entry, Failure, Leaderboard, standing
from prudent.training.methods import Plan, plans
from prudent.training.output import Output
from prudent.training.price import cores, trial_price
from prudent.training.remembered import Remembered
from prudent.training.request import TrainingRequest
from prudent.training.resources import Machines, check_payable, parallelism_of, price_of
from prudent.training.search import LEFT_FOR_MORE_DATA, Search
from prudent.training.seekers import GIVEN, Seeker, seeker
from prudent.training.signs import Signs
from prudent.training.terms import Terms


def carry_out(
    asked: TrainingRequest,
    engine: Engine,
    output: Output,
    machines: Machines | None = None,
    began_s: float | None = None,
    watch: Watch | None = None,
) -> Leaderboard:
    """Search, put the models in their places, and write the leaderboard.

    The budget of a request on rented `machines` is for all they cost, from their order to their end; they are
    gone before the models are ranked.
    """
    began_s = time.monotonic() if began_s is None else began_s
    race = Race(asked, engine, output, machines, began_s, watch)
    trouble: PrudentError | None = None
    try:
        race.run()
    except PrudentError as error:
        if race.found is None:
            raise
        trouble = error  # machines that would not end: told when what was paid for is safe
    finally:
        race.tell_paid()
    assert race.found is not None
    found = race.found
    placed = output.place(found.entries, found.described)
    output.tidy()
    board = Leaderboard(
        placed,
        tuple(found.failures),
        asked.domain,
        found.metric,
        engine.name,
        str(output.folder),
        time.monotonic() - began_s,
        race.spent_usd,
        found.ended,
        budget_usd=asked.budget.usd,
        interrupted_usd=found.interrupted_usd,
    )
    output.write(board)
    if trouble is not None:
        raise trouble
    return board


@dataclass(frozen=True)
class Found:
    """What a search gave: models best first, why it ended, and what is known of the data."""

    entries: Sequence[Entry]
    failures: Sequence[Failure]
    ended: str
    metric: str
    described: Mapping[str, Any]
    interrupted_usd: float = 0.0


class Race:
    """The search of one request: data and machines made ready, trials, and the machines given back."""

    def __init__(
        self,
        request: TrainingRequest,
        engine: Engine,
        output: Output,
        machines: Machines | None,
        began_s: float,
        watch: Watch | None,
    ) -> None:
        self._request, self._engine, self._output = request, engine, output
        self._machines, self._began_s = machines, began_s
        self._watch = watch or (lambda event: None)
        self._parallelism = request.parallelism or (cores() if machines is None else parallelism_of(machines))
        self._price = (
            trial_price(request, self._parallelism)
            if machines is None
            else price_of(machines, self._parallelism)
        )
        self._charging: Charging = ByPrice(self._price, request.budget.usd, self._parallelism)
        self.found: Found | None = None

    @property
    def spent_usd(self) -> float:
        """What was paid so far, in all sessions."""
        return self._charging.spent_usd if self._machines is None else self._machines.meter.spent_usd()

    def tell_paid(self) -> None:
        self._watch(Paid(self.spent_usd))

    def run(self) -> None:
        """Fill `found`; whatever goes wrong, no machine is left."""
        with ExitStack() as stack:
            guard: Guard | None = None
            if self._machines is not None:
                guard = stack.enter_context(Guard(self._machines.meter, self._machines.abort))
                self._charging = ByMeter(self._machines.meter, lambda: guard.acted)
            try:
                session = stack.enter_context(self._opened())
            except Exception:
                if guard is None or not guard.acted:
                    self._undo()
                    raise
                self.found = self._nothing()
                return
            except BaseException:
                self._undo()
                raise
            self.found = self._searched(session, stack)

    def _undo(self) -> None:
        """Leave no trace, unless machines were paid for: whoever goes on counts what they have cost."""
        if self._machines is None or self._machines.meter.spent_usd() == 0:
            self._output.undo()

    def _opened(self) -> Session:
        request, output = self._request, self._output
        if self._machines is not None:
            try:
                check_payable(self._machines)
            except BadInput:
                if not self._note.exists():
                    raise
                # What earlier sessions have trained is ranked; that needs no machines.
                self._charging = ByMeter(self._machines.meter, lambda: True)
                return Remembered(self._note)
        if domain(request.domain).task == FUNCTION:
            return FunctionSession()
        output.engine_work.mkdir(parents=True, exist_ok=True)
        return self._engine.open(request, output.engine_work, self._parallelism)

    @property
    def _note(self) -> Path:
        """What a session on rented machines has found out about the data."""
        return self._output.work / "data.json"

    def _nothing(self) -> Found:
        """The money was gone before the machines were ready, or the data on them."""
        ended = (
            f"the budget of {format_money(self._request.budget.usd or 0.0)} was spent before its machines "
            "were ready (raise it, or take fewer or smaller ones)"
        )
        return Found((), (), ended, self._metric(0), {})

    def _metric(self, classes: int) -> str:
        return self._request.metric or domain(self._request.domain).metric_for(classes)

    def _searched(self, session: Session, stack: ExitStack) -> Found:
        request, metric = self._request, self._metric(session.shape.classes)
        elapsed_s = time.monotonic() - self._began_s
        ending_s = 0.0 if self._machines is None else self._machines.meter.ending_s
        terms = Terms.of(request, self._price, self._parallelism, elapsed_s, metric, ending_s)
        if self._machines is not None:
            Remembered.write(self._note, session)
        asked = plans(request, session.shape)
        again = (
            [replace(plan, index=len(asked) + plan.index, search=GIVEN, enough=10**9) for plan in asked]
            if asked[0].fraction is not None
            else []
        )
        every = [*asked, *again]
        put_by = LEFT_FOR_MORE_DATA if again else 0.0
        training_s = terms.training_s(self._charging.left_usd)
        search = Search(
            every,
            [self._seeker(plan, training_s, stack) for plan in every],
            session,
            request,
            self._output.trials,
            replace(terms, methods=len(every), put_by=put_by),
            self._charging,
            Signs(self._output.work / "alive.json"),
            self._watch,
            len(again),
        )
        search.run()
        described = {**session.description, "fingerprint": session.shape.fingerprint}
        results, lost_usd = search.results, search.interrupted_usd
        ranked = sorted(results.entries, key=standing)
        return Found(ranked, results.failures, search.ended, metric, described, lost_usd)

    def _seeker(self, plan: Plan, training_s: float, stack: ExitStack) -> Seeker:
        request, journal = self._request, self._output.journal(plan.index, plan.algorithm.name)
        found = seeker(plan, request.seed, request.fingerprint(), journal, True, self._price, training_s)
        stack.callback(found.close)
        return found
