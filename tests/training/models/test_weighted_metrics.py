"""Metrics under weights, beside scikit-learn's on rows that are there as often as they weigh."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as theirs

from prudent.core.errors import BadInput
from prudent.training.engines.scoring import Scorer
from prudent.training.models.weighted_metrics import weighted_values

RNG = np.random.default_rng(5)
WEIGHTS = np.stack([np.ones(200, int), RNG.poisson(1.0, 200), RNG.integers(0, 2, 200)])


def classes(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y = RNG.integers(0, number, 200)
    raw = RNG.random((200, number)).round(2) + (y[:, None] == np.arange(number))
    probabilities = raw / raw.sum(1, keepdims=True)
    return y, probabilities.argmax(1), probabilities


OF_CLASSES = {
    "mcc": theirs.matthews_corrcoef,
    "accuracy": theirs.accuracy_score,
    "balanced-accuracy": theirs.balanced_accuracy_score,
    "f1": lambda y, said: theirs.f1_score(y, said, average="weighted"),
    "precision": lambda y, said: theirs.precision_score(y, said, average="weighted"),
    "recall": lambda y, said: theirs.recall_score(y, said, average="weighted"),
}


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("metric", OF_CLASSES)
def test_metrics_of_classes(metric: str, number: int) -> None:
    y, predicted, _ = classes(number)
    found = weighted_values(metric, WEIGHTS, y, predicted, classes=number)
    expected = [OF_CLASSES[metric](np.repeat(y, w), np.repeat(predicted, w)) for w in WEIGHTS]
    np.testing.assert_allclose(found, expected)
    task = Scorer("classification", metric, number)
    assert task.value(y, predicted, None) == pytest.approx(expected[0])


@pytest.mark.parametrize("number", [2, 4])
def test_metrics_of_probabilities(number: int) -> None:
    y, predicted, said = classes(number)

    def auc(y: np.ndarray, said: np.ndarray) -> float:
        if number == 2:
            return float(theirs.roc_auc_score(y, said[:, 1]))
        return float(theirs.roc_auc_score(y, said, multi_class="ovr", average="weighted"))

    def brier(y: np.ndarray, said: np.ndarray) -> float:
        if number == 2:
            return float(theirs.brier_score_loss(y, said[:, 1]))
        return float(np.square(said - np.eye(number)[y]).sum(1).mean())

    every = np.arange(number)
    expected = {"auc": auc, "brier": brier, "log-loss": lambda y, p: theirs.log_loss(y, p, labels=every)}
    for metric, value in expected.items():
        found = weighted_values(metric, WEIGHTS, y, predicted, said, number)
        np.testing.assert_allclose(
            found, [value(np.repeat(y, w), np.repeat(said, w, axis=0)) for w in WEIGHTS]
        )
        scorer = Scorer("classification", metric, number)
        assert scorer.value(y, predicted, None, said) == pytest.approx(found[0])
        with pytest.raises(BadInput, match="no probabilities"):
            scorer.value(y, predicted, None)
        assert scorer.to_score(scorer.guess_value(y)) < scorer.to_score(found[0])


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("rmse", theirs.root_mean_squared_error),
        ("mse", theirs.mean_squared_error),
        ("mae", theirs.mean_absolute_error),
        ("mape", theirs.mean_absolute_percentage_error),
        ("r2", theirs.r2_score),
    ],
)
def test_metrics_of_numbers(metric: str, value: object) -> None:
    y = 5.0 + RNG.normal(size=200)
    predicted = y + 0.3 * RNG.normal(size=200)
    found = weighted_values(metric, WEIGHTS, y, predicted)
    expected = [value(np.repeat(y, w), np.repeat(predicted, w)) for w in WEIGHTS]
    np.testing.assert_allclose(found, expected)
    assert Scorer("regression", metric).value(y, predicted, None) == pytest.approx(expected[0])


def test_a_guess_is_the_best_that_needs_no_features() -> None:
    y = np.array([0] * 70 + [1] * 30)
    assert Scorer("classification", "accuracy", 2).guess_value(y) == pytest.approx(0.7)
    assert Scorer("classification", "mcc", 2).guess_value(y) == 0.0
    assert Scorer("classification", "auc", 2).guess_value(y) == 0.5
    assert Scorer("regression", "r2").guess_value(y.astype(float)) == pytest.approx(0.0)
    assert Scorer("regression", "mae").guess_value(y.astype(float)) == pytest.approx(0.3)
