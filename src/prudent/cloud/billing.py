"""How rented machines are billed: by the second, a minute at least."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prudent.core.money import Price

if TYPE_CHECKING:
    from prudent.cloud.catalog import Machine

MINIMUM_S = 60.0
"""AWS bills Linux on-demand machines per second, with a minimum of one minute each time one is started."""


def on_demand(usd_per_h: float, date: str, source: str, minimum_s: float = MINIMUM_S) -> Price:
    """The price of a machine that is rented for a run.

    >>> on_demand(3.6, "2025-01-01", "catalog").cost_usd(10)
    0.06
    """
    return Price(usd_per_h, date, source, minimum_s)


def as_measured(usd_per_h: float, date: str, source: str) -> Price:
    """The price of a run in a table of measured runs: price x time as it stands, no minimum.

    >>> as_measured(3.6, "", "table runs.csv").cost_usd(10)
    0.01
    """
    return Price(usd_per_h, date, source)


def cluster_price(machine: Machine, count: int) -> Price:
    """The price of `count` machines rented together; each is billed for the same seconds."""
    return machine.price.times(count)
