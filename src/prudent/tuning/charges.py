"""What a run is charged: everything that was paid for it, and nothing else."""

from __future__ import annotations

from prudent.core.ledger import LedgerEntry
from prudent.core.money import ROUNDING_USD, Price
from prudent.tuning.trial import CUT, Outcome

INTERRUPTED = "interrupted"
"""The note of a charge for a run that Ctrl-C, a kill or a crash ended: it was paid and taught nothing."""

SIGN_S, SIGN_SHARE = 1.0, 0.01
"""How often it is noted that a run is alive: what a crash leaves unpaid is no more than this."""


def heartbeat_after_s(lasted_s: float) -> float:
    """When to note again that a run is alive that has lasted so long: in a second, or a hundredth of that."""
    return max(SIGN_S, SIGN_SHARE * lasted_s)


def charge_of(label: str, price: Price, outcome: Outcome, reserved_usd: float) -> LedgerEntry | None:
    """The charge for a run; None if it could not start and no machine was rented for it.

    Without a bill of somebody else it is by the price: the run, the boot before it and the end after it, as
    long as they took, or as the price says where nobody measured them.
    """
    boot_s, ending_s = outcome.overhead_s or price.boot_s, outcome.ending_s or price.release_s
    lasted_s = outcome.time_s + outcome.overhead_s
    usd = outcome.bill_usd
    if usd is None:
        if not outcome.started or lasted_s == 0:
            return None
        lasted_s = outcome.time_s + boot_s + ending_s
        usd = price.cost_usd(lasted_s)
    if usd == 0 and outcome.time_s == 0:
        return None
    if usd <= reserved_usd + ROUNDING_USD:
        usd = min(usd, reserved_usd)
    return LedgerEntry(label, usd, lasted_s, price, note=outcome.status)


def interrupted_charge(label: str, price: Price, outcome: Outcome) -> LedgerEntry | None:
    """The charge for a run that was ended before its time, by nobody's decision."""
    charge = charge_of(f"{label}, {INTERRUPTED}", price, outcome, 0.0)
    return (
        None
        if charge is None
        else LedgerEntry(charge.label, charge.usd, charge.seconds, price, note=INTERRUPTED)
    )


def interrupted_outcome(seconds: float) -> Outcome:
    """What is known of a run of which nothing is left but its last sign of life."""
    return Outcome(CUT, seconds, why=INTERRUPTED)
