"""`prudent money` says what commands on this computer have spent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.spending import SpendingLog


@pytest.fixture
def money(prudent: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*arguments: str) -> Any:
        done = prudent("money", "--json", *arguments)
        assert done.code == 0, done.err
        return json.loads(done.out)

    return ask


def test_a_study_is_in_the_book_and_a_replay_is_not(
    prudent: Callable[..., Any], job: Callable[..., Path], command_job: Callable[..., Path], money: Any
) -> None:
    assert prudent("tune", job("replay.yaml"), "--json").code == 0
    assert money()["days"] == []
    assert prudent("money").out.startswith("Nothing was spent since")
    done = prudent("tune", command_job(name="wine"), "--max-trials", "2", "--json")
    assert done.code == 0, done.err
    spent_usd = json.loads(done.out)["spent_usd"]
    assert spent_usd > 0
    [spent] = money("--since", "1 d")["days"]
    assert (spent["kind"], spent["project"], spent["runs"]) == ("tune", "wine", 1)
    assert spent["usd"] == pytest.approx(spent_usd)
    shown = prudent("money").out
    assert "wine" in shown
    assert "Expected" in shown


def test_days_are_chosen(money: Any, prudent: Callable[..., Any]) -> None:
    SpendingLog().tell("train", "iris", "a", 0.25, 0.5)
    assert money("--since", "2000-01-01")["total_usd"] == 0.25
    assert money("--since", "2999-01-01")["days"] == []
    done = prudent("money", "--since", "yesterday")
    assert done.code == 2
    assert "--since 2026-11-01" in done.err
