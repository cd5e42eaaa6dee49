"""What trials cost, and how long the money for them lasts: by their own time, or by the machines' meter.

Trials that a kill or a crash interrupted were paid too: heartbeats on the disk tell how long they lasted.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from prudent.cloud.meter import Meter
from prudent.core.ledger import Ledger, LedgerEntry, Reservation
from prudent.core.money import ROUNDING_USD, Price
from prudent.tuning.study.settlement import INTERRUPTED
from prudent.tuning.trial import Outcome


class CostAccounting(Protocol):
    """The money of one request. Trials are known by their numbers."""

    @property
    def spent_usd(self) -> float:
        """What was paid so far, in all sessions."""

    @property
    def left_usd(self) -> float:
        """What is left for further trials; inf without a budget."""

    @property
    def affordable_s(self) -> float:
        """How long a trial could go on with what is left, if all others had as much."""

    @property
    def out_of_money(self) -> bool:
        """Whether the money, and with it the machines, are gone: whatever fails now fails for that reason."""

    @property
    def poll_every_s(self) -> float:
        """How often `lasts_s` must be asked again because it changes by itself; inf: it does not."""

    def begin(self, number: int, likely_s: float) -> None:
        """A trial begins that should take so long (inf: unknown)."""

    def lasts_s(self, number: int, age_s: float) -> float:
        """Up to which age a trial of this age is paid for, without the time that ending it takes."""

    def extend(self, number: int) -> bool:
        """Whether a trial that has reached that age gets more money; if so, it is put aside."""

    def settle(self, number: int, outcome: Outcome) -> float:
        """A trial is over; answers what it has cost."""

    def restore(self, number: int, outcome: Outcome, usd: float) -> None:
        """A trial of an earlier session was paid."""

    def charge_interrupted(self, seconds: float) -> float:
        """Charge trials that a kill or Ctrl-C ended after so long in all; answers what that has cost."""


class PriceAccounting:
    """Every trial costs the price of its own time: on a machine that trials share, by their share.

    Money is reserved before a trial begins, and more while it runs; a charge is always what was paid.
    """

    out_of_money = False
    poll_every_s = math.inf

    def __init__(self, price: Price, budget_usd: float | None, parallelism: int) -> None:
        self._price, self._parallelism = price, parallelism
        self._ledger = Ledger(budget_usd)
        self._reserved: dict[int, Reservation] = {}

    @property
    def spent_usd(self) -> float:
        return self._ledger.spent_usd

    @property
    def left_usd(self) -> float:
        return self._ledger.left_usd

    @property
    def affordable_s(self) -> float:
        return self._price.seconds_for(self._ledger.left_usd / self._parallelism)

    def begin(self, number: int, likely_s: float) -> None:
        """Put aside twice what it should take, or a share of what is left."""
        left_usd, likely_usd = self._ledger.left_usd, 0.0
        if math.isfinite(left_usd):
            likely_usd = min(2.0 * self._price.cost_usd(likely_s), left_usd / (2.0 * self._parallelism))
        self._reserved[number] = self._ledger.reserve(f"trial {number}", likely_usd)

    def lasts_s(self, number: int, age_s: float) -> float:
        del age_s
        if self._ledger.budget_usd is None:
            return math.inf
        return self._price.seconds_for(self._reserved[number].usd)

    def extend(self, number: int) -> bool:
        reservation = self._reserved[number]
        return self._ledger.extend_up_to(reservation, max(reservation.usd, 1e-6)) > ROUNDING_USD

    def settle(self, number: int, outcome: Outcome) -> float:
        reservation = self._reserved.pop(number)
        lasted_s = outcome.time_s + outcome.ending_s
        if lasted_s <= 0 or not outcome.started:
            self._ledger.release(reservation)
            return 0.0
        usd = self._price.cost_usd(lasted_s)
        if usd > reservation.usd:
            self._ledger.extend_up_to(reservation, usd - reservation.usd)  # the remainder exceeds the budget
        return self._ledger.settle_usd(reservation, usd, lasted_s, self._price, note=outcome.status).usd

    def restore(self, number: int, outcome: Outcome, usd: float) -> None:
        if usd > 0:
            self._ledger.restore(LedgerEntry(f"trial {number}", usd, outcome.time_s, self._price))

    def charge_interrupted(self, seconds: float) -> float:
        usd = self._price.cost_usd(seconds)
        if usd > 0:
            self._ledger.restore(
                LedgerEntry("interrupted trials", usd, seconds, self._price, note=INTERRUPTED)
            )
        return usd


class MeterAccounting:
    """What rented machines cost is divided among the running trials; while none runs, no trial is charged.

    The budget covers all of it, from the order to the give-back. A `BudgetGuard` ends the machines in time;
    `is_gone` tells that it did.
    """

    poll_every_s = 0.1

    def __init__(self, meter: Meter, is_gone: Callable[[], bool]) -> None:
        self._meter, self._is_gone = meter, is_gone
        self._counted_usd = meter.spent_usd()
        self._shares_usd: dict[int, float] = {}

    @property
    def spent_usd(self) -> float:
        return self._meter.spent_usd()

    @property
    def left_usd(self) -> float:
        """What the time left is worth: a billing minimum that was paid is there to be used."""
        rate = self._meter.usd_per_s
        return self._meter.left_usd if rate == 0 and not self.out_of_money else self.affordable_s * rate

    @property
    def affordable_s(self) -> float:
        return 0.0 if self.out_of_money else self._meter.lasts_s()

    @property
    def out_of_money(self) -> bool:
        return self._is_gone()

    def begin(self, number: int, likely_s: float) -> None:
        del likely_s
        self._divide()
        self._shares_usd[number] = 0.0

    def lasts_s(self, number: int, age_s: float) -> float:
        del number
        return age_s + self.affordable_s

    def extend(self, number: int) -> bool:
        del number
        return False

    def settle(self, number: int, outcome: Outcome) -> float:
        del outcome
        self._divide()
        return self._shares_usd.pop(number)

    def restore(self, number: int, outcome: Outcome, usd: float) -> None:
        """Leases remember what was paid before: the meter has it."""

    def charge_interrupted(self, seconds: float) -> float:
        del seconds  # the meter has that too
        return 0.0

    def _divide(self) -> None:
        spent_usd = self._meter.spent_usd()
        more_usd, self._counted_usd = spent_usd - self._counted_usd, spent_usd
        for number in self._shares_usd:
            self._shares_usd[number] += more_usd / len(self._shares_usd)


EVERY_S, SHARE = 1.0, 0.01
"""How often heartbeats are recorded: a kill leaves no more than this, or this share of a trial, unpaid."""


class TrialHeartbeats:
    """How long interrupted trials lasted, in all sessions of a request, kept on the disk.

    A trial whose outcome is in a journal was not interrupted, whatever was recorded of it before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        said = _read(path)
        self._interrupted_s = float(said.get("lost_s", 0.0))
        self._left: dict[str, float] = dict(said.get("under_way_s", {}))
        self.due_s = -math.inf
        """When the next heartbeat is due."""

    def interrupted_s(self, ended: Collection[int]) -> float:
        """The time of trials that were interrupted in earlier sessions: those not among the `ended`."""
        self._interrupted_s += math.fsum(
            age_s for number, age_s in self._left.items() if int(number) not in ended
        )
        self._left = {}
        if self._interrupted_s:
            self._write({})
        return self._interrupted_s

    def record(self, now_s: float, ages_s: Mapping[int, float]) -> None:
        """Record the ages of the trials that run."""
        self.due_s = now_s + max(EVERY_S, SHARE * max(ages_s.values(), default=0.0))
        self._write(ages_s)

    def add_interrupted(self, seconds: float) -> None:
        """A trial was interrupted after so long."""
        self._interrupted_s += seconds
        self._write({})

    def _write(self, ages_s: Mapping[int, float]) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"lost_s": self._interrupted_s, "under_way_s": dict(ages_s)}))
        os.replace(fresh, self._path)


def _read(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
