"""Rows that come in one piece: the same as one by one, and SQLite takes one step for all."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from prudent.service.store import events, runs
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table

TITLE = 'q"uo\\te, [ü] \U0001f600 \n\t\x01'


def new(**others: object) -> NewRun:
    return NewRun("tune", "ada", {}, "rest", "body", **others)  # type: ignore[arg-type]


def test_a_list_says_what_the_run_says(store: Store) -> None:
    """Every digit of a time, what is unknown, and text of all kinds."""
    made = [store.write(runs.insert, new(title=TITLE, created_s=1e9 / 3 + number))[0] for number in range(9)]
    values = {"eta_s": math.pi, "spent_usd": 0.1 + 0.2, "cancel": True, "fence": 2**40, "error": TITLE}
    store.write(lambda c: c.execute(table.update().where(table.c.id == made[0].id).values(**values)))
    listed = store.read(runs.page).runs
    assert listed == tuple(store.read(runs.get, run.id) for run in reversed(made))
    assert (listed[-1].eta_s, listed[-1].cancel, listed[-1].started_s) == (math.pi, True, None)
    assert store.read(runs.page, user="nobody").runs == ()


def test_fifty_runs_are_one_row_to_sqlite(tmp_path: Path) -> None:
    """Other threads may run after every row: in a busy process a list would wait for each of them."""
    asked: list[str] = []

    def page(connection: sa.Connection) -> int:
        raw: Any = connection.connection.dbapi_connection
        raw.set_trace_callback(asked.append)
        found = len(runs.page(connection, 50).runs)
        raw.set_trace_callback(None)
        return found

    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        for _ in range(50):
            store.write(runs.insert, new())
        assert store.read(page) == 50
    with closing(sqlite3.connect(tmp_path / "store.db")) as base:
        assert [len(base.execute(question).fetchall()) for question in asked] == [1]


def test_events_come_in_order(store: Store) -> None:
    run = store.write(runs.insert, new())[0].id
    for number in range(20):
        store.write(events.append, run, "log", {"n": number, "text": TITLE})
    found = store.read(events.since, run, 1)
    assert [event.data for event in found] == [{"n": number, "text": TITLE} for number in range(20)]
    assert found[0].at_s == store.read(events.since, run, 1, 1)[0].at_s
