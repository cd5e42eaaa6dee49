"""Tokens are asked for unless the operator says otherwise, and nothing but their word changes that."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from prudent.cli.main import run
from prudent.cli.serve import sign_in_lines
from prudent.core.errors import BadInput
from prudent.service.security import accounts, protection
from prudent.service.security.tokens import (
    MODE,
    TOKEN_FILE,
    AccessMode,
    hash_token,
    make_token,
    new_token,
    operator,
)
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store
from prudent.service.store.users import User
from prudent.service.web.app import create_app

Serving = Callable[[FastAPI], AbstractContextManager[httpx.Client]]
TOKEN = new_token()
MIA = User("mia", "member", None, hash_token(TOKEN))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts are looked up for every request."""
    monkeypatch.setattr(accounts, "FRESH_S", -1.0)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_home_is_closed_unless_it_was_opened(home: Path) -> None:
    access = AccessMode(home)
    assert not access.is_open(())
    access.choose(True)
    assert AccessMode(home).is_open(())
    assert stat.S_IMODE((home / MODE).stat().st_mode) == 0o600
    assert not AccessMode(home, alone=False).is_open(())
    (home / MODE).write_text("opened, more or less")
    assert not access.is_open(())


def test_the_first_user_closes_it_for_good_and_the_operator_does_not(home: Path) -> None:
    access = AccessMode(home)
    access.choose(True)
    make_token(home)
    own = operator(home)
    assert own is not None
    assert access.is_open((own,))
    assert not access.is_open((own, MIA))
    assert not access.is_open((own,))


def test_the_operator_has_one_token_that_only_they_can_read(home: Path) -> None:
    token = make_token(home)
    assert token is not None
    assert make_token(home) is None
    assert (home / TOKEN_FILE).read_text().strip() == token
    assert stat.S_IMODE((home / TOKEN_FILE).stat().st_mode) == 0o600
    assert operator(home) == User("operator", "admin", None, hash_token(token))
    (home / TOKEN_FILE).unlink()
    assert operator(home) is None


def test_what_would_let_strangers_in_is_not_started(home: Path, store: Store) -> None:
    settings = Settings(home)
    assert not protection.check_access(settings, store).chosen_open
    assert protection.check_access(settings, store, True).chosen_open
    assert protection.check_access(settings, store).chosen_open  # it is kept
    elsewhere = replace(settings, host="0.0.0.0"), replace(settings, trusted_hosts=("prudent.example.org",))
    for reached in elsewhere:
        for said in (None, True):
            with pytest.raises(BadInput, match="an open service requires no token"):
                protection.check_access(reached, store, said)
    store.write(users.put, MIA)
    with pytest.raises(BadInput, match="There are users with tokens"):
        protection.check_access(settings, store, True)
    assert not protection.check_access(settings, store, False).chosen_open
    for reached in elsewhere:
        protection.check_access(reached, store)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("opened", [False, True])
def test_removing_the_last_account_opens_nothing(
    home: Path, store: Store, serving: Serving, opened: bool
) -> None:
    settings = Settings(home)
    protection.check_access(settings, store, opened)
    with serving(create_app(settings, store)) as client:
        assert client.get("/v1/runs").status_code == (200 if opened else 401)
        store.write(users.put, MIA)
        assert client.get("/v1/runs").status_code == 401
        assert client.get("/v1/runs", headers=_bearer(TOKEN)).status_code == 200
        store.write(users.remove, "mia")
        assert client.get("/v1/runs", headers=_bearer(TOKEN)).status_code == 401
        assert client.get("/v1/runs").status_code == 401
        assert client.post("/v1/runs/tune", json={"command": "id"}).status_code == 401


def test_a_user_closes_an_open_home_also_while_nothing_runs(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    AccessMode(home).choose(True)
    assert run(["users", "add", "mia", "--home", str(home)]) == 0
    assert "asks everybody for a token" in capsys.readouterr().out
    assert run(["users", "remove", "mia", "--home", str(home)]) == 0
    assert not AccessMode(home).chosen_open


@pytest.mark.usefixtures("at_once")
def test_what_is_read_is_decided_for_each_request(
    home: Path, store: Store, serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for an account that was added after the start."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "rows.csv").write_text("a,y\n1,2\n")
    monkeypatch.chdir(work)
    token = make_token(home)
    assert token is not None
    document = {"domain": "regression", "dataset": {"path": str(work / "rows.csv"), "target": "y"}}
    with serving(create_app(protection.with_own_folders(Settings(home)), store)) as client:
        store.write(users.put, MIA)
        theirs = client.post("/v1/runs/train", json=document, headers=_bearer(TOKEN))
        assert (theirs.status_code, "data folders" in theirs.text) == (422, True)
        own = client.post("/v1/runs/train", json=document, headers=_bearer(token))
        assert own.status_code == 202
        assert "rows.csv" in client.get("/submit/train", headers=_bearer(token)).text
        assert "rows.csv" not in client.get("/submit/train", headers=_bearer(TOKEN)).text


def test_the_link_signs_in_unless_another_site_leads_there(
    home: Path, store: Store, serving: Serving
) -> None:
    token = make_token(home)
    with serving(create_app(Settings(home), store)) as client:
        link = f"/sign-in?token={token}"
        elsewhere = client.get(link, headers={"sec-fetch-site": "cross-site"})
        assert (elsewhere.status_code, "set-cookie" in elsewhere.headers) == (200, False)
        wrong = client.get(f"/sign-in?token={new_token()}")
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        answer = client.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/runs")
        page = client.get("/runs")
        assert page.status_code == 200
        assert "operator" in page.text


def test_the_token_is_shown_once(tmp_path: Path) -> None:
    first = " ".join(sign_in_lines(tmp_path, False, "prudent_x"))
    assert "{address}/sign-in?token=prudent_x" in first
    later = " ".join(sign_in_lines(tmp_path, False, None))
    assert "token=" not in later
    assert str(tmp_path / TOKEN_FILE) in later
    opened = " ".join(sign_in_lines(tmp_path, True, None))
    assert "may do everything here, and run commands as you" in opened
