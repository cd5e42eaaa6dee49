"""What a service says of itself in its home, and who can read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prudent.core.errors import BadInput
from prudent.service.security.checklist import FILE, ServiceFile, write_service_file
from prudent.service.settings import Settings

URL = "postgresql://ada:hidden@127.0.0.1/prudent"


@pytest.fixture(autouse=True)
def _no_database_of_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRUDENT_DATABASE_URL", "PRUDENT_DATABASE_URL_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_what_was_told_is_read(tmp_path: Path) -> None:
    settings = Settings(tmp_path, heartbeat_s=3.0)
    path = write_service_file(settings, "http://127.0.0.1:8080", sandboxed=False)
    assert path.stat().st_mode & 0o777 == 0o600
    found = ServiceFile.read(tmp_path)
    assert (found.address, found.pid, found.sandboxed) == ("http://127.0.0.1:8080", os.getpid(), False)
    assert (found.settings.home, found.settings.heartbeat_s) == (tmp_path, 3.0)
    assert found.secrets == frozenset()


def test_a_database_elsewhere_is_named_and_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_service_file(Settings(tmp_path, database_url=URL), "http://127.0.0.1:8080", sandboxed=True)
    assert "hidden" not in path.read_text()
    with pytest.raises(BadInput, match="set PRUDENT_DATABASE_URL as for the service"):
        ServiceFile.read(tmp_path)
    monkeypatch.setenv("PRUDENT_DATABASE_URL", URL)
    found = ServiceFile.read(tmp_path)
    assert found.settings.database_url == URL
    assert found.secrets == {"database_url"}


def test_where_nothing_ran_or_its_file_is_damaged_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No service has run"):
        ServiceFile.read(tmp_path)
    for text in ("", "[]", "{}"):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(BadInput, match="cannot be read"):
            ServiceFile.read(tmp_path)
