"""Answers that are kept for a moment: asked for once, shown while a new one is found, never for long."""

from __future__ import annotations

import asyncio

import pytest

from prudent.service.web.timed_cache import TimedCache


class _Counter:
    """A slow question whose answer is how often it was asked."""

    def __init__(self) -> None:
        self.now_s, self.asked = 0.0, 0

    async def __call__(self, key: str) -> int:
        self.asked += 1
        answer = self.asked
        await asyncio.sleep(0.01)
        if key == "broken":
            raise ValueError("no answer")
        return answer


def test_many_who_ask_at_once_are_one_question() -> None:
    async def story() -> None:
        question = _Counter()
        kept = TimedCache(question, clock=lambda: question.now_s)
        assert await asyncio.gather(*(kept("a") for _ in range(20))) == [1] * 20
        question.now_s = 1.9
        assert await kept("a") == 1
        assert await kept("b") == 2

    asyncio.run(story())


def test_what_is_a_little_old_is_shown_once_more_and_what_is_old_is_not() -> None:
    async def story() -> None:
        question = _Counter()
        kept = TimedCache(question, clock=lambda: question.now_s)
        assert await kept("a") == 1
        question.now_s = 3.0
        assert await kept("a") == 1  # nobody waits
        async with asyncio.timeout(60):
            while await kept("a") == 1:
                await asyncio.sleep(0)
        assert await kept("a") == 2
        question.now_s = 60.0
        assert await kept("a") == 3

    asyncio.run(story())


def test_a_question_that_fails_is_asked_again() -> None:
    async def story() -> None:
        question = _Counter()
        kept = TimedCache(question, clock=lambda: question.now_s)
        for _ in range(2):
            with pytest.raises(ValueError, match="no answer"):
                await kept("broken")
        assert question.asked == 2

    asyncio.run(story())


def test_strangers_fill_no_memory() -> None:
    async def story() -> None:
        kept = TimedCache(_Counter(), most=3, clock=lambda: 0.0)
        for number in range(10):
            await kept(str(number))
        assert len(kept._known) <= 3

    asyncio.run(story())
