"""Keeps an eye on an iterative algorithm: reports the score so far, and says when to stop."""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.local.lesson import Course, Lesson

_REPORT_S = 0.05  # between reports; a thousand in a second help nobody
_POINTS = 200  # of a learning curve
_LEAST_PATIENCE, _MOST_PATIENCE = 10, 30


class Watch:
    """Follows score and loss on the held-out rows, step by step.

    Training stops when neither has improved for a tenth of all steps, 10 to 30, or when time is up. The score
    moves in jumps where few rows are held out, while the loss tells that something is still being learned.
    The best step is the one with the best score, and of several the one with the least loss.
    """

    def __init__(self, lesson: Lesson, most_steps: int) -> None:
        self._lesson = lesson
        self._of = most_steps
        self._patience = min(max(_LEAST_PATIENCE, most_steps // 10), _MOST_PATIENCE)
        self._best = (-math.inf, math.inf)
        self._least_loss = math.inf
        self._moved = self._best_step = self._step = 0
        self._late = False
        self._reported_s = -math.inf
        self._points: list[tuple[int, float, float]] = []

    def step(self, predicted: NDArray[np.float64], loss: float, train_score: float) -> bool:
        """One more step was made; answers whether it was the last one.

        `predicted` is for the held-out rows, `loss` on them as well, `train_score` on training rows.
        """
        held_out = self._lesson.held_out
        assert held_out is not None
        score = self._lesson.judge.score(held_out.y, predicted, held_out.X)
        self._step += 1
        self._points.append((self._step, train_score, score))
        if score > self._best[0] or loss < self._least_loss:
            self._moved = self._step
        if (score, -loss) > (self._best[0], -self._best[1]):
            self._best, self._best_step = (score, loss), self._step
        self._least_loss = min(self._least_loss, loss)
        self._report()
        self._late = time.monotonic() >= self._lesson.until_s
        return self._stuck or self._late

    @property
    def is_best(self) -> bool:
        """Whether the last step was the best so far."""
        return self._best_step == self._step

    @property
    def best_step(self) -> int:
        return self._best_step

    @property
    def _stuck(self) -> bool:
        return self._step - self._moved >= self._patience

    def course(self) -> Course:
        """How it went, thinned out to what a picture can show."""
        every = max(1, -(-len(self._points) // _POINTS))
        kept = self._points[::every]
        if self._points and kept[-1] != self._points[-1]:
            kept.append(self._points[-1])
        steps, train, validation = zip(*kept, strict=True) if kept else ((), (), ())
        reason = f"no better for {self._patience} steps" if self._stuck else "the time was up" * self._late
        why = reason if self._step < self._of else ""
        return Course(steps, train, validation, self._best_step, self._of, why)

    def _report(self) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= _REPORT_S:
            self._reported_s = now_s
            self._lesson.report(self._best[0], min(self._step / self._of, 1.0))
