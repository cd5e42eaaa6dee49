"""The rule that cuts a trial for others: which curves it ends, and which it leaves alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prudent.training.search.stopping import (
    LEAST_PEERS,
    LEAST_REPORTS,
    WARM_UP,
    FinishedCurves,
    ScoreCurve,
    clearly_worse,
)
from prudent.tuning.trial import Progress


def learnt(final: float, pace: float, until: float = 1.0) -> list[Progress]:
    """A curve that flattens towards a score."""
    stages = np.arange(0.05, until + 1e-9, 0.05)
    return [Progress(done, {"score": final * (1 - np.exp(-pace * done))}, float(done)) for done in stages]


def others(count: int = LEAST_PEERS) -> list[ScoreCurve]:
    return [ScoreCurve.of(learnt(0.9 + number / 100, 8.0), 0.9 + number / 100) for number in range(count)]


def test_one_that_has_stopped_learning_far_below_is_cut():
    assert clearly_worse(ScoreCurve.of(learnt(0.5, 20.0, until=0.5)), others())


def test_a_slow_learner_that_would_catch_up_is_left_alone():
    slow = learnt(1.2, 1.2, until=0.5)
    assert slow[-1].measures["score"] < 0.6
    assert not clearly_worse(ScoreCurve.of(slow), others())


def test_nobody_is_cut_in_the_beginning_or_without_peers():
    early = ScoreCurve.of(learnt(0.1, 20.0, until=WARM_UP - 0.05))
    assert not clearly_worse(early, others())
    assert not clearly_worse(ScoreCurve.of(learnt(0.1, 20.0)), others(LEAST_PEERS - 1))
    assert not clearly_worse(ScoreCurve.of(learnt(0.1, 20.0)[-LEAST_REPORTS + 1 :]), others())


def test_peers_are_of_the_same_kind_and_spoke_on_the_way():
    peers, poor = FinishedCurves(), learnt(0.3, 20.0, until=0.5)
    for number in range(LEAST_PEERS):
        peers.add("boosting", learnt(0.9, 8.0), 0.9 + number / 100)
        peers.add("forest", [], 0.9)
    assert peers.is_clearly_worse("boosting", poor)
    assert not peers.is_clearly_worse("forest", poor)
    assert not peers.is_clearly_worse("perceptron", poor)


@given(st.lists(st.floats(-100, 100), min_size=LEAST_REPORTS, max_size=12), st.floats(0.3, 1.0))
def test_the_best_of_all_is_never_cut_whatever_the_curves(scores: list[float], until: float):
    done = np.linspace(until / len(scores), until, len(scores))
    progress = [Progress(at, {"score": score}, float(at)) for at, score in zip(done, scores, strict=True)]
    running = ScoreCurve.of(progress)
    worse = [ScoreCurve((0.0, 1.0), (max(scores) - 1.0 - n, max(scores) - n)) for n in range(LEAST_PEERS)]
    assert not clearly_worse(running, worse)
