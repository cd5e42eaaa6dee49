"""Money: reserved before a run, within the budget; charged after it, whatever it was."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prudent.core.errors import BadInput, PrudentError
from prudent.core.exact_sum import ExactSum
from prudent.core.money import ROUNDING_USD, Price

CREDIT = "credit"
"""The note of an entry that takes a charge back."""


class BudgetExceeded(PrudentError):
    """The money for this is not there; raise the budget, or run something cheaper."""


class ReservationClosed(PrudentError):
    """This reservation was settled or released before; make a new one."""


class Reservation:
    """Money put aside for one run; only its ledger changes it.

    `usd` is the amount put aside now (0 once closed), `open` says whether it still can be settled.
    """

    __slots__ = ("_open", "_usd", "label")

    def __init__(self, label: str, usd: float) -> None:
        self.label = label
        self._usd = usd
        self._open = True

    @property
    def usd(self) -> float:
        return self._usd

    @property
    def open(self) -> bool:
        return self._open

    def __repr__(self) -> str:
        return f"Reservation({self.label!r}, usd={self._usd}, open={self._open})"


@dataclass(frozen=True)
class LedgerEntry:
    """One charge: what for, how much, how long, and at which price of which date.

    Below zero it is a `CREDIT`: what was charged before and turned out not to have been paid.
    """

    label: str
    usd: float
    seconds: float
    price: Price
    machines: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        if self.note != CREDIT:
            _check_money(self.usd)
        if not (math.isfinite(self.usd) and math.isfinite(self.seconds) and self.seconds >= 0):
            raise BadInput(
                f'The charge for "{self.label}" is not finite: give the seconds that the run lasted.'
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a journal; `from_dict` gives the same entry back."""
        return {
            "label": self.label,
            "usd": self.usd,
            "seconds": self.seconds,
            "price": self.price.to_dict(),
            "machines": self.machines,
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LedgerEntry:
        """The entry that `to_dict` wrote."""
        try:
            return cls(
                label=str(values["label"]),
                usd=float(values["usd"]),
                seconds=float(values["seconds"]),
                price=Price.from_dict(values["price"]),
                machines=int(values["machines"]),
                note=str(values["note"]),
            )
        except KeyError as error:
            raise BadInput(f"A ledger entry lacks {error}: it was not written by Prudent.") from error
        except (TypeError, ValueError) as error:
            raise BadInput(f"A ledger entry is damaged ({error}): restore the file from a copy.") from error


class Ledger:
    """The account of one study: no more is ever promised than the budget, and what was paid is written down.

    A reservation is refused where spent + reserved would exceed the budget. A charge never is, and is never
    cut short: it was paid. Whoever runs things has to end them in time; where that failed, `over_usd` tells.

    Thread-safe, so parallel trials can share it: a reservation either fits next to all others or
    is refused. Sums are exactly rounded (`math.fsum`) and so do not depend on the order in which
    trials ended: a resumed study sees the same money left, to the last bit, as one that was
    never interrupted.

    >>> ledger = Ledger(budget_usd=1.0)
    >>> price = Price(3.6, "2025-01-01", "catalog")
    >>> run = ledger.reserve("trial 1", 0.75)
    >>> ledger.settle_usd(run, price.cost_usd(500), 500, price).usd
    0.5
    >>> ledger.spent_usd, ledger.left_usd
    (0.5, 0.5)
    """

    def __init__(self, budget_usd: float | None = None) -> None:
        if budget_usd is not None and not (math.isfinite(budget_usd) and budget_usd >= 0):
            raise BadInput(f"The budget {budget_usd} is not an amount of money: give dollars, 0 or more.")
        self.budget_usd = budget_usd
        self._entries: list[LedgerEntry] = []
        self._spent = ExactSum()
        self._open: set[Reservation] = set()
        self._lock = threading.Lock()

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every charge, in the order in which they were made."""
        with self._lock:
            return tuple(self._entries)

    @property
    def spent_usd(self) -> float:
        """What was charged."""
        with self._lock:
            return self._spent.total()

    @property
    def reserved_usd(self) -> float:
        """What is put aside for runs under way."""
        with self._lock:
            return math.fsum(reservation.usd for reservation in self._open)

    @property
    def left_usd(self) -> float:
        """What can still be reserved: budget - spent - reserved, inf without a budget, never below 0."""
        with self._lock:
            return self._left()

    @property
    def over_usd(self) -> float:
        """By how much what was charged has passed the budget; 0 while the promise is kept."""
        budget_usd = math.inf if self.budget_usd is None else self.budget_usd
        over_usd = self.spent_usd - budget_usd
        return over_usd if over_usd > ROUNDING_USD else 0.0

    def reserve(self, label: str, usd: float) -> Reservation:
        """Put money aside for a run, before it starts; refused if it is not there.

        An amount that misses the money left by rounding alone gets exactly what is left.
        """
        _check_money(usd)
        with self._lock:
            left = self._left()
            if usd > left + ROUNDING_USD:
                raise BudgetExceeded(
                    f'"{label}" needs ${usd:.6g}, but only ${left:.6g} of the budget of '
                    f"${self.budget_usd:.6g} is left: raise the budget or run something cheaper."
                )
            reservation = Reservation(label, min(usd, left))
            self._open.add(reservation)
            return reservation

    def extend_up_to(self, reservation: Reservation, more_usd: float) -> float:
        """Put as much of `more_usd` aside as there is; answers how much was added."""
        _check_money(more_usd)
        with self._lock:
            self._check_open(reservation)
            granted = min(more_usd, self._left())
            reservation._usd += granted
            return granted

    def settle_usd(
        self,
        reservation: Reservation,
        usd: float,
        seconds: float,
        price: Price,
        machines: int = 1,
        note: str = "",
    ) -> LedgerEntry:
        """Charge a run; the rest of its reservation is free again.

        `price` is that of the whole cluster; `machines` only says how many there were.
        A bill above the reservation is charged in full: it takes what others could have had, and then passes
        the budget. What is above it by rounding alone is the reservation.
        """
        _check_money(usd)
        with self._lock:
            self._check_open(reservation)
            charge = float(min(usd, reservation.usd) if usd <= reservation.usd + ROUNDING_USD else usd)
            entry = LedgerEntry(reservation.label, charge, float(seconds), price, machines, note)
            self._write_down(entry)
            self._close(reservation)
            return entry

    def release(self, reservation: Reservation) -> None:
        """Give the money back: the run never started, so it costs nothing."""
        with self._lock:
            self._check_open(reservation)
            self._close(reservation)

    def restore(self, entry: LedgerEntry) -> None:
        """Take over a charge of an earlier session, from its journal.

        It was paid, so it counts even if the budget has been lowered since; then nothing is left.
        """
        with self._lock:
            self._write_down(entry)

    def _write_down(self, entry: LedgerEntry) -> None:
        self._entries.append(entry)
        self._spent.add(entry.usd)

    def _left(self) -> float:
        if self.budget_usd is None:
            return math.inf
        committed_usd = self._spent.total(reservation.usd for reservation in self._open)
        return max(0.0, self.budget_usd - committed_usd)

    def _check_open(self, reservation: Reservation) -> None:
        if reservation not in self._open:
            raise ReservationClosed(
                f'The reservation for "{reservation.label}" is not open in this ledger: make a new one.'
            )

    def _close(self, reservation: Reservation) -> None:
        self._open.discard(reservation)
        reservation._usd = 0.0
        reservation._open = False


def _check_money(usd: float) -> None:
    if math.isnan(usd) or usd < 0:
        raise BadInput(f"{usd} is not an amount of money: give dollars, 0 or more.")
