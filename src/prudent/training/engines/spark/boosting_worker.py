"""What XGBoost calls in every process of a training on Spark; it is sent to the executors whole."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from prudent.training.engines.spark.listening import listen_only_at, local_address_to
from prudent.training.engines.spark.progress import LineClient

CURVE = "prudent-curve"
"""The attribute of the trained booster that tells how training went."""
TRAINING, WATCHED = "training", "watched"
_PARTS = {TRAINING: "training", WATCHED: "validation"}
"""As `xgboost.spark` calls them."""
_REPORT_S = 0.5
POINTS = 200
"""Of a learning curve, about."""


class TrainingMonitor:
    """A callback of XGBoost: ends a training that learns no more, or whose time is up, and tells how it goes.

    It is made on the driver and arrives in a process before that opens a port: from then on XGBoost's ports
    are opened on the side of the driver only. `driver` is where progress goes: address, port and secret.
    `sample` are features and classes of some watched rows and then of some training rows, and how many the
    former are; where it is None, what is told are the metrics of all rows.
    """

    def __init__(
        self,
        driver: tuple[str, int, bytes],
        patience: int,
        most_steps: int,
        left_s: float,
        sample: tuple[Any, Any, int] | None,
        classes: int,
    ) -> None:
        self._driver, self._patience, self._most_steps = driver, patience, most_steps
        self._left_s, self._sample, self._classes = left_s, sample, classes

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        from xgboost.callback import TrainingCallback

        TrainingCallback.register(type(self))
        self.__dict__.update(state)
        self._until_s = time.monotonic() + self._left_s  # other computers have other clocks
        self._best, self._best_step, self._step, self._why = float("inf"), 0, 0, ""
        self._points: list[dict[str, Any]] = []
        self._reported_s = 0.0
        self._line: LineClient | None = None
        self._first = False
        self._sums: Any = 0.0
        listen_only_at(local_address_to(self._driver[0]))

    def before_training(self, model: Any) -> Any:
        from xgboost import collective

        self._first = collective.get_rank() == 0
        if self._first:
            self._line = LineClient(*self._driver)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        del model, epoch, evals_log
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Whether it was the last step; all processes must say the same."""
        self._step = epoch + 1
        watched = evals_log.get(_PARTS[WATCHED])
        if watched is not None:
            (losses,) = watched.values()
            loss = losses[-1]  # of all processes' rows together
            if loss < self._best:
                self._best, self._best_step = loss, self._step
            if self._first:
                self._tell(model, evals_log)
            if self._step - self._best_step >= self._patience:
                self._why = f"no better for {self._patience} steps"
        if self._is_late():
            self._why = self._why or "the time was up"
        return bool(self._why)

    def after_training(self, model: Any) -> Any:
        if self._line is not None:
            self._line.close()
        if self._best_step:
            model = model[: self._best_step]
        why = self._why if self._step < self._most_steps else ""
        model.set_attr(**{CURVE: json.dumps({"points": self._points, "why": why})})
        return model

    def _is_late(self) -> bool:
        """The time is up for all when it is for one."""
        if self._left_s == float("inf"):
            return False
        from xgboost import collective

        late = np.array([float(time.monotonic() >= self._until_s)])
        return bool(collective.allreduce(late, collective.Op.MAX)[0] > 0)

    def _tell(self, model: Any, evals_log: Mapping[str, Mapping[str, Any]]) -> None:
        point: dict[str, Any] = {"step": self._step}
        for part, name in _PARTS.items():
            point[part] = {metric: values[-1] for metric, values in evals_log[name].items()}
        if self._sample is not None:
            self._count(model, point)
        if (self._step - 1) % max(1, self._most_steps // POINTS) == 0 or self._step == self._best_step:
            self._points.append(point)
        now_s = time.monotonic()
        if self._line is not None and now_s - self._reported_s >= _REPORT_S:
            self._reported_s = now_s
            self._line.send({**point, "done": self._step / self._most_steps})

    def _count(self, model: Any, point: dict[str, Any]) -> None:
        """How the sample is classified by the trees so far: only the newest ones are asked."""
        assert self._sample is not None
        X, y, watched = self._sample
        newest = (self._step - 1, self._step)
        # The constant is in every answer: 0 where there are two classes, the same for each of more.
        self._sums = self._sums + model.inplace_predict(X, iteration_range=newest, predict_type="margin")
        sums, size = np.asarray(self._sums), self._classes
        predicted = (sums > 0).astype(np.int64) if sums.ndim == 1 else sums.argmax(axis=1)
        cells = y * size + predicted
        for part, some in ((WATCHED, cells[:watched]), (TRAINING, cells[watched:])):
            counts = np.bincount(some, minlength=size * size).reshape(size, size)
            point[part]["counts"] = counts.tolist()
