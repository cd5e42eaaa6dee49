"""How long machines take to boot and to be given back, as measured here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prudent.cloud.leases.machine_delays import Delay, fit_delay
from prudent.core.seeds import rng_for


def test_draws_have_the_median_and_the_spread_of_the_delay() -> None:
    drawn = Delay(30.0, 0.5).draw(rng_for(1, "delays"), 20_000)
    assert np.median(drawn) == pytest.approx(30.0, rel=0.02)
    assert np.std(np.log(drawn)) == pytest.approx(0.5, rel=0.02)
    assert np.mean(drawn > Delay(30.0, 0.5).high_s) == pytest.approx(0.0228, abs=0.005)


def test_a_delay_that_does_not_vary_is_always_the_same() -> None:
    assert set(Delay(4.0).draw(rng_for(1, "delays"), 10)) == {4.0}


def test_measurements_outweigh_what_is_usual_as_they_become_many() -> None:
    few, many = fit_delay([60.0], 15.0), fit_delay([60.0] * 100, 15.0)
    assert 15.0 < few.median_s < 60.0 * 0.6
    assert many.median_s == pytest.approx(60.0, rel=0.05)
    assert many.sigma < few.sigma


def test_the_spread_is_that_of_the_measurements() -> None:
    measured = np.exp(math.log(20.0) + 0.8 * rng_for(2, "delays").normal(size=400))
    assert fit_delay(measured, 20.0).sigma == pytest.approx(0.8, rel=0.1)
