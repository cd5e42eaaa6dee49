"""The search of a request: trials of all methods side by side, until a limit is reached or all is tried."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from prudent.core.ledger import Entry as Charge
from prudent.core.ledger import Ledger, Reservation
from prudent.core.money import ROUNDING_USD
from prudent.core.units import format_duration, format_money
from prudent.training.allocation import Standing, choose
from prudent.training.engine import Session, TrialSpec
from prudent.training.events import Ended, Shown, Started, Watch
from prudent.training.leaderboard import SAMPLE, Entry, Failure, standing
from prudent.training.methods import Plan
from prudent.training.request import TrainingRequest
from prudent.training.seekers import GIVEN, Given, Seeker, Told, Wish
from prudent.training.stopping import OTHERS_BETTER, Peers
from prudent.training.terms import Terms
from prudent.tuning.jobs.job import Run
from prudent.tuning.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FINISHED, Configuration, Outcome, Progress

GIVE_UP = 25
"""A method whose first trials all failed, so many of them, is not tried further (a grid is)."""
SHORTEST_S, LONGEST_S, SHARE = 0.001, 0.05, 0.02
"""A run is listened to for this share of its age, within these bounds: short runs are seen at once."""
SAFE = 0.7
"""A trial is begun for its own sake only if it should end within this share of the time left."""
LEFT_FOR_MORE_DATA = 0.2
"""The share of a budget that a search on parts of the data leaves for training the best on all of them."""

CANDIDATES = 10
"""So many of the best models are looked through for those that can be trained on more data in time."""
TURN, LEAST_TURN_S = 0.3, 2.0
"""A trial may use this share of the time left: an iterative algorithm ends by itself then, with what it has
learned; another one is cut soon after."""
LAST = 0.25
"""In this last share of the time, a trial may use nearly all that is left."""
TOO_LONG = "it took too much of the time left"
GRACE_S = 5.0
"""The search cuts a trial in time; an engine that has heard nothing so much later ends it by itself."""

TIME_UP = "the time was up"
INTERRUPTED = "it was interrupted"


@dataclass
class _Member:
    """A trial under way."""

    number: int
    index: int
    wish: Wish
    run: Run
    began_s: float
    limit_s: float
    reservation: Reservation
    heard_s: float = 0.0
    progress: list[Progress] = field(default_factory=list)


class Search:
    """Runs the trials of some plans; `entries` and `failures` grow as trials end.

    Trials of earlier sessions are taken in first, and paid for already. The clock is that of the whole
    request: what earlier sessions took counts. The last `later` plans repeat the others, for what did best on
    a part of the data: they come at the end, when only what the terms put by is left.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        seekers: Sequence[Seeker],
        session: Session,
        request: TrainingRequest,
        work: Path,
        terms: Terms,
        watch: Watch | None = None,
        later: int = 0,
    ) -> None:
        self._plans, self._seekers, self._session = plans, seekers, session
        self._request, self._work, self._terms = request, work, terms
        self._watch = watch or (lambda event: None)
        self.entries: list[Entry] = []
        self.failures: list[Failure] = []
        self.ended = ""
        self.ledger = Ledger(terms.price_of_all_usd)
        self._standings = [Standing() for _ in plans]
        self._later = range(len(plans) - later, len(plans))
        self._open = set(range(len(plans) - later))
        self._waiting: set[int] = set()
        self._peers = Peers()
        self._members: dict[int, _Member] = {}
        self._zero_s = self._begun_s = time.monotonic()
        for index, seeker in enumerate(seekers):
            for told in seeker.earlier():
                self._take_in(index, told)

    # What there is

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._zero_s

    @property
    def session_s(self) -> float:
        """Seconds of this session alone."""
        return time.monotonic() - self._begun_s

    @property
    def trials(self) -> int:
        return len(self.entries) + len(self.failures)

    @property
    def running(self) -> int:
        return len(self._members)

    # The loop

    def run(self) -> bool:
        """Work until nothing is left to do; True if it was interrupted."""
        try:
            self._fill()
            while self._members:
                member, event = self._hear()
                self._handle(member, event)
                self._fill()
        except KeyboardInterrupt:
            self.ended = INTERRUPTED
            self._drop()
            return True
        except BaseException:
            self._drop()
            raise
        return False

    def _fill(self) -> None:
        while len(self._members) < self._terms.parallelism:
            over = self._over()
            ready = [index for index in sorted(self._open) if index not in self._waiting]
            if over or not ready:
                self.ended = self.ended or over or ("" if self._members else "everything was tried")
                if not self._later or not (over or not self._members):
                    return
                self._go_on_with_the_best()
                continue
            index = choose(self._standings, ready, self._in_turn, self._request.seed, self._left_s())
            if not self._start(index):
                if any(member.index == index for member in self._members.values()):
                    self._waiting.add(index)
                else:
                    self._open.discard(index)

    def _go_on_with_the_best(self) -> None:
        """From now on only what did best on a part of the data, or promises to, is trained on more.

        Where nothing is left to train on more data, the search goes on as before until the end.
        """
        first, self._later = self._later, range(0)
        self._terms = replace(self._terms, put_by=0.0)
        foretold = [
            (place, seeker.recommended()) for place, seeker in enumerate(self._seekers[: first.start])
        ]
        chosen = [(place, self._plans[place].on(1.0, found)) for place, found in foretold if found]
        chosen = chosen or self._leaders(self._terms.parallelism)
        if not chosen:
            self.ended = ""
            return
        self._open, self._waiting = set(first), set()
        for place, configuration in chosen:
            again = self._seekers[first.start + place]
            assert isinstance(again, Given)
            again.add(configuration)

    @property
    def _in_turn(self) -> bool:
        return self._plans[0].search in ("random", "grid")

    def _over(self) -> str:
        """Why no further trial may start; empty while it may."""
        terms = self._terms
        if self.trials + len(self._members) >= terms.most_trials:
            return f"{terms.trials} trials were made"
        if self.ledger.left_usd <= max(ROUNDING_USD, terms.put_by_usd()):
            return f"the budget of {format_money(terms.price_of_all_usd or 0.0)} is spent"
        if self._left_s() <= terms.put_by_s():
            if terms.time_s is not None and terms.time_s <= terms.deadline_left_s:
                return f"the {format_duration(terms.time_s)} are over"
            return "the deadline has come"
        return ""

    def _left_s(self) -> float:
        """Seconds until trials are cut; a deadline is counted from now, a budget from the beginning."""
        budget_s = math.inf if self._terms.time_s is None else self._terms.time_s
        return min(budget_s - self.elapsed_s, self._terms.deadline_left_s - self.session_s)

    def _turn_s(self) -> float:
        """How long a trial that starts now should take at most; the last ones have all the time left."""
        left_s = self._left_s()
        return SAFE * left_s if left_s < LAST * self._terms.most_s else max(TURN * left_s, LEAST_TURN_S)

    def _start(self, index: int) -> bool:
        """Begin a trial of a method; False if it has none to begin now."""
        plan, standing = self._plans[index], self._standings[index]
        if not self._terms.limited and standing.started >= plan.enough:
            return False
        wish = self._seekers[index].ask()
        if wish is None:
            return False
        number = self._number(index, wish.number)
        hyperparameters, transforms, fraction = plan.parts(wish.configuration)
        left_s, turn_s = self._left_s(), self._turn_s()
        spec = TrialSpec(
            number,
            plan.algorithm.name,
            plan.algorithm.complete(hyperparameters),
            transforms,
            fraction,
            self._request.seed,
            self._folder(index, wish.number),
            None if math.isinf(left_s) else left_s + GRACE_S,
            None if math.isinf(turn_s) else turn_s,
        )
        reservation = self.ledger.reserve(f"trial {number}", self._likely_usd(standing))
        standing.started += 1
        began_s = time.monotonic()
        run = self._session.start(spec)
        limit_s = min(left_s, 1.5 * turn_s)
        self._members[number] = _Member(number, index, wish, run, began_s, limit_s, reservation)
        self._watch(Started(number, plan.algorithm.name, wish.why))
        return True

    def _number(self, index: int, own: int) -> int:
        """A number for each trial of the request that follows from its method and its place there."""
        return (own - 1) * self._terms.methods + self._plans[index].index + 1

    def _folder(self, index: int, own: int) -> Path:
        return self._work / str(self._number(index, own))

    def _likely_usd(self, standing: Standing) -> float:
        """What to put aside for a trial: twice what its method's trials took, or a share of what is left."""
        left = self.ledger.left_usd
        if math.isinf(left):
            return 0.0
        mean_s = standing.spent_s / standing.ended if standing.ended else math.inf
        return min(2.0 * self._terms.price.cost_usd(mean_s), left / (2.0 * self._terms.parallelism))

    def _leaders(self, count: int) -> list[tuple[int, Configuration]]:
        """The best models so far that saw a part of the data, on as much of it as the time left allows.

        Each with the place of its plan. Training is taken to grow in proportion to the rows.
        """
        found: list[tuple[int, Configuration]] = []
        for entry in sorted(self.entries, key=standing)[:CANDIDATES]:
            if len(found) == count:
                break
            place = (entry.trial - 1) % (self._terms.methods // 2)
            plan, share = self._plans[place], entry.transforms.get(SAMPLE, {}).get("fraction", 1.0)
            affordable = [
                more for more in plan.shares if entry.train_s * more / share <= SAFE * self._left_s()
            ]
            if affordable and affordable[-1] > share:
                found.append((place, plan.on(affordable[-1], configuration_of(entry))))
        return found

    # Runs under way

    def _hear(self) -> tuple[_Member, Progress | Outcome | None]:
        """The next thing that a run says; None for a run that has reached its limit."""
        while True:
            for member in list(self._members.values()):
                age_s = time.monotonic() - member.began_s
                slice_s = min(max(SHARE * age_s, SHORTEST_S), LONGEST_S)
                limit_s = min(member.limit_s, self._paid_until_s(member))
                event = member.run.next(min(max(age_s, member.heard_s) + slice_s, limit_s))
                member.heard_s = max(member.heard_s, time.monotonic() - member.began_s)
                if event is not None or member.heard_s >= limit_s:
                    return member, event

    def _paid_until_s(self, member: _Member) -> float:
        if self.ledger.budget_usd is None:
            return math.inf
        return self._terms.price.seconds_for(member.reservation.usd)

    def _handle(self, member: _Member, event: Progress | Outcome | None) -> None:
        if isinstance(event, Progress):
            member.progress.append(event)
            self._watch(Shown(member.number, self._plans[member.index].algorithm.name, event))
            if self._may_cut(member) and self._peers.outdone(self._kind(member), member.progress):
                self._end(member, member.run.cut(member.heard_s, OTHERS_BETTER))
        elif isinstance(event, Outcome):
            self._end(member, event)
        elif member.heard_s >= member.limit_s:
            why = TIME_UP if self._left_s() <= 0 else TOO_LONG
            self._end(member, member.run.cut(member.heard_s, why))
        elif self.ledger.extend_up_to(member.reservation, max(member.reservation.usd, 1e-6)) <= ROUNDING_USD:
            self._end(member, member.run.cut(member.heard_s, OUT_OF_MONEY))

    def _may_cut(self, member: _Member) -> bool:
        """Whether the request lets trials be cut for others; those on the most data at the end never are."""
        search, asked = self._plans[member.index].search, self._request.early_stopping
        return search != GIVEN and (search != "grid" if asked is None else asked)

    def _kind(self, member: _Member) -> tuple[int, float]:
        """Trials of the same method on as much data can be compared from stage to stage."""
        return member.index, self._plans[member.index].parts(member.wish.configuration)[2]

    def _end(self, member: _Member, outcome: Outcome) -> None:
        del self._members[member.number]
        index = member.index
        self._waiting.discard(index)
        cost_usd = self._charge(member, outcome)
        if outcome.status == FINISHED and "score" in outcome.measures:
            self._peers.add(self._kind(member), member.progress, outcome.measures["score"])
        # On the disk first: a model that is paid for is never lost.
        self._seekers[index].tell(member.wish, outcome, member.progress, cost_usd)
        result = self._record(index, member.wish.number, member.wish.configuration, outcome, cost_usd)
        self._watch(Ended(result))

    def _charge(self, member: _Member, outcome: Outcome) -> float:
        price, usd = self._terms.price, 0.0
        if outcome.started:
            usd = price.cost_usd(outcome.time_s)
        if usd > member.reservation.usd:
            self.ledger.extend_up_to(member.reservation, usd - member.reservation.usd)
        # A run ends a blink after its limit; the budget is a promise, so the charge stops there.
        usd = min(usd, member.reservation.usd)
        if outcome.time_s > 0 and outcome.started:
            self.ledger.settle_usd(member.reservation, usd, outcome.time_s, price, note=outcome.status)
        else:
            self.ledger.release(member.reservation)
        return usd

    def _drop(self) -> None:
        """Stop what is under way without charging it; a resumed request begins it again."""
        for member in list(self._members.values()):
            member.run.cut(member.heard_s, "interrupted")
            self._seekers[member.index].abandon(member.wish)
        self._members.clear()

    # What is known

    def _take_in(self, index: int, told: Told) -> None:
        """A trial of an earlier session."""
        self._standings[index].started += 1
        if told.cost_usd > 0:
            number = self._number(index, told.number)
            charge = Charge(f"trial {number}", told.cost_usd, told.outcome.time_s, self._terms.price)
            self.ledger.restore(charge)
        self._zero_s -= told.outcome.time_s / self._terms.parallelism
        result = self._record(index, told.number, told.configuration, told.outcome, told.cost_usd)
        self._watch(Ended(result, earlier=True))

    def _record(
        self, index: int, own: int, configuration: Configuration, outcome: Outcome, cost_usd: float
    ) -> Entry | Failure:
        plan, standing = self._plans[index], self._standings[index]
        hyperparameters, transforms, fraction = plan.parts(configuration)
        if plan.fraction is not None:
            transforms = {**transforms, SAMPLE: {"fraction": fraction}}
        number, measures = self._number(index, own), outcome.measures
        finished = outcome.status == FINISHED and "score" in measures
        standing.note(outcome.time_s, measures["score"] if finished else None)
        if not finished:
            why = outcome.why or "it gave no score"
            cut = outcome.status == CUT
            failure = Failure(number, plan.algorithm.name, hyperparameters, why, cost_usd, cut)
            self.failures.append(failure)
            hopeless = standing.ended >= GIVE_UP and math.isinf(standing.best) and plan.search != "grid"
            if hopeless:
                self._open.discard(index)
            return failure
        entry = Entry(
            0,
            plan.algorithm.name,
            hyperparameters,
            measures["score"],
            self._terms.metric,
            measures.get("value", measures["score"]),
            str(self._folder(index, own)),
            measures.get("train_s", outcome.time_s),
            measures.get("predict_ms", 0.0),
            cost_usd,
            number,
            transforms,
        )
        self.entries.append(entry)
        return entry


def configuration_of(entry: Entry) -> Configuration:
    """The configuration of the space that an entry came from, without the share of the data."""
    steps = {name: kept for name, kept in entry.transforms.items() if name != SAMPLE}
    settings = {f"{name}.{key}": value for name, kept in steps.items() for key, value in kept.items()}
    return {**entry.hyperparameters, **settings}
