"""`prudent check --service HOME` finds what is not as the checklist wants it, on a service that runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from prudent.cli.main import run
from prudent.service.security.checklist import PARTS as CHECKS
from prudent.service.security.checklist import ServiceFile, run_checklist, write_service_file
from prudent.service.security.tokens import AccessMode, hash_token, make_token
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store
from prudent.service.store.users import User
from prudent.service.web.app import create_app
from prudent.service.worker.sandbox import has_bubblewrap

PARTS = ["modes", "tokens", "strangers", "proxy", "limits", "data", "database", "commands", "mail"]
BEHIND_A_PROXY = {"trusted_hosts": ("prudent.example.org",), "public_url": "https://prudent.example.org"}


@pytest.fixture
def service(
    tmp_path: Path, serving: Callable[[FastAPI], AbstractContextManager[httpx.Client]]
) -> Iterator[tuple[Settings, str]]:
    """A running service with its address, and its secrets closed."""
    settings = Settings(tmp_path / "home", smtp_password="hush-hush")
    settings.create()
    make_token(settings.home)
    with Store(settings.database) as store:
        store.write(users.put, User("kim", "commander", None, hash_token("kim")))
        with serving(create_app(settings, store)) as client:
            settings.create()
            address = str(client.base_url).rstrip("/")
            write_service_file(settings, address, has_bubblewrap())
            yield settings, address


def _problems(home: Path) -> dict[str, tuple[str, ...]]:
    found = dict(run_checklist(home))
    if os.geteuid() == 0 and has_bubblewrap():  # where tests run as root, so does the service
        assert found["commands"][:1] == (
            "It runs as root; start it as an account of its own, or set run_as.",
        ) or "run_as" in str(found["commands"])
        found["commands"] = tuple(text for text in found["commands"] if "runs as root" not in text)
    return found


@pytest.mark.skipif(not has_bubblewrap(), reason="needs bubblewrap")
def test_a_good_one_has_nothing_wrong(service: tuple[Settings, str]) -> None:
    settings, address = service
    assert _problems(settings.home) == dict.fromkeys(PARTS, ())
    write_service_file(replace(settings, **BEHIND_A_PROXY), address, True)  # type: ignore[arg-type]
    assert _problems(settings.home) == dict.fromkeys(PARTS, ())
    assert "hush-hush" not in (settings.home / "service.json").read_text()


@pytest.mark.parametrize(
    ("changes", "part", "said"),
    [
        ({"host": "0.0.0.0", **BEHIND_A_PROXY}, "proxy", "listen on 127.0.0.1"),
        ({"trusted_hosts": ("prudent.example.org",)}, "proxy", "certificate"),
        ({"host": "0.0.0.0"}, "proxy", "trusted_hosts"),
        ({"body_mb": 1000.0}, "limits", "body_mb"),
        ({"rate_per_s": 1e6}, "limits", "rate_per_s"),
        ({"headers_s": 60.5}, "limits", "headers_s"),
        ({"memory_mb": 1e9}, "limits", "together more than this machine has"),
        ({"where": "local"}, "limits", "kim"),
        ({"bubblewrap": False}, "commands", "kim"),
        ({"run_as": "nobody-of-this-name"}, "commands", "no account"),
        ({"command_environment": ("PRUDENT_SMTP_PASSWORD",)}, "commands", "leave it out"),
        ({"cors_origins": ("*",)}, "strangers", "name those whose scripts may call"),
        ({"cors_origins": ("https://*.example.org",)}, "strangers", "name those"),
        ({"cors_origins": ("null",)}, "strangers", "name those"),
        ({"private_networks": ("0.0.0.0/0",)}, "data", "every address; name the networks"),
        ({"private_networks": ("::/0",)}, "data", "every address"),
        ({"private_networks": ("10.0.0.0/8", "169.254.0.0/16")}, "data", "name a smaller network"),
        ({"private_networks": ("169.254.169.254",)}, "data", "smaller"),
        ({"private_networks": ("::ffff:0:0/96",)}, "data", "smaller"),
        ({"private_networks": ("fd00::/8",)}, "data", "smaller"),
        ({"private_networks": ("ours",)}, "data", "not a network"),
        ({"webhook_url": "https://a.example/x"}, "mail", "webhook_secret_file"),
        ({"smtp_host": "mail", "smtp_security": "none"}, "mail", "starttls"),
        ({"webhook_url": "http://a.example/x"}, "mail", "https"),
    ],
)
def test_settings_that_are_not_safe(
    service: tuple[Settings, str], changes: dict[str, Any], part: str, said: str
) -> None:
    settings, address = service
    write_service_file(replace(settings, **changes), address, True)
    assert said in " ".join(dict(run_checklist(settings.home))[part])


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"cors_origins": ("https://friend.example",)}, "strangers"),
        ({"private_networks": ("10.1.0.0/16", "fd12::/16")}, "data"),
        ({"webhook_url": "https://a.example/x", "webhook_secret": "hush-hush"}, "mail"),
        ({"headers_s": 60.0}, "limits"),
    ],
)
def test_settings_that_are_safe(service: tuple[Settings, str], changes: dict[str, Any], part: str) -> None:
    settings, address = service
    file = write_service_file(replace(settings, **changes), address, True)
    assert dict(run_checklist(settings.home))[part] == ()
    assert "hush-hush" not in file.read_text()


def test_data_folders_that_would_show_the_home(service: tuple[Settings, str], tmp_path: Path) -> None:
    settings, address = service
    (tmp_path / "ours").mkdir()
    (tmp_path / "link").symlink_to(settings.home)
    (tmp_path / "ours" / "smtp").write_text("hush")
    for folder in (tmp_path, settings.home, settings.runs, tmp_path / "link"):
        write_service_file(replace(settings, data=(folder,)), address, True)
        (said,) = dict(run_checklist(settings.home))["data"]
        assert f'Requests may read "{settings.home.resolve()}"' in said
        assert "name a folder of data alone" in said
    for folder in (tmp_path / "ours", settings.home / "data" / "cars"):
        write_service_file(replace(settings, data=(folder,)), address, True)
        assert dict(run_checklist(settings.home))["data"] == ()
    secret = (tmp_path / "ours" / "smtp",)
    write_service_file(replace(settings, data=(tmp_path / "ours",), secret_files=secret), address, True)
    assert "ours/smtp" in dict(run_checklist(settings.home))["data"][0]


def test_secret_files_that_others_may_read(service: tuple[Settings, str], tmp_path: Path) -> None:
    settings, address = service
    file = tmp_path / "smtp"
    file.write_text("hush-hush")
    write_service_file(replace(settings, secret_files=(file, tmp_path / "gone")), address, True)
    for mode, count in ((0o600, 0), (0o400, 0), (0o640, 1), (0o604, 1)):
        file.chmod(mode)
        said = dict(run_checklist(settings.home))["modes"]
        assert [f'"{file}"; chmod 600' in text for text in said] == [True] * count


def test_a_parent_of_the_home_that_others_may_write_to(service: tuple[Settings, str], tmp_path: Path) -> None:
    home = service[0].home
    for mode, count in ((0o755, 0), (0o777, 1), (0o1777, 0), (0o700, 0)):
        tmp_path.chmod(mode)
        said = dict(run_checklist(home))["modes"]
        assert [f'chmod go-w "{tmp_path}"' in text for text in said] == [True] * count


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_group_that_may_write_there(service: tuple[Settings, str], tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    for group, count in ((0, 0), (65534, 1)):  # the owner's own, and another
        os.chown(tmp_path, -1, group)
        assert len(dict(run_checklist(service[0].home))["modes"]) == count


@pytest.mark.parametrize(
    ("url", "count"),
    [
        ("postgresql://me@127.0.0.1/db", 1),
        ("postgres://me@db.example:5433/db", 1),
        ("postgresql://me@/db?host=db.example", 1),
        ("postgresql://me:hush@127.0.0.1/db", 0),
        ("postgresql://me@127.0.0.1/db?passfile=/etc/pg", 0),
        ("postgresql://me@127.0.0.1/db?sslcert=/etc/cert", 0),
        ("postgresql:///db?service=ours", 0),
        ("postgresql://me@/db", 0),
        ("postgresql://me@/db?host=/run/postgresql", 0),
        (None, 0),
    ],
)
def test_a_database_that_asks_for_no_password(
    url: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLCERT"):
        monkeypatch.delenv(name, raising=False)
    running = ServiceFile("http://127.0.0.1:9", os.getpid(), Settings(tmp_path, database_url=url))
    said = list(dict(CHECKS)["database"](running, ()))
    assert ["have the server ask for one" in text for text in said] == [True] * count
    monkeypatch.setenv("PGPASSWORD", "hush")
    assert not list(dict(CHECKS)["database"](running, ())), "it may be asked for after all"


def test_a_home_that_is_not_closed(service: tuple[Settings, str]) -> None:
    home = service[0].home
    home.chmod(0o755)
    (home / "runs").chmod(0o755)
    (home / "session.key").chmod(0o644)
    (home / "operator.token").unlink()
    found = _problems(home)
    first, second, third = found["modes"]
    assert ("chmod 700" in first, "/runs" in second, "session.key" in third) == (True, True, True)
    assert "operator.token" in found["tokens"][0]
    (home / "operator.token").write_text("short")
    (home / "operator.token").chmod(0o600)
    assert "can be guessed" in _problems(home)["tokens"][0]
    AccessMode(home).choose(True)
    assert "--no-open" in _problems(home)["tokens"][0]


@pytest.mark.parametrize(
    ("run_as", "mode", "count"),
    [(None, 0o700, 0), (None, 0o710, 1), ("nobody", 0o710, 0), ("nobody", 0o750, 0), ("nobody", 0o705, 1)],
)
def test_folders_are_open_to_the_account_of_commands_alone(
    service: tuple[Settings, str], run_as: str | None, mode: int, count: int
) -> None:
    settings, address = service
    write_service_file(replace(settings, run_as=run_as), address, True)
    (settings.home / "runs").chmod(mode)
    said = dict(run_checklist(settings.home))["modes"]
    assert ["/runs" in text for text in said] == [True] * count


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_home_of_another_account(service: tuple[Settings, str]) -> None:
    os.chown(service[0].home, 65534, 65534)
    assert "belongs to another account" in _problems(service[0].home)["modes"][0]


def test_tokens_that_others_may_write_and_users_without_one(
    service: tuple[Settings, str], tmp_path: Path
) -> None:
    settings, address = service
    file = tmp_path / "tokens.yaml"
    file.write_text(f"ada: {{token_hash: {hash_token('ada')}}}")
    file.chmod(0o666)
    write_service_file(replace(settings, tokens=file), address, True)
    with Store(settings.database) as store:
        store.write(users.put, User("old", "member", None, None))
    writable, without = _problems(settings.home)["tokens"]
    assert "chmod 600" in writable
    assert "(old)" in without
    file.chmod(0o644)
    assert not any("chmod 600" in said for said in _problems(settings.home)["tokens"])


@pytest.mark.skipif(not has_bubblewrap(), reason="needs bubblewrap")
def test_a_wall_that_came_after_the_start_is_none(service: tuple[Settings, str]) -> None:
    settings, address = service
    write_service_file(settings, address, False)
    assert "start it again" in _problems(settings.home)["commands"][0]


def test_what_does_not_answer_and_what_never_ran(
    service: tuple[Settings, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, _ = service
    write_service_file(settings, "http://127.0.0.1:9", True)
    assert run(["check", "--service", str(settings.home), "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    found = {each["subject"].rpartition(", ")[2]: each["problems"] for each in answer["checked"]}
    assert list(found) == PARTS
    assert "Nothing answers at http://127.0.0.1:9" in found["strangers"][0]
    assert run(["check", "--service", str(tmp_path / "none")]) == 2
    assert "prudent serve" in capsys.readouterr().err


def test_a_service_that_lets_strangers_in_is_noticed(
    service: tuple[Settings, str], serving: Callable[[FastAPI], AbstractContextManager[httpx.Client]]
) -> None:
    settings, _ = service
    other = FastAPI()
    other.get("/v1/runs")(lambda: {})
    with serving(other) as client:
        write_service_file(settings, str(client.base_url).rstrip("/"), True)
        assert len(_problems(settings.home)["strangers"]) == 3
