"""Whose files a request may name, by who asks and who can reach the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.core.errors import BadInput
from prudent.service.security.data_locations import resolve_in_folders
from prudent.service.security.protection import folders_for, with_own_folders
from prudent.service.settings import Settings


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
    return with_own_folders(settings)


@pytest.mark.parametrize("name", ["local", "operator"])
def test_ones_own_service_reads_ones_own_files(here: Path, name: str) -> None:
    folders = folders_for(settled(here), name)
    assert resolve_in_folders(str(here / "rows.csv"), folders) == (here / "rows.csv").resolve()
    assert resolve_in_folders("rows.csv", folders) == (here / "rows.csv").resolve()


@pytest.mark.parametrize("name", ["ada", "folder", "nobody", ""])
def test_but_for_nobody_else(here: Path, name: str) -> None:
    settings = settled(here)
    assert folders_for(settings, name) == settings.data_folders == (here.parent / "home" / "data",)


@pytest.mark.parametrize(
    "path", [".ssh/id", "/etc/passwd", "/proc/self/environ", "../../../etc/passwd", "~/x"]
)
def test_and_nothing_hidden_and_nothing_of_the_system(here: Path, path: str) -> None:
    with pytest.raises(BadInput):
        resolve_in_folders(path, folders_for(settled(here), "operator"))


def test_folders_that_are_named_are_the_only_ones(here: Path, tmp_path: Path) -> None:
    folders = folders_for(settled(here, data=(tmp_path / "given",)), "operator")
    assert folders == (here.parent / "home" / "data", tmp_path / "given")


@pytest.mark.parametrize("changes", [{"host": "0.0.0.0"}, {"trusted_hosts": ("prudent.example.org",)}])
def test_a_service_that_others_reach_has_its_own_folder_only(here: Path, changes: dict[str, object]) -> None:
    assert folders_for(settled(here, **changes), "operator") == (here.parent / "home" / "data",)
