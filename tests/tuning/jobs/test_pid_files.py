"""Notes of running trials: what is read back, what is ended, how long it had lasted."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from prudent.cloud.processes import ProcessIdentity
from prudent.core.errors import PrudentError
from prudent.tuning.jobs.pid_files import PidFile, ended_path, reap_processes

GONE = ProcessIdentity(2**22 + 5, "1")
"""No process has such a number."""


def note(**more: object) -> PidFile:
    return replace(PidFile(3, "a cookie nobody has", GONE), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more", [{}, {"process": GONE}, {"began_s": 5.0}, {"guard": GONE}, {"owner": None, "process": GONE}]
)
def test_a_note_is_read_as_it_was_written(more: dict[str, object], tmp_path: Path) -> None:
    path = note(**more).write(tmp_path)
    assert path.name == "trial-0003.pid"
    assert [left.name for left in tmp_path.iterdir()] == ["trial-0003.pid"]
    assert PidFile.read(path) == note(**more)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"trial": 3}', '{"trial": "x", "cookie": "", "owner": null}']
)
def test_a_torn_note_is_no_note_and_goes(text: str, tmp_path: Path) -> None:
    (tmp_path / "trial-0003.pid").write_text(text)
    assert PidFile.read(tmp_path / "trial-0003.pid") is None
    assert reap_processes(tmp_path, 0.0) == {}
    assert not list(tmp_path.iterdir())


def test_an_empty_cookie_finds_nothing(tmp_path: Path) -> None:
    path = note(cookie="").write(tmp_path)
    found = PidFile.read(path)
    assert found is not None
    assert found.cookie == "no cookie"


def test_a_note_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "trial-0003.pid").mkdir()
    with pytest.raises(PrudentError):
        note().write(tmp_path)
    assert [left.name for left in tmp_path.iterdir()] == ["trial-0003.pid"]
    with pytest.raises(PrudentError):
        note().write(tmp_path / "no folder")


@pytest.mark.parametrize(
    ("began_s", "ended", "lasted_s"),
    [
        (100.0, "160.5", {3: 60.5}),
        (None, "160.5", {3: 0.0}),
        (200.0, "160.5", {3: 0.0}),  # a clock that was set back
        (100.0, "half a numb", {}),
        (100.0, None, {}),
    ],
)
def test_a_trial_lasted_until_its_guard_ended_it(
    began_s: float | None, ended: str | None, lasted_s: dict[int, float], tmp_path: Path
) -> None:
    note(began_s=began_s).write(tmp_path)
    if ended is not None:
        ended_path(tmp_path, 3).write_text(ended)
    assert reap_processes(tmp_path, 0.0) == lasted_s
    assert not list(tmp_path.iterdir())


def test_runs_of_a_study_that_lives_are_left_alone(tmp_path: Path) -> None:
    me = ProcessIdentity.of(os.getpid())
    path = note(owner=me, began_s=1.0).write(tmp_path)
    note(trial=4, began_s=1.0).write(tmp_path)
    ended_path(tmp_path, 3).write_text("5")
    ended_path(tmp_path, 4).write_text("5")
    assert reap_processes(tmp_path, 0.0) == {4: 4.0}
    assert sorted(left.name for left in tmp_path.iterdir()) == ["trial-0003.ended", path.name]


def test_a_note_tells_who_runs_it(tmp_path: Path) -> None:
    said = json.loads(note(process=GONE, began_s=2.5).write(tmp_path).read_text())
    assert said == {
        **{"trial": 3, "cookie": "a cookie nobody has", "began_s": 2.5, "guard": None},
        **{"owner": GONE.to_dict(), **GONE.to_dict()},
    }
