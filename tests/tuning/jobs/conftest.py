"""What the tests of jobs share: following a run to its end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prudent.tuning.jobs.job import Run
from prudent.tuning.trial import Outcome, Progress

LONG_S = 120.0
"""Longer than any run of these tests; reached only when something hangs."""


def follow(run: Run, until_s: float = LONG_S) -> tuple[list[Progress], Outcome]:
    """Everything a run shows, and how it ends."""
    shown: list[Progress] = []
    while True:
        event = run.next(until_s)
        assert event is not None, f"nothing happened in {until_s} s"
        if isinstance(event, Outcome):
            return shown, event
        shown.append(event)


@pytest.fixture(name="follow")
def _follow() -> Callable[..., tuple[list[Progress], Outcome]]:
    return follow
