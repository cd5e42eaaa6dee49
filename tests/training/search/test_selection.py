"""What stands first, and the score that is told of it, beside a truth that is known."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.training.data.splitting import k_folds
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.search.selection import (
    CLEAR_ERRORS,
    JudgedModel,
    select,
    standard_error,
    widening,
)

ACCURACY = Scorer("classification", "accuracy", 2)


def model(
    rng: np.random.Generator, y: np.ndarray, right: float, method: str = "trees", **more: float
) -> JudgedModel:
    """A model that is right so often, by chance."""
    predicted = np.where(rng.random(len(y)) < right, y, 1 - y)
    said = Predictions(np.arange(len(y)), np.zeros(len(y), np.int64), predicted, y)
    return JudgedModel(method, float((predicted == y).mean()), said, **more)


def test_of_a_hundred_guesses_none_is_told_to_be_good() -> None:
    luck = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 150)
        models = [model(rng, y, 0.5) for _ in range(100)]
        found = select(models, ACCURACY, 1)
        luck.append(models[found.leader].score - found.luck[found.leader] - 0.5)
        assert models[found.leader].score > 0.57
    assert abs(np.mean(luck)) < 0.02


def test_what_was_not_chosen_among_many_keeps_its_score() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 500)
    models = [model(rng, y, 0.9), model(rng, y, 0.6)]
    found = select(models, ACCURACY, 1)
    assert found.leader == 0
    assert found.luck[0] == pytest.approx(0.0, abs=0.003)
    assert found.errors[0] == pytest.approx((0.09 / 500) ** 0.5, rel=0.25)
    assert not found.tied


def test_the_simpler_of_equals_stands_first_however_many_the_others_were() -> None:
    first = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 200)
        lines = [model(rng, y, 0.7, "line", simplicity=1) for _ in range(3)]
        models = [*(model(rng, y, 0.7, simplicity=6) for _ in range(60)), *lines]
        found = select(models, ACCURACY, 1)
        first += models[found.leader].method == "line"
        assert {"line", "trees"} - {models[found.leader].method} == set(found.tied)
    assert first >= 5


def test_of_equally_simple_ones_the_cheaper_stands_first_and_a_clearly_better_one_before_both() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    equal = [model(rng, y, 0.8, "dear", cost=2.0), model(rng, y, 0.8, "cheap", cost=1.0)]
    assert equal[select(equal, ACCURACY, 1).leader].method == "cheap"
    better = [*equal, model(rng, y, 0.95, "better", simplicity=9)]
    assert select(better, ACCURACY, 1).leader == 2


def test_a_handful_of_rows_gives_no_interval() -> None:
    rng = np.random.default_rng(0)
    y = np.array([0, 1] * 5)
    found = select([model(rng, y, 0.5), model(rng, y, 1.0)], ACCURACY, 1)
    assert (found.leader, found.errors) == (1, {})


def test_a_row_that_was_judged_twice_counts_as_one() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    once = model(rng, y, 0.8)
    said = once.predictions
    twice = JudgedModel("trees", once.score, Predictions.joined([said, said]))
    errors = [select([one], ACCURACY, 1).errors[0] for one in (once, twice)]
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
    alone = [standard_error(one.predictions, ACCURACY, 1) for one in (once, twice)]
    assert alone[1] == pytest.approx(alone[0], rel=0.1)


def test_the_standard_error_of_a_mean_error() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    said = Predictions(np.arange(400), np.zeros(400, np.int64), np.zeros(400), y)
    expected = np.abs(y).std() / 20
    assert standard_error(said, Scorer("regression", "mae"), 1) == pytest.approx(expected, rel=0.2)


def told_and_fresh(seed: int, rows: int, repeats: int) -> tuple[float, float, float]:
    """A line by least squares: its score by folds, that of the one of all rows on others, and the error."""
    rng, columns = np.random.default_rng(seed), 12
    X, true = rng.normal(size=(rows, columns)), rng.normal(size=columns)
    y, mse = X @ true + rng.normal(size=rows), Scorer("regression", "mse")

    def line(those: np.ndarray) -> np.ndarray:
        return np.linalg.lstsq(X[those], y[those], rcond=None)[0]

    parts = []
    for repeat in range(repeats):
        for split in k_folds(rows, None, 1000 * seed + repeat, 5):
            judges = split.validation
            number = np.full(len(judges), len(parts))
            parts.append(Predictions(judges, number, X[judges] @ line(split.train), y[judges]))
    said = Predictions.joined(parts)
    told = mse.to_score(mse.value(said.actual, said.predicted, None))
    return told, -1.0 - np.square(line(np.arange(rows)) - true).sum(), standard_error(said, mse, seed)


@pytest.mark.parametrize("repeats", [1, 2])
def test_an_interval_counts_the_chance_in_the_rows_that_trained(repeats: int) -> None:
    rows = 60
    told, fresh, errors = np.array([told_and_fresh(seed, rows, repeats) for seed in range(150)]).T

    def inside(widened: float) -> float:
        return float(np.mean(np.abs(told - fresh) <= CLEAR_ERRORS * widened * errors))

    assert inside(1.0) < 0.88, "it would not be needed"
    assert 0.92 <= inside(widening(rows, rows - rows / 5)) <= 0.99


def test_what_tells_methods_apart_is_as_uncertain_as_what_tells_a_score() -> None:
    rng = np.random.default_rng(1)
    y, models = rng.integers(0, 2, 400), []
    for method, wrong in (("trees", 80), ("line", 109)):
        predicted = np.where(rng.permutation(400) < wrong, 1 - y, y)
        said = Predictions(np.arange(400), np.zeros(400, np.int64), predicted, y)
        models.append(JudgedModel(method, 1.0 - wrong / 400, said))
    narrow, wide = select(models, ACCURACY, 1), select(models, ACCURACY, 1, 1.5)
    assert not narrow.tied
    assert wide.errors[0] == pytest.approx(1.5 * narrow.errors[0])
    difference, error = wide.tied["line"]
    assert error < abs(difference) <= CLEAR_ERRORS * error
