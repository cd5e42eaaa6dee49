"""A session ends on the server; bad tries harm nobody who has a good token; homes are their owner's alone."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from prudent.cli.main import run
from prudent.service.security.browser_sessions import COOKIE, LASTS_S, BrowserSessions, RevokedSessions
from prudent.service.security.tokens import hash_token, new_token
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store
from prudent.service.store.users import User
from prudent.service.web.app import create_app

Serving = Callable[[FastAPI], AbstractContextManager[httpx.Client]]
TOKEN = new_token()


@pytest.fixture
def team(tmp_path: Path) -> Settings:
    settings = Settings(tmp_path / "home")
    settings.create()
    with Store(settings.database) as store:
        store.write(users.put, User("mia", "member", None, hash_token(TOKEN)))
    return settings


def test_a_cookie_dies_at_sign_out_also_its_copies(team: Settings, serving: Serving) -> None:
    with Store(team.database) as store:
        with serving(create_app(team, store)) as client:
            other = client.post("/sign-in", data={"token": TOKEN}).cookies[COOKIE]
            client.cookies.clear()
            copy = client.post("/sign-in", data={"token": TOKEN}).cookies[COOKIE]
            page = client.get("/runs")
            (form_token,) = set(re.findall(r'name="csrf" value="([^"]+)"', page.text))
            assert client.post("/sign-out", data={"csrf": form_token}).status_code == 303
            client.cookies.clear()
            assert _runs(client, copy) == 401
            assert _runs(client, other) == 200, "another session of the same user goes on"
        with serving(create_app(team, store)) as client:  # after a restart, or in another process
            assert (_runs(client, copy), _runs(client, other)) == (401, 200)


def _runs(client: httpx.Client, cookie: str) -> int:
    return client.get("/v1/runs", headers={"cookie": f"{COOKIE}={cookie}"}).status_code


def test_what_has_run_out_is_forgotten(tmp_path: Path) -> None:
    sessions = BrowserSessions(b"k" * 32, RevokedSessions(tmp_path / "signed-out"))
    old = [sessions.begin("mia", "", 1000.0) for _ in range(5)]
    for value in old:
        sessions.end(value, 1000.0)
        assert not sessions.valid(value, "")
    sessions.end("no cookie", 1000.0)
    late_s = 1001.0 + LASTS_S
    fresh = sessions.begin("mia", "", late_s)
    sessions.end(fresh, late_s)
    assert len((tmp_path / "signed-out").read_text().splitlines()) == 1
    assert not BrowserSessions(b"k" * 32, RevokedSessions(tmp_path / "signed-out")).valid(fresh, "")
    assert stat.S_IMODE((tmp_path / "signed-out").stat().st_mode) == 0o600


def test_bad_tries_never_lock_out_a_good_token(team: Settings, serving: Serving) -> None:
    with Store(team.database) as store, serving(create_app(team, store)) as client:
        statuses = [client.post("/sign-in", data={"token": "x"}).status_code for _ in range(15)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        links = [client.get("/sign-in?token=x").status_code for _ in range(3)]
        assert links == [429] * 3
        wrong = [client.get("/v1/runs", headers={"authorization": "Bearer x"}).status_code for _ in range(15)]
        assert (wrong[0], wrong[-1]) == (401, 429)
        assert client.get("/v1/runs", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.post("/sign-in", data={"token": TOKEN}).status_code == 303
        assert client.get(f"/sign-in?token={TOKEN}").status_code == 303


def test_strangers_who_ask_too_often_keep_nobody_from_signing_in(team: Settings, serving: Serving) -> None:
    with (
        Store(team.database) as store,
        serving(create_app(replace(team, rate_per_s=0.001), store)) as client,
    ):
        while client.get("/sign-in").status_code != 429:
            pass
        assert client.post("/sign-in", data={"token": TOKEN}).status_code == 303


def test_homes_are_closed_also_where_they_were_open_before(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for folder in (home, home / "runs", home / "data", home / "outbox"):
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    for name in ("prudent.db", "session.key", "operator.token"):
        (home / name).write_text("x")
        (home / name).chmod(0o644)
    Settings(home).create()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.iterdir())}
    assert modes == {
        **dict.fromkeys(("home", "runs", "data", "outbox"), 0o700),
        **dict.fromkeys(("prudent.db", "session.key", "operator.token"), 0o600),
    }


def test_what_a_command_writes_into_a_home_is_closed(tmp_path: Path) -> None:
    assert run(["users", "add", "mia", "--home", str(tmp_path / "home")]) == 0
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "home").glob("prudent.db*")}
    assert modes == {0o600}
