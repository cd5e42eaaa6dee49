"""Tokens are kept as hashes only, sessions end with the token they began with."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.service.security.browser_sessions import (
    LASTS_S,
    BrowserSessions,
    cookie_of,
    session_key,
    set_cookie,
)
from prudent.service.security.rate_limits import RateLimit
from prudent.service.security.tokens import checked_name, hash_token, identify, new_token
from prudent.service.store.users import User


def test_a_token_identifies_its_holder_and_nobody_else() -> None:
    tokens = {name: new_token() for name in ("ada", "bob", "eve")}
    accounts = [User(name, "viewer", 2.5, hash_token(token)) for name, token in tokens.items()]
    assert len(set(tokens.values())) == 3
    assert all(token not in str(accounts) for token in tokens.values())
    for name, token in tokens.items():
        assert identify(token, accounts) == User(name, "viewer", 2.5, hash_token(token))
    ada = tokens["ada"]
    for wrong in ("", ada[:-1], ada + "x", ada.upper(), " " + ada, "é" * 40, "x" * 10**6, hash_token(ada)):
        assert identify(wrong, accounts) is None


@pytest.mark.parametrize("name", ["", "local", "../x", "a b", "a\nb", "<b>", "x" * 65, "-rf", "é", "a/b"])
def test_names_that_could_do_harm_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="user name"):
        checked_name(name)


def test_a_session_is_its_users_until_it_ends_or_the_token_changes() -> None:
    sessions = BrowserSessions(b"k" * 32)
    value = sessions.begin("ada", "hash", 1000.0)
    assert sessions.name(value, 1000.0) == "ada"
    assert sessions.valid(value, "hash")
    assert sessions.name(value, 1001.0 + LASTS_S) is None
    assert not sessions.valid(value, "other hash")
    assert not BrowserSessions(b"j" * 32).valid(value, "hash")
    assert sessions.is_form_token(value, sessions.form_token(value))
    other = sessions.begin("ada", "hash", 1000.0)
    assert not sessions.is_form_token(other, sessions.form_token(value))


@given(st.text(max_size=80), st.integers(0, 200), st.characters())
def test_no_altered_cookie_is_valid(garbage: str, place: int, letter: str) -> None:
    sessions = BrowserSessions(b"k" * 32)
    value = sessions.begin("ada", "hash", 1000.0)
    altered = value[: place % len(value)] + letter + value[place % len(value) + 1 :]
    for wrong in (garbage, altered):
        if wrong != value:
            sessions.name(wrong, 1000.0)  # whatever it is, no exception
            assert not sessions.valid(wrong, "hash")


def test_cookies_are_strict_and_unreadable_for_scripts() -> None:
    line = set_cookie("abc", secure=True)
    assert all(word in line for word in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/"))
    assert "Max-Age=0" in set_cookie("", secure=False)
    assert cookie_of('x="; prudent_session=a') in ("", "a")
    assert cookie_of("prudent_session=" + "[" * 100) is not None


def test_the_key_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "home" / "session.key"
    first = session_key(file)
    assert len(first) == 32
    assert session_key(file) == first
    assert file.stat().st_mode & 0o077 == 0
    assert [child.name for child in file.parent.iterdir()] == ["session.key"]


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.5, 10), st.integers(1, 10))
def test_no_more_turns_than_burst_and_pace(gaps: list[float], per_s: float, burst: int) -> None:
    rate, now_s, taken = RateLimit(per_s, burst), 0.0, 0
    for gap in gaps:
        now_s += gap
        taken += rate.wait_s("ada", now_s) == 0.0
    assert taken <= burst + per_s * now_s + 1e-6


def test_who_waits_as_told_gets_a_turn_and_strangers_fill_no_memory() -> None:
    rate = RateLimit(per_s=2, burst=1, most_keys=100)
    assert rate.wait_s("ada", 0.0) == 0.0
    wait_s = rate.wait_s("ada", 0.1)
    assert wait_s == pytest.approx(0.4)
    assert rate.wait_s("ada", 0.1 + wait_s) == 0.0
    assert rate.wait_s("bob", 0.5) == 0.0
    for number in range(10_000):
        rate.wait_s(str(number), 1.0)
    assert len(rate._left) <= 100
