"""Several machines are asked side by side; an error of one hides nothing of the others."""

from __future__ import annotations

import threading

import pytest

from prudent.cloud.providers.channel import attempts, concurrently, on_all
from prudent.core.errors import RunFailed


def odd_fails(number: int) -> int:
    if number % 2:
        raise RunFailed(f"{number} is odd; take another.")
    return 10 * number


def test_answers_come_in_order_however_many_there_are() -> None:
    for count in (0, 1, 2, 40):
        assert concurrently(odd_fails, range(0, 2 * count, 2)) == list(range(0, 20 * count, 20))


def test_machines_are_asked_at_once() -> None:
    together = threading.Barrier(16, timeout=60)
    assert len(concurrently(lambda _: together.wait(), range(16))) == 16


def test_an_error_is_the_answer_of_its_item() -> None:
    answers = attempts(odd_fails, [2, 3, 4])
    assert (answers[0], str(answers[1]), answers[2]) == (20, "3 is odd; take another.", 40)


def test_all_is_done_before_the_first_error_is_raised() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        odd_fails(number)

    with pytest.raises(RunFailed, match="3 is odd"):
        on_all(work, [2, 3, 5, 6])
    assert sorted(done) == [2, 3, 5, 6]
    on_all(work, [])
