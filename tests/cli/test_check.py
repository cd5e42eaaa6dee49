"""`prudent check` says all that is wrong with a job or a place, and launches nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..cloud.ec2_cloud import CREDENTIALS, Ec2Cloud


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Cloud]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with Ec2Cloud(tmp_path / "ec2") as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRUDENT_HOME", str(tmp_path / "home"))


def rented(command_job: Callable[..., Path], where: Any, types: list[str]) -> Path:
    return command_job(
        where=where,
        price=None,
        parameters={"x": [1, 2], "cluster": {"machine": {"types": types, "count": [1, 2]}}},
    )


def test_a_place_where_nothing_is_wrong(prudent: Callable[..., Any], cloud: Ec2Cloud) -> None:
    place = f"ec2:{cloud.file()}"
    done = prudent("check", "--where", place, "--type", "m5.large")
    assert (done.code, "".join(done.out.split())) == (0, f"{place}:nothingiswrong."), "a long path is broken"
    assert cloud.machines() == []


def test_every_problem_is_a_line(prudent: Callable[..., Any], cloud: Ec2Cloud) -> None:
    place = f"ec2:{cloud.file(security_groups=['sg-0123'], key='nobody')}"
    done = prudent("check", "--where", place, "--type", "m5.lagre", "--json")
    assert done.code == 2
    answer = json.loads(done.out)
    assert answer["ok"] is False
    [checked] = answer["checked"]
    assert checked["subject"] == place
    said = " ".join(checked["problems"])
    assert len(checked["problems"]) == 3
    assert all(word in said for word in ("sg-0123", "nobody", 'Did you mean "m5.large"'))
    plain = prudent("check", "--where", place, "--type", "m5.lagre")
    assert plain.code == 2
    assert "".join(plain.out.split()).count(place) == 3


def test_a_place_that_cannot_even_be_read(prudent: Callable[..., Any], tmp_path: Path) -> None:
    done = prudent("check", "--where", f"ec2:{tmp_path}/none.yaml", "--where", "local", "--json")
    assert done.code == 2
    first, second = json.loads(done.out)["checked"]
    assert "prudent infra aws" in first["problems"][0]
    assert second == {"subject": "local", "problems": []}


def test_a_place_that_does_not_exist(prudent: Callable[..., Any]) -> None:
    done = prudent("check", "--where", "ec3:aws.yaml")
    assert done.code == 2
    assert 'Did you mean "ec2"' in done.out


def test_a_job_on_machines(
    prudent: Callable[..., Any], cloud: Ec2Cloud, command_job: Callable[..., Path]
) -> None:
    good = rented(command_job, {"ec2": str(cloud.file())}, ["m5.large", "c5.large"])
    done = prudent("check", good)
    assert (done.code, "nothing is wrong" in done.out) == (0, True), done.out
    closed = rented(command_job, {"ec2": str(cloud.file(security_groups=["sg-0123"]))}, ["m5.large"])
    done = prudent("check", closed, "--json")
    assert done.code == 2
    assert "sg-0123" in json.loads(done.out)["checked"][0]["problems"][0]
    assert cloud.machines() == []


def test_a_job_without_machines(prudent: Callable[..., Any], command_job: Callable[..., Path]) -> None:
    assert prudent("check", command_job()).code == 0
    done = prudent("check", command_job(goal="minimise eror"))
    assert done.code in (0, 2)
    done = prudent("check", command_job(parameters={}))
    assert done.code == 2


def test_a_job_file_that_is_wrong(prudent: Callable[..., Any], tmp_path: Path) -> None:
    done = prudent("check", tmp_path / "nothing.yaml", "--json")
    assert done.code == 2
    assert "There is no job file" in json.loads(done.out)["checked"][0]["problems"][0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a job file, or a place"),
        (("job.yaml", "--type", "m5.large"), "use --type with --where"),
        (("--wehre", "local"), "--help"),
    ],
)
def test_wrong_questions(prudent: Callable[..., Any], arguments: tuple[str, ...], says: str) -> None:
    done = prudent("check", *arguments)
    assert done.code == 2
    assert says in done.err


def test_what_was_typed_is_told_as_it_is(prudent: Callable[..., Any]) -> None:
    said = prudent("check", "--where", "ec3:x", "--where", "[b]y")
    assert said.code == 2
    assert "ec3:x:" in said.out
    assert "[b]y" in said.out
