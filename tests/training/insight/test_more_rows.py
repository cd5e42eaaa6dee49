"""Whether more data would help, for models that do and do not get better with rows."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.training.ensembles.selection import OutOfFoldOutputs
from prudent.training.insight.more_rows import rows_curve
from prudent.training.models.metrics import rmse


def _models(spreads: list[float]) -> OutOfFoldOutputs:
    """Models that are off by so much on average."""
    rng = np.random.default_rng(0)
    actual = rng.normal(size=500)
    outputs = np.stack([actual + spread * rng.normal(size=500) for spread in spreads])
    return OutOfFoldOutputs(outputs, actual, lambda y, said: -rmse(y, said))


def test_errors_that_halve_go_on_to_fall() -> None:
    curve = rows_curve([100, 200, 400], _models([4.0, 2.0, 1.0]), np.random.default_rng(0))
    assert curve.helps
    assert [point.rows for point in curve.points] == [100, 200, 400]
    assert curve.gain == pytest.approx(1.0, rel=0.1)
    assert curve.next_gain == pytest.approx(0.5, rel=0.2)
    assert curve.low < curve.gain < curve.high


def test_a_flat_curve_promises_nothing() -> None:
    curve = rows_curve([100, 200, 400], _models([2.0, 1.0, 1.0]), np.random.default_rng(0))
    assert not curve.helps
    assert abs(curve.next_gain) < 0.1


def test_two_points_suffice() -> None:
    curve = rows_curve([200, 400], _models([2.0, 1.0]), np.random.default_rng(0))
    assert curve.next_gain == pytest.approx(curve.gain)
