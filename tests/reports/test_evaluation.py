"""What is said of a model that has learned nothing, and of one that has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prudent.reports.evaluation import no_better_than_guessing

RNG = np.random.default_rng(0)
ACTUAL = RNG.normal(10.0, 2.0, 200)


def classes(*counts: list[int]) -> dict[str, Any]:
    return {"confusion": {"labels": list(range(len(counts))), "counts": [*counts]}}


def numbers(predicted: Any) -> dict[str, Any]:
    return {"residuals": {"predicted": list(predicted), "actual": list(ACTUAL)}}


@pytest.mark.parametrize(
    "picture",
    [
        classes([95, 0], [5, 0]),  # right for 95 % of the rows, by always saying the same
        classes([26, 24], [25, 25]),
        numbers(np.full(200, ACTUAL.mean())),
        numbers(RNG.permutation(ACTUAL)),
    ],
)
def test_a_model_that_guesses_is_called_so(picture: dict[str, Any]) -> None:
    assert no_better_than_guessing(picture).startswith("The best model is no better than guessing: ")


@pytest.mark.parametrize(
    "picture",
    [
        classes(
            [90, 5], [1, 4]
        ),  # right for fewer rows than always saying the same, and yet it tells them apart
        classes([9, 1], [0, 10]),
        numbers(ACTUAL + RNG.normal(0.0, 1.0, 200)),
        {"silhouette": {"cluster": [0, 1], "value": [0.1, 0.2]}},
        {},
    ],
)
def test_a_model_that_learned_something_is_not(picture: dict[str, Any]) -> None:
    assert no_better_than_guessing(picture) == ""
