"""Which method gets the next trial."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from prudent.training.search.allocation import MethodProgress, choose_method


def ran(*trials: tuple[float, float | None]) -> MethodProgress:
    method_progress = MethodProgress()
    for time_s, score in trials:
        method_progress.started += 1
        method_progress.record(time_s, score)
    return method_progress


def shares(standings: list[MethodProgress]) -> Counter[int]:
    return Counter(choose_method(standings, range(len(standings)), False, seed) for seed in range(400))


def test_every_method_is_tried_before_any_is_preferred() -> None:
    assert choose_method([ran((1, 0.9)), MethodProgress()], [0, 1], False, 0) == 1


def test_a_first_trial_that_is_affordable_is_followed_by_a_second() -> None:
    assert choose_method([ran((1, 0.9), (1, 0.9)), ran((15, 0.5))], [0, 1], False, 0, left_s=100) == 1
    once = [
        choose_method([ran((1, 0.9), (1, 0.9)), ran((60, 0.5))], [0, 1], False, seed, 100)
        for seed in range(50)
    ]
    assert once.count(0) > 40


def test_of_two_that_improve_alike_the_cheaper_gets_more() -> None:
    cheap, dear = ran((1, 0.5), (1, 0.6)), ran((10, 0.5), (10, 0.6))
    counts = shares([cheap, dear])
    assert counts[0] > 5 * counts[1] > 0


def test_one_that_is_far_behind_gets_less() -> None:
    ahead, behind = ran((1, 0.8), (1, 0.9)), ran((1, 0.1), (1, 0.11))
    counts = shares([ahead, behind])
    assert counts[0] > 10 * counts[1]


def test_one_that_stopped_improving_gets_less() -> None:
    stuck = ran((1, 0.8), (1, 0.9), *[(1, 0.7)] * 10)
    moving = ran((1, 0.5), *[(1, 0.5 + 0.04 * step) for step in range(10)], (1, 0.905))
    counts = shares([stuck, moving])
    assert counts[1] > 3 * counts[0]


def test_loading_a_library_is_not_held_against_a_method() -> None:
    slow_start, steady = ran((20, 0.5), (0.1, 0.6)), ran((0.3, 0.5), (0.1, 0.6))
    assert slow_start.cost_of_improvement_s(0.6) <= 1.01 * steady.cost_of_improvement_s(0.6)


def test_random_and_grid_take_turns_whatever_they_found() -> None:
    standings = [ran((1, 0.9), (1, 0.99)), ran((100, 0.1), (100, None))]
    order = []
    for _ in range(6):
        index = choose_method(standings, [0, 1], True, 0)
        standings[index].started += 1
        order.append(index)
    assert order == [0, 1, 0, 1, 0, 1]


@given(
    st.lists(
        st.lists(st.tuples(st.floats(0, 1e4), st.none() | st.floats(-1e6, 1e6)), max_size=6),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.integers(0, 100),
    st.data(),
)
def test_somebody_open_is_always_chosen(
    histories: list[list[tuple[float, float | None]]], in_turn: bool, seed: int, data: st.DataObject
) -> None:
    standings = [ran(*history) for history in histories]
    ready = data.draw(st.sets(st.integers(0, len(histories) - 1), min_size=1))
    assert choose_method(standings, sorted(ready), in_turn, seed) in ready
