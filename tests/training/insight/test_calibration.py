"""Probabilities that mean what they say, and such that do not."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.training.insight.calibration import reliability, wilson_interval


def _rows(distort: float, seed: int, rows: int = 2000, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn by true probabilities; the odds told are those times `distort`."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, size=(rows, classes))

    def softmax(values: np.ndarray) -> np.ndarray:
        raised = np.exp(values - values.max(axis=1, keepdims=True))
        return raised / raised.sum(axis=1, keepdims=True)

    actual = (softmax(logits).cumsum(axis=1) < rng.random(rows)[:, None]).sum(axis=1)
    return softmax(distort * logits), actual


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_true_probabilities_are_trusted(classes: int, seed: int) -> None:
    told = reliability(*_rows(1.0, seed, classes=classes), tuple(range(classes)))
    assert told is not None
    assert told.trust == ""
    assert sum(one.rows for one in told.bins) == 2000


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("distort", "trust"), [(3.0, "too sure"), (0.3, "too unsure")])
def test_distorted_probabilities_are_found(distort: float, trust: str, classes: int) -> None:
    told = reliability(*_rows(distort, 1, classes=classes), tuple("abcd"[:classes]))
    assert told is not None
    assert told.trust == trust
    assert told.error > 0.08
    assert told.class_name == ("b" if classes == 2 else "")


def test_bins_say_what_came_true() -> None:
    said = np.repeat([0.1, 0.7], 100)
    actual = np.concatenate([np.arange(100) < 10, np.arange(100) < 40]).astype(int)
    told = reliability(np.column_stack([1 - said, said]), actual, ("no", "yes"))
    assert told is not None
    assert [(one.said, one.found, one.rows) for one in told.bins] == [
        pytest.approx((0.1, 0.1, 100)),
        pytest.approx((0.7, 0.4, 100)),
    ]
    assert told.error == pytest.approx(0.15)
    assert told.bins[1].low < 0.4 < told.bins[1].high < 0.7


def test_a_few_rows_say_nothing() -> None:
    assert reliability(*_rows(1.0, 0, rows=30), ("a", "b")) is None


def test_the_interval_of_a_share() -> None:
    assert wilson_interval(0, 10) == pytest.approx((0, 0.2775), abs=1e-3)
    assert wilson_interval(10, 10) == pytest.approx((0.7225, 1), abs=1e-3)
