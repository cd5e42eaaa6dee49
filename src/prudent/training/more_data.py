"""Which models that saw a part of the data are worth training on more of it."""

from __future__ import annotations

from collections.abc import Sequence

from prudent.training.leaderboard import SAMPLE, Entry, standing
from prudent.training.methods import Plan
from prudent.tuning.trial import Configuration

CANDIDATES = 10
"""So many of the best models are looked through for those that can be trained on more data in time."""


def leaders(
    entries: Sequence[Entry], plans: Sequence[Plan], left_s: float, count: int
) -> list[tuple[int, Configuration]]:
    """The best models so far that saw a part of the data, on as much of it as the time left allows.

    Each with the place of its plan. Training is taken to grow in proportion to the rows.
    """
    found: list[tuple[int, Configuration]] = []
    for entry in sorted(entries, key=standing)[:CANDIDATES]:
        if len(found) == count:
            break
        place = (entry.trial - 1) % len(plans)
        plan, share = plans[place], entry.transforms.get(SAMPLE, {}).get("fraction", 1.0)
        affordable = [more for more in plan.shares if entry.train_s * more / share <= left_s]
        if affordable and affordable[-1] > share:
            found.append((place, plan.on(affordable[-1], configuration_of(entry))))
    return found


def configuration_of(entry: Entry) -> Configuration:
    """The configuration of the space that an entry came from, without the share of the data."""
    steps = {name: kept for name, kept in entry.transforms.items() if name != SAMPLE}
    settings = {f"{name}.{key}": value for name, kept in steps.items() for key, value in kept.items()}
    return {**entry.hyperparameters, **settings}
