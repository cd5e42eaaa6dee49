"""Whose files a request may name, by who can reach the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.core.errors import BadInput
from prudent.service.intake.places import inside
from prudent.service.security.guard import at_home
from prudent.service.settings import Settings
from prudent.service.store.store import Store


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    (place / ".ssh").mkdir(parents=True)
    (place / "rows.csv").write_text("a,b\n1,2\n")
    (place / ".ssh" / "id").write_text("secret")
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place))
    return place


def settled(here: Path, **changes: object) -> Settings:
    settings = Settings(here.parent / "home", **changes)  # type: ignore[arg-type]
    settings.create()
    with Store(settings.database) as store:
        return at_home(settings, store)


def test_ones_own_service_reads_ones_own_files(here: Path) -> None:
    folders = settled(here).data_folders
    assert inside(str(here / "rows.csv"), folders) == (here / "rows.csv").resolve()
    assert inside("rows.csv", folders) == (here / "rows.csv").resolve()


@pytest.mark.parametrize(
    "path", [".ssh/id", "/etc/passwd", "/proc/self/environ", "../../../etc/passwd", "~/x"]
)
def test_but_nothing_hidden_and_nothing_of_the_system(here: Path, path: str) -> None:
    with pytest.raises(BadInput):
        inside(path, settled(here).data_folders)


def test_folders_that_are_named_are_the_only_ones(here: Path, tmp_path: Path) -> None:
    folders = settled(here, data=(tmp_path / "given",)).data_folders
    assert folders == (here.parent / "home" / "data", tmp_path / "given")


def test_a_service_that_others_reach_has_its_own_folder_only(here: Path) -> None:
    assert settled(here, host="0.0.0.0").data_folders == (here.parent / "home" / "data",)
