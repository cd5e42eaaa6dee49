"""Studies on rented machines in all kinds of trouble; metered beside the provider, launch by launch."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from money.played import Played

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "tuning"))

import clusters_soak


def play(seed: int, folder: Path) -> Played:
    """Kills, preemptions, failed launches, prices that change: all from `tests/tuning/clusters_soak.py`."""
    case = clusters_soak.Case.draw(seed)
    happened = clusters_soak.study(case, folder)
    second_usd = case.parallel * max(clusters_soak.COUNTS) * max(clusters_soak.PRICES.values()) / 3600
    return Played(
        "tune, machines",
        seed,
        case.budget_usd,
        happened.get("paid_usd", 0.0),
        happened.get("spent_usd", 0.0),
        second_usd * (1 + case.spot),
        max(happened.get("spent_usd", 0.0) - case.budget_usd, 0.0),
        troubles=Counter({"SIGKILL": happened["deaths"], **happened.get("befell", {})}),
        failure="; ".join(happened["broken"]),
    )
