"""`prudent users`: a token is shown once, and only its hash is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prudent.cli.main import run
from prudent.service.security.tokens import hash_token


def _users(home: Path, *words: str) -> int:
    return run(["users", words[0], *words[1:], "--home", str(home)])


def test_add_list_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _users(tmp_path, "list") == 0
    assert "No users yet" in capsys.readouterr().out
    assert _users(tmp_path, "add", "ada", "--role", "admin", "--daily-usd", "5", "--json") == 0
    token = json.loads(capsys.readouterr().out)["token"]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("prudent.db*"))
    assert token.encode() not in stored
    assert hash_token(token).encode() in stored
    assert _users(tmp_path, "list") == 0
    shown = capsys.readouterr().out
    assert "ada" in shown
    assert "$5.00" in shown
    assert token not in shown
    assert _users(tmp_path, "remove", "ada") == 0
    assert _users(tmp_path, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2]) == []


def test_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _users(tmp_path, "add", "ada") == 0
    assert "prudent_" in capsys.readouterr().out
    for words, said in (
        (("add", "ada"), "--replace"),
        (("add", "../x"), "user name"),
        (("add", "bob", "--role", "amdin"), 'Did you mean "admin"'),
        (("add", "bob", "--daily-usd", "-1"), "amount"),
        (("remove", "adda"), 'Did you mean "ada"'),
    ):
        assert _users(tmp_path, *words) == 2
        assert said in capsys.readouterr().err
    assert _users(tmp_path, "add", "ada", "--replace") == 0
