"""A running sum is what the standard library's sum of all numbers is, to the last bit."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from prudent.core.exact_sum import ExactSum

NUMBERS = st.lists(st.floats(-1e15, 1e15), max_size=60)


@given(NUMBERS, NUMBERS)
def test_it_is_the_sum_of_all_numbers_rounded_once(kept: list[float], more: list[float]) -> None:
    running = ExactSum()
    for number in kept:
        running.add(number)
    assert running.total(more) == math.fsum([*kept, *more])
    assert running.total() == math.fsum(kept)


@given(st.data(), NUMBERS)
def test_the_order_does_not_matter(data: st.DataObject, numbers: list[float]) -> None:
    running = ExactSum()
    for number in data.draw(st.permutations(numbers)):
        running.add(number)
    assert running.total() == float(sum(map(Fraction, numbers), Fraction(0)))


def test_little_is_kept_of_many_numbers() -> None:
    running = ExactSum()
    for number in range(1, 20_001):
        running.add(number / 7.0 * 10.0 ** (number % 12 - 6))
    assert (
        len(running._parts) <= 40
    )  # numbers of 53 bits that do not overlap, from the largest float to the smallest
    assert running.total() == math.fsum(n / 7.0 * 10.0 ** (n % 12 - 6) for n in range(1, 20_001))
