"""Sizes are predicted from what ran before: near, with an interval that holds, and little is wasted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prudent.workflows.sizing.predictor import SizePredictor


def taught(values, inputs=None, **options):
    predictor = SizePredictor(**options)
    for at, value in enumerate(values):
        predictor.observe("p", inputs[at] if inputs is not None else 1e6, value)
    return predictor


def test_what_never_ran_is_not_predicted():
    assert taught([]).predict("p", 1) is None
    assert taught([0.0]).predict("p", 1) is None, "nothing was measured"
    assert taught([5.0]).predict("q", 1) is None


def test_one_run_says_about_as_much_again():
    told = taught([100.0]).predict("p", 1e6)
    assert told.runs == 1
    assert told.expected == pytest.approx(100)
    assert told.low < 100 < told.high < 150
    assert 100 < told.given < told.retry


def test_a_line_is_found_and_followed_beyond_what_was_seen():
    sizes = np.linspace(1e6, 40e6, 40)
    told = taught(300 + sizes / 1e5, sizes).predict("p", 60e6)
    assert told.expected == pytest.approx(900, rel=0.1)
    assert told.low <= told.expected <= told.high


def test_neighbours_where_there_is_no_line():
    rng = np.random.default_rng(5)
    sizes = rng.choice([1e3, 1e6, 1e9], 90)
    peaks = np.where(sizes == 1e6, 900.0, 100.0)
    predictor = taught(peaks, sizes)
    assert predictor.predict("p", 1e6).expected == pytest.approx(900, rel=0.1)
    assert predictor.predict("p", 1e9).expected == pytest.approx(100, rel=0.1)


def test_the_interval_holds_nine_in_ten_of_fresh_runs():
    rng = np.random.default_rng(7)
    held, fresh = 0, 0
    predictor = SizePredictor()
    for at in range(400):
        value = float(rng.lognormal(math.log(500), 0.2))
        if at >= 100:
            told = predictor.predict("p", 1e6)
            held, fresh = held + (told.low <= value <= told.high), fresh + 1
        predictor.observe("p", 1e6, value)
    assert 0.85 <= held / fresh <= 0.95


def test_what_others_were_off_by_tells_how_sure_to_be_of_a_new_program():
    rng = np.random.default_rng(11)

    def spread(deviation):
        predictor = SizePredictor()
        for program in "abcdefgh":
            for _ in range(4):
                predictor.observe(program, 1e6, float(rng.lognormal(5, deviation)))
        predictor.observe("new", 1e6, 100.0)
        told = predictor.predict("new", 1e6)
        return told.high / told.low

    assert spread(0.5) > 1.5 * spread(0.02)


def test_dear_retries_are_avoided():
    rng = np.random.default_rng(3)
    values = rng.lognormal(6, 0.3, 200)
    careless, careful = (taught(values, retry_cost=cost).predict("p", 1e6) for cost in (0.0, 20.0))
    assert careful.given > careless.given
    assert np.mean(values > careful.given) < 0.03
    assert np.mean(values > careless.retry) < 0.1


def test_less_is_wasted_than_by_the_highest_peak_and_by_the_mean():
    """A program that mostly needs little and seldom much: what is given is judged on runs not seen yet."""
    rng = np.random.default_rng(1)
    peaks = np.where(rng.random(300) < 0.1, 4000.0, 400.0) * rng.lognormal(0, 0.05, 300)
    predictor, wasted = SizePredictor(), dict.fromkeys(("predicted", "highest", "mean"), 0.0)
    for at, peak in enumerate(peaks):
        if at >= 5:
            told = predictor.predict("p", 1e6)
            offers = {
                "predicted": (told.given, told.retry),
                "highest": (peaks[:at].max(), 2 * peaks[:at].max()),
                "mean": (peaks[:at].mean(), 2 * peaks[:at].mean()),
            }
            for name, (first, second) in offers.items():
                attempts = [first, *(second * 2**again for again in range(9))]
                enough = next(at for at, given in enumerate(attempts) if given >= peak)
                wasted[name] += sum(attempts[:enough]) + attempts[enough] - peak
        predictor.observe("p", 1e6, float(peak))
    assert wasted["predicted"] < 0.8 * min(wasted["highest"], wasted["mean"])
