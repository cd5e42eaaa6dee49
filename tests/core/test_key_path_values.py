"""What a document's readers say when a key holds the wrong thing, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput

PATH = KeyPath("job.yaml")


def test_the_innermost_place_is_named_once() -> None:
    with (
        pytest.raises(BadInput) as caught,
        PATH / "parameters",
        PATH / "parameters" / 3,
    ):
        raise BadInput("The list is empty; add a value.")
    assert str(caught.value) == "job.yaml, parameters.3: The list is empty; add a value."


def test_other_errors_are_not_dressed_up() -> None:
    with pytest.raises(ValueError, match=r"^mine$"), PATH / "parameters":
        raise ValueError("mine")


def test_a_document_without_keys_is_named_alone() -> None:
    assert str(PATH) == "job.yaml"
    with pytest.raises(BadInput, match=r'^job\.yaml: There is no "goal"; say what you want\.$'):
        PATH.require({"goal": None}, "goal", "say what you want.")
    assert PATH.require({"goal": 0}, "goal", "say what you want.") == 0


def test_a_key_that_does_not_exist_is_refused() -> None:
    PATH.check_keys({"goal": 1}, ("goal", "budget"), {})
    with pytest.raises(BadInput, match=r'job\.yaml, gaol: .*"goal"'):
        PATH.check_keys({"goal": 1, "gaol": 1}, ("goal", "budget"), {})
    with pytest.raises(BadInput, match=r"job\.yaml, sla: This key is called deadline\."):
        PATH.check_keys({"sla": 1}, ("goal",), {"sla": "is called deadline."})


@pytest.mark.parametrize(
    ("read", "absent"),
    [
        (lambda said: PATH.text(said, "k", "none"), "none"),
        (lambda said: PATH.texts(said, "k"), []),
        (lambda said: PATH.mapping(said, "k"), {}),
        (lambda said: PATH.flag(said, "k", True), True),
        (lambda said: PATH.flag(said, "k", False), False),
        (lambda said: PATH.integer(said, "k", 7, 1), 7),
        (lambda said: PATH.integer(said, "k", None, 1), None),
        (lambda said: PATH.seconds(said, "k", 2.5), 2.5),
    ],
)
def test_what_is_left_out_or_empty_has_its_default(
    read: Callable[[dict[str, Any]], Any], absent: Any
) -> None:
    assert read({}) == absent
    assert read({"k": None}) == absent


def test_what_fits_is_read() -> None:
    said = {"t": "a", "one": "a", "many": ["a", "b"], "m": {1: 2}, "no": False, "n": 3, "s": "5 min", "z": 0}
    assert PATH.text(said, "t", "none") == "a"
    assert PATH.texts(said, "one") == ["a"]
    assert PATH.texts(said, "many") == ["a", "b"]
    assert PATH.mapping(said, "m") == {"1": 2}
    assert PATH.flag(said, "no", True) is False
    assert PATH.integer(said, "n", None, 3) == 3
    assert PATH.seconds(said, "s", 1.0) == 300.0
    assert PATH.seconds(said, "z", 1.0) == 0.0


@pytest.mark.parametrize(
    ("read", "value", "remedy"),
    [
        (lambda said: PATH.text(said, "k", ""), 3, "put it in quotes"),
        (lambda said: PATH.texts(said, "k"), 3, "write it like"),
        (lambda said: PATH.texts(said, "k"), {"a": 1}, "write it like"),
        (lambda said: PATH.texts(said, "k"), ["a", 3], "write it like"),
        (lambda said: PATH.mapping(said, "k"), ["a"], "write it like {name: value}"),
        (lambda said: PATH.flag(said, "k", True), "yes", "neither true nor false"),
        (lambda said: PATH.flag(said, "k", True), 1, "neither true nor false"),
        (lambda said: PATH.integer(said, "k", 7, 1), 0, "a whole number of 1 or more"),
        (lambda said: PATH.integer(said, "k", 7, 1), 1.5, "a whole number of 1 or more"),
        (lambda said: PATH.integer(said, "k", 7, 1), True, "a whole number of 1 or more"),
        (lambda said: PATH.integer(said, "k", None, 1), "3", "a whole number of 1 or more"),
        (lambda said: PATH.seconds(said, "k", 1.0), "-1 s", "give 0 or more"),
        (lambda said: PATH.seconds(said, "k", 1.0), "$2", "is an amount of money"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(
    read: Callable[[dict[str, Any]], Any], value: Any, remedy: str
) -> None:
    with pytest.raises(BadInput) as caught:
        read({"k": value})
    assert str(caught.value).startswith("job.yaml, k: ")
    assert remedy in str(caught.value)
