"""Settings: who wins, what is refused, and that secrets stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.core.errors import BadInput
from prudent.service.settings import Settings, environment_of, load


def test_flags_win_over_variables_and_those_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("home: /a\nport: 1\nper_user: 1\ndata: [/x, /y]\n")
    found = load({"port": 3}, file, {"PRUDENT_PORT": "2", "PRUDENT_PER_USER": "2"})
    assert (found.port, found.per_user, found.home) == (3, 2, Path("/a"))
    assert found.data == (Path("/x"), Path("/y"))


def test_another_process_gets_the_same() -> None:
    said = {"home": "/a", "data": ("/x", "/y"), "database_url": "postgresql://me:hush@h/d", "concurrency": 3}
    first = load(said, environment={})
    assert load({}, environment=environment_of(first)) == first


def test_secrets_come_from_files_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("hush\n")
    file = tmp_path / "settings.yaml"
    file.write_text("home: /a\nsmtp_password_file: word\n")
    found = load({}, file, {"PRUDENT_DATABASE_URL": "postgresql://me:hush2@host/db"})
    assert found.smtp_password == "hush"
    assert "hush" not in repr(found)
    file.write_text("smtp_password: hush\n")
    with pytest.raises(BadInput, match="smtp_password_file"):
        load({}, file, {})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"prot": 1}, 'Did you mean "port"'),
        ({"port": "x"}, "port"),
        ({"concurrency": 0}, "concurrency"),
        ({"takeover_s": 1.0, "heartbeat_s": 1.0}, "three heartbeats"),
    ],
)
def test_what_is_wrong_is_told(said: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load(said, environment={})


def test_places_and_addresses() -> None:
    found = Settings(Path("/srv/p"))
    assert found.engine_database == "sqlite:////srv/p/prudent-engine.db"
    assert found.loopback
    assert not Settings(Path("/a"), host="0.0.0.0").loopback
    away = Settings(Path("/a"), database_url="postgresql://h/d")
    assert away.database == away.engine_database == "postgresql+psycopg://h/d"


def test_buckets_are_names() -> None:
    assert load({"home": "/a", "buckets": "ours, theirs"}, environment={}).buckets == ("ours", "theirs")
    for wrong in ("s3://ours", "ours/folder"):
        with pytest.raises(BadInput, match="write buckets as names"):
            load({"home": "/a", "buckets": wrong}, environment={})
