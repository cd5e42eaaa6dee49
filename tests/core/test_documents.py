"""Complaints about a document name the place, once, and each kind of value has its remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput

HERE = KeyPath("job.yaml") / "deep"


def test_a_place_is_a_file_and_its_keys() -> None:
    assert str(KeyPath("job.yaml")) == "job.yaml"
    assert str(KeyPath("job.yaml") / "a" / 3) == "job.yaml, a.3"


def test_the_innermost_place_is_said_once() -> None:
    with pytest.raises(BadInput, match=r"^job\.yaml, deep\.a: Wrong; correct it\.$"), HERE, HERE / "a":
        raise BadInput("Wrong; correct it.")
    with pytest.raises(ValueError, match=r"^other$"), HERE:
        raise ValueError("other")


def test_unknown_keys_are_refused_with_what_was_meant_or_what_is_wrong() -> None:
    HERE.check_keys({"budget": 1}, ["budget", "goal"], {})
    with pytest.raises(
        BadInput, match=r'job\.yaml, deep\.bugdet: Unknown key "bugdet"\. Did you mean "budget"'
    ):
        HERE.check_keys({"bugdet": 1}, ["budget", "goal"], {})
    with pytest.raises(BadInput, match=r"deep\.old: This key is gone; drop it\."):
        HERE.check_keys({"old": 1}, ["budget"], {"old": "is gone; drop it."})


def test_what_must_be_there() -> None:
    assert HERE.require({"a": 0}, "a", "add it.") == 0
    for said in ({}, {"a": None}):
        with pytest.raises(BadInput, match=r'^job\.yaml, deep: There is no "a"; add it\.$'):
            HERE.require(said, "a", "add it.")


READ: list[tuple[Callable[[dict[str, Any]], Any], Any, list[tuple[Any, Any]], list[Any], str]] = [
    (lambda said: HERE.text(said, "k", "usual"), "usual", [("x", "x"), ("", "")], [3, ["x"]], "in quotes"),
    (
        lambda said: HERE.texts(said, "k"),
        [],
        [("x", ["x"]), (["x", "y"], ["x", "y"])],
        [3, ["x", 3]],
        "not a list",
    ),
    (
        lambda said: HERE.mapping(said, "k"),
        {},
        [({"a": 1}, {"a": 1}), ({1: 2}, {"1": 2})],
        ["x", [1]],
        "no keys",
    ),
    (
        lambda said: HERE.flag(said, "k", True),
        True,
        [(False, False), (True, True)],
        [0, 1, "yes"],
        "neither true",
    ),
    (
        lambda said: HERE.integer(said, "k", 7, 2),
        7,
        [(2, 2), (9, 9)],
        [1, 2.0, "3", True],
        "number of 2 or more",
    ),
    (lambda said: HERE.integer(said, "k", None, 0), None, [(0, 0)], [-1], "number of 0 or more"),
    (
        lambda said: HERE.seconds(said, "k", 5.0),
        5.0,
        [("2 min", 120.0), (0, 0.0)],
        ["-1 s", -0.5],
        "0 or more",
    ),
]


@pytest.mark.parametrize(("read", "otherwise", "right", "wrong", "remedy"), READ)
def test_values_of_each_kind(
    read: Callable[[dict[str, Any]], Any],
    otherwise: Any,
    right: list[tuple[Any, Any]],
    wrong: list[Any],
    remedy: str,
) -> None:
    assert read({}) == otherwise
    assert read({"k": None}) == otherwise
    for said, meant in right:
        assert read({"k": said}) == meant
    for said in wrong:
        with pytest.raises(BadInput, match=rf"^job\.yaml, deep\.k: .*{remedy}"):
            read({"k": said})
