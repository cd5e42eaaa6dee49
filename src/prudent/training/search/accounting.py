"""What trials cost, and how long the money for them lasts: by their own time, or by the machines' meter."""

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
from prudent.tuning.charges import INTERRUPTED
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
    def paid_s(self) -> float:
        """How long a trial could go on with what is left, if all others had as much."""

    @property
    def broke(self) -> bool:
        """Whether the money is gone, and what trials ran on with it: whatever fails now fails for that."""

    @property
    def every_s(self) -> float:
        """How often `lasts_s` is to be asked, for it changes without anybody saying so; inf: it does not."""

    def begin(self, number: int, likely_s: float) -> None:
        """A trial begins that should take so long (inf: nobody knows)."""

    def lasts_s(self, number: int, age_s: float) -> float:
        """Up to which age a trial of this age is paid for; all that it takes to end it is not in that."""

    def more(self, number: int) -> bool:
        """Whether a trial that has reached that age gets more money."""

    def settle(self, number: int, outcome: Outcome) -> float:
        """A trial is over; answers what it has cost."""

    def restore(self, number: int, outcome: Outcome, usd: float) -> None:
        """A trial of an earlier session was paid."""

    def lost(self, seconds: float) -> float:
        """Trials that a kill or Ctrl-C ended lasted so long in all; answers what that has cost."""


class PriceAccounting:
    """Every trial costs the price of its own time: on a machine that trials share, by their share.

    Money is put aside before a trial begins, and more while it runs; a charge is what was paid, always.
    """

    broke = False
    every_s = math.inf

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
    def paid_s(self) -> float:
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

    def more(self, number: int) -> bool:
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
            self._ledger.extend_up_to(reservation, usd - reservation.usd)  # the rest of it passes the budget
        return self._ledger.settle_usd(reservation, usd, lasted_s, self._price, note=outcome.status).usd

    def restore(self, number: int, outcome: Outcome, usd: float) -> None:
        if usd > 0:
            self._ledger.restore(LedgerEntry(f"trial {number}", usd, outcome.time_s, self._price))

    def lost(self, seconds: float) -> float:
        usd = self._price.cost_usd(seconds)
        if usd > 0:
            self._ledger.restore(
                LedgerEntry("interrupted trials", usd, seconds, self._price, note=INTERRUPTED)
            )
        return usd


class MeterAccounting:
    """What rented machines cost is divided among the trials under way; while there is none, nobody has it.

    The budget is for all of it, from the order to the give-back: somebody else ends the machines in time, and
    `gone` tells when the money was.
    """

    every_s = 0.1

    def __init__(self, meter: Meter, gone: Callable[[], bool]) -> None:
        self._meter, self._gone = meter, gone
        self._counted_usd = meter.spent_usd()
        self._shares_usd: dict[int, float] = {}

    @property
    def spent_usd(self) -> float:
        return self._meter.spent_usd()

    @property
    def left_usd(self) -> float:
        """What the time left is worth: a billing minimum that was paid is there to be used."""
        rate = self._meter.usd_per_s
        return self._meter.left_usd if rate == 0 and not self.broke else self.paid_s * rate

    @property
    def paid_s(self) -> float:
        return 0.0 if self.broke else self._meter.lasts_s()

    @property
    def broke(self) -> bool:
        return self._gone()

    def begin(self, number: int, likely_s: float) -> None:
        del likely_s
        self._divide()
        self._shares_usd[number] = 0.0

    def lasts_s(self, number: int, age_s: float) -> float:
        del number
        return age_s + self.paid_s

    def more(self, number: int) -> bool:
        del number
        return False

    def settle(self, number: int, outcome: Outcome) -> float:
        del outcome
        self._divide()
        return self._shares_usd.pop(number)

    def restore(self, number: int, outcome: Outcome, usd: float) -> None:
        """Leases remember what was paid before: the meter has it."""

    def lost(self, seconds: float) -> float:
        del seconds  # the meter has that too
        return 0.0

    def _divide(self) -> None:
        spent_usd = self._meter.spent_usd()
        more_usd, self._counted_usd = spent_usd - self._counted_usd, spent_usd
        for number in self._shares_usd:
            self._shares_usd[number] += more_usd / len(self._shares_usd)


EVERY_S, SHARE = 1.0, 0.01
"""How often they are noted: what a kill leaves unpaid is no more than this, or this share of a trial."""


class TrialHeartbeats:
    """How long trials lasted that were ended before their time, in all sessions of a request.

    A trial that was told in a journal is no such one, whatever was noted of it before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        said = _read(path)
        self._lost_s = float(said.get("lost_s", 0.0))
        self._left: dict[str, float] = dict(said.get("under_way_s", {}))
        self.due_s = -math.inf
        """When the next sign is due."""

    def lost_s(self, told: Collection[int]) -> float:
        """What was lost in earlier sessions, once it is known which trials were told."""
        self._lost_s += math.fsum(age_s for number, age_s in self._left.items() if int(number) not in told)
        self._left = {}
        if self._lost_s:
            self._write({})
        return self._lost_s

    def note(self, now_s: float, ages_s: Mapping[int, float]) -> None:
        """These trials live, and have lasted so long."""
        self.due_s = now_s + max(EVERY_S, SHARE * max(ages_s.values(), default=0.0))
        self._write(ages_s)

    def lose(self, seconds: float) -> None:
        """A trial was ended before its time after so long."""
        self._lost_s += seconds
        self._write({})

    def _write(self, ages_s: Mapping[int, float]) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"lost_s": self._lost_s, "under_way_s": dict(ages_s)}))
        os.replace(fresh, self._path)


def _read(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
