"""Closed forms against what they mean: integrals over the belief, taken numerically."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prudent.tuning.strategies.acquisition import (
    expected_bill,
    expected_improvement,
    expected_saving,
    hermite_nodes,
    normal_cdf,
    normal_pdf,
    probability_below,
)

Z = np.linspace(-12, 12, 200_001)
WEIGHTS = np.exp(-0.5 * Z * Z) / math.sqrt(2 * math.pi) * (Z[1] - Z[0])
BELIEFS = [(0.0, 1.0), (1.5, 0.5), (-2.0, 2.0), (0.3, 0.05)]


def mean_of(values: np.ndarray) -> float:
    return float((WEIGHTS * values).sum())


@pytest.mark.parametrize(("mean", "std"), BELIEFS)
@pytest.mark.parametrize("best", [0.0, 1.0])
@pytest.mark.parametrize("bound", [-0.5, 0.5, math.inf])
def test_expected_improvement(mean: float, std: float, best: float, bound: float) -> None:
    y = mean + std * Z
    expected = mean_of(
        np.maximum(best - y, 0.0) * (y <= bound) if bound >= best else (best - y) * (y <= bound)
    )
    found = expected_improvement(np.array([mean]), np.array([std]), best, bound)[0]
    assert found == pytest.approx(expected, abs=1e-4)
    assert found >= 0


@pytest.mark.parametrize(("mean", "std"), BELIEFS)
@pytest.mark.parametrize("cap", [-1.0, 0.5, math.inf])
def test_expected_bill(mean: float, std: float, cap: float) -> None:
    expected = mean_of(np.exp(np.minimum(mean + std * Z, cap)))
    assert expected_bill(np.array([mean]), np.array([std]), cap)[0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("mean", "std"), BELIEFS)
def test_probability_below(mean: float, std: float) -> None:
    expected = mean_of((mean + std * Z <= 0.4).astype(float))
    assert probability_below(np.array([mean]), np.array([std]), 0.4)[0] == pytest.approx(expected, abs=1e-3)


def test_the_normal_distribution() -> None:
    assert normal_cdf(np.array([-1.0, 0.0, 1.0])) == pytest.approx([0.158655, 0.5, 0.841345], abs=1e-6)
    assert normal_pdf(np.array([-1.0, 0.0, 1.0])) == pytest.approx([0.241971, 0.398942, 0.241971], abs=1e-6)


def test_hermite_nodes_integrate_polynomials_exactly() -> None:
    nodes, weights = hermite_nodes(4)
    moments = [float((weights * nodes**power).sum()) for power in range(8)]
    assert moments == pytest.approx([1, 0, 1, 0, 3, 0, 15, 0], abs=1e-9)


def test_beliefs_that_are_very_wide_stay_finite() -> None:
    assert np.isfinite(expected_bill(np.array([1000.0, 0.0]), np.array([1.0, 100.0]), math.inf)).all()
    # A bill is at most e^300, and nothing is held less sure than a factor of e^4.
    one = np.array([1.0])
    assert expected_bill(np.array([1000.0]), one, math.inf)[0] == pytest.approx(math.exp(300))
    assert expected_bill(np.array([1000.0]), one, 400.0)[0] == pytest.approx(math.exp(300))
    assert expected_bill(np.array([0.0]), 100.0 * one, math.inf)[0] == pytest.approx(math.exp(8))


@pytest.mark.parametrize("bound", [math.inf, 0.4, -2.0])
@pytest.mark.parametrize("floor", [-math.inf, -0.5, 0.3, 2.0])
@pytest.mark.parametrize(("mean", "std", "best"), [(0.2, 0.7, 0.5), (-1.0, 0.3, 0.1), (3.0, 1.2, 0.5)])
def test_expected_saving_is_the_integral_of_what_is_saved(
    mean: float, std: float, best: float, bound: float, floor: float
) -> None:
    log_cost = np.linspace(mean - 9 * std, mean + 9 * std, 400_001)
    density = np.exp(-0.5 * ((log_cost - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
    paid = np.exp(np.maximum(log_cost, floor))
    saved = np.where(log_cost <= bound, np.maximum(math.exp(best) - paid, 0.0), 0.0)
    expected = float(np.sum(saved * density) * (log_cost[1] - log_cost[0]))
    found = expected_saving(np.array([mean]), np.array([std]), best, bound, floor)[0]
    assert found == pytest.approx(expected, abs=2e-4)


def test_bills_with_and_without_a_cap_side_by_side() -> None:
    mean, std = np.array([0.3, 0.3]), np.array([0.5, 0.5])
    both = expected_bill(mean, std, np.array([math.inf, 0.2]))
    assert both[0] == pytest.approx(math.exp(0.3 + 0.125))
    assert both[1] == pytest.approx(expected_bill(mean[:1], std[:1], 0.2)[0])


def test_closed_forms_to_the_last_digit() -> None:
    z = (0.2 - 0.5) / 0.7
    density, below = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), 0.5 * math.erfc(-z / math.sqrt(2))
    found = expected_improvement(np.array([0.5]), np.array([0.7]), 0.4, 0.2)[0]
    assert found == pytest.approx((0.4 - 0.5) * below + 0.7 * density, rel=1e-12)
    assert expected_improvement(np.array([9.0]), np.array([0.1]), 0.0, -5.0)[0] == 0.0
