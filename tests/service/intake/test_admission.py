"""The door: the same checks as the command line's, every error with its place, roles, paths, keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from prudent.service.intake import admission
from prudent.service.intake.admission import Refused
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL, User

TRAIN = {"domain": "misc-functions", "budget": "3 trials"}
TABLE = "vm,time_s,price_usd_per_h\na,10,1\nb,20,0.2\n"
TUNE = {"table": {"csv": TABLE}, "parameters": ["vm"], "goal": "minimise cost_usd", "budget": "$2"}
COMMAND = {"command": "sleep {n}", "parameters": {"n": [1, 2]}, "goal": "minimise time_s", "max_trials": 2}
TASK = {"name": "a", "id": "a", "parents": [], "children": [], "inputFiles": [], "outputFiles": []}
WORKFLOW = {
    "name": "one",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {"tasks": [TASK], "files": []},
        "execution": {"makespanInSeconds": 1, "tasks": [{"id": "a", "runtimeInSeconds": 3}]},
    },
}
SCHEDULE = {"workflow": WORKFLOW, "fleet": "2*m3.medium", "scheduler": "heft"}
MEMBER = User("ada", "member")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.mark.parametrize(("kind", "document"), [("train", TRAIN), ("tune", TUNE), ("schedule", SCHEDULE)])
def test_what_is_right_is_kept(store: Store, settings: Settings, kind: str, document: dict[str, Any]) -> None:
    accepted = admission.submit(
        store, admission.prepare(settings, kind, document, MEMBER, "folder", priority=3)
    )
    assert accepted.created
    run = accepted.run
    assert (run.kind, run.status, run.user, run.front, run.priority) == (kind, "queued", "ada", "folder", 3)
    assert run.document == document
    assert run.title


def test_a_key_means_one_run(store: Store, settings: Settings) -> None:
    first = admission.submit(store, admission.prepare(settings, "train", TRAIN, MEMBER, "rest", "key"))
    again = admission.submit(
        store, admission.prepare(settings, "train", dict(reversed(TRAIN.items())), MEMBER, "folder", "key")
    )
    assert (again.run.id, again.created) == (first.run.id, False)
    other = admission.submit(store, admission.prepare(settings, "train", TRAIN, User("bob"), "rest", "key"))
    assert other.created  # keys are each user's own
    with pytest.raises(Refused) as refused:
        admission.submit(
            store, admission.prepare(settings, "train", {**TRAIN, "seed": 1}, MEMBER, "rest", "key")
        )
    assert refused.value.status == 409


def test_every_error_has_its_place(settings: Settings) -> None:
    with pytest.raises(Refused) as refused:
        admission.prepare(settings, "train", {"domain": "regresion", "seed": -1}, MEMBER, "rest")
    assert {error.path for error in refused.value.errors} == {"domain", "seed"}
    wrong = {"fleet": "2*m3.medum", "world": {"bandwith": 1}, "scheduler": "hefty", "seed": "x"}
    with pytest.raises(Refused) as refused:
        admission.prepare(settings, "schedule", wrong, MEMBER, "rest")
    assert {e.path for e in refused.value.errors} == {
        "workflow",
        "fleet",
        "world.bandwith",
        "scheduler",
        "seed",
    }
    assert refused.value.to_dict()["status"] == 422
    with pytest.raises(Refused) as refused:
        admission.prepare(settings, "tune", {**TUNE, "strategy": "lynceos"}, MEMBER, "rest")
    assert refused.value.errors[0].path == "strategy"
    assert "lynceus" in refused.value.errors[0].message


@pytest.mark.parametrize(
    ("user", "kind", "document", "status"),
    [
        (User("eve", "viewer"), "train", TRAIN, 403),
        (MEMBER, "tune", COMMAND, 403),
        (MEMBER, "tune", {**COMMAND, "command": None, "function": "os:system"}, 403),
        (MEMBER, "schedule", {**SCHEDULE, "execute": {}}, 403),
        (LOCAL, "train", [TRAIN], 400),
        (LOCAL, "train", {**TRAIN, "seed": float("nan")}, 400),
        (LOCAL, "train", {**TRAIN, "emailAddress": "\ud800@example.org"}, 400),
        (LOCAL, "bake", TRAIN, 404),
        (LOCAL, "schedule", {**SCHEDULE, "fleet": "999999999*m3.medium"}, 422),
        (LOCAL, "schedule", {**SCHEDULE, "scheduler": "q-learning", "options": {"tables": "/etc/x"}}, 422),
        (LOCAL, "tune", {**COMMAND, "directory": "/etc"}, 422),
        (LOCAL, "tune", {**COMMAND, "price": {"catalog": "/etc/passwd"}}, 422),
        (LOCAL, "tune", {**COMMAND, "where": {"hosts": "/etc/passwd"}}, 422),
    ],
)
def test_what_is_refused(settings: Settings, user: User, kind: str, document: Any, status: int) -> None:
    with pytest.raises(Refused) as refused:
        admission.prepare(settings, kind, document, user, "rest")
    assert refused.value.status == status


def test_machines_are_refused_where_none_are_rented(settings: Settings) -> None:
    (settings.home / "data" / "rows.csv").write_text(TABLE)
    dataset = {"path": "rows.csv", "target": "time_s"}
    asked = {"domain": "regression", "dataset": dataset, "machines": {"types": ["m5.large"]}, "budget": "$1"}
    with pytest.raises(Refused) as refused:
        admission.prepare(settings, "train", asked, MEMBER, "rest")
    assert [error.path for error in refused.value.errors] == ["machines"]
    assert admission.prepare(replace(settings, where="local"), "train", asked, MEMBER, "rest")


def test_a_commander_may_run_commands(settings: Settings) -> None:
    assert admission.prepare(settings, "tune", COMMAND, User("ann", "commander"), "rest").kind == "tune"
    assert admission.prepare(settings, "schedule", {**SCHEDULE, "execute": {"replay": 0.1}}, MEMBER, "rest")


PATHS = [
    "/etc/passwd", "../prudent.db", "data/../../etc/passwd", "file:///etc/passwd", "file://localhost/etc/passwd",
    "link", "link/passwd", ".", "", "a\0b", "//etc/passwd", "~root/x", "%2e%2e/x", "x" * 5000,
    "gopher://host/x", "ftp://host/x", "jar:file:///etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leaves_the_data_folder(settings: Settings, path: str) -> None:
    (settings.home / "prudent.db").write_text("secret")
    (settings.home / "data" / "link").symlink_to("/etc")
    with pytest.raises(Refused):
        admission.prepare(
            settings, "train", {"domain": "regression", "dataset": {"path": path}}, LOCAL, "rest"
        )
    with pytest.raises(Refused):
        admission.prepare(settings, "tune", {**TUNE, "table": path}, LOCAL, "rest")
    with pytest.raises(Refused):
        admission.prepare(settings, "schedule", {**SCHEDULE, "workflow": path}, LOCAL, "rest")


def test_files_in_the_data_folders_are_found(settings: Settings, tmp_path: Path) -> None:
    (settings.home / "data" / "runs.csv").write_text(TABLE)
    for path in ("runs.csv", str(settings.home / "data" / "runs.csv")):
        assert admission.prepare(settings, "tune", {**TUNE, "table": path}, MEMBER, "rest")
        asked = {"domain": "regression", "dataset": {"path": path, "target": "time_s"}}
        assert admission.prepare(settings, "train", asked, MEMBER, "rest")
    with pytest.raises(Refused, match=r'Did you mean "runs.csv"'):
        admission.prepare(settings, "tune", {**TUNE, "table": "run.csv"}, MEMBER, "rest")


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"NaN", b'{"a": Infinity}', b"[" * 100_000, b""])
def test_what_is_no_json(text: bytes) -> None:
    with pytest.raises(Refused) as refused:
        admission.read_json(text)
    assert refused.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(sorted({*TRAIN, *TUNE, *COMMAND, *SCHEDULE, "dataset", "methods", "world", "execute"}))


@checks(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(["train", "tune", "schedule"]), changes=st.dictionaries(KEYS, JSON, max_size=4))
def test_any_document_is_taken_or_refused(settings: Settings, kind: str, changes: dict[str, Any]) -> None:
    base = {"train": TRAIN, "tune": TUNE, "schedule": SCHEDULE}[kind]
    try:
        admission.prepare(settings, kind, {**base, **changes}, LOCAL, "rest")
    except Refused as refused:
        found = refused
    else:
        return
    assert 400 <= found.status < 500
    assert json.dumps(found.to_dict())


def test_to_check_a_command_runs_nothing_of_its_sender(settings: Settings, tmp_path: Path) -> None:
    """The shell that looks for the program gets none of the request's variables but PATH."""
    traced = {**COMMAND, "environment": {"LD_DEBUG": "all", "LD_DEBUG_OUTPUT": f"{tmp_path}/loaded"}}
    admission.prepare(settings, "tune", traced, LOCAL, "rest")
    assert not list(tmp_path.glob("loaded*")), "the loader of a program would have heeded it"


def test_a_place_of_machines_is_a_file_of_the_data_folders(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("secret: 1\n")
    for name in ("hosts", "ec2", "local"):
        document = {**COMMAND, "where": {name: str(tmp_path / "inventory.yaml")}}
        with pytest.raises(Refused) as refusal:
            admission.prepare(settings, "tune", document, LOCAL, "rest")
        (error,) = [error for error in refusal.value.errors if error.path == "where"]
        assert "data folders" in error.message
        assert "secret" not in str(refusal.value.errors)
