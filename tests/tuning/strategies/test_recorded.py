"""Every strategy believes, scores and chooses as recorded; a change must be meant (see `recorded.py`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prudent.tuning.strategies.registry import strategies

from .recorded import CASES, FILE, decision, rounded

RECORDED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def test_every_strategy_is_among_them() -> None:
    assert set(RECORDED) == set(CASES)
    assert {case.strategy for case in CASES.values()} == set(strategies())


@pytest.mark.parametrize("name", CASES)
def test_the_decision_is_as_recorded(name: str) -> None:
    said, was = rounded(decision(CASES[name])), RECORDED[name]
    assert not list(different({what: said[what] for what in was}, was))


def different(is_now: Any, was: Any, where: str = "") -> Any:
    """Where two records differ, by more than rounding."""
    if isinstance(was, dict):
        keys = set(was) | set(is_now if isinstance(is_now, dict) else ())
        for key in sorted(keys):
            here, before = (one.get(key) if isinstance(one, dict) else None for one in (is_now, was))
            yield from different(here, before, f"{where}.{key}")
    elif isinstance(was, list):
        if not isinstance(is_now, list) or len(is_now) != len(was):
            yield f"{where}: {is_now} was {was}"
            return
        for place, (here, before) in enumerate(zip(is_now, was, strict=True)):
            yield from different(here, before, f"{where}[{place}]")
    elif isinstance(was, float) and isinstance(is_now, int | float):
        if is_now != pytest.approx(was, rel=1e-6, abs=1e-9):
            yield f"{where}: {is_now} was {was}"
    elif is_now != was:
        yield f"{where}: {is_now} was {was}"
