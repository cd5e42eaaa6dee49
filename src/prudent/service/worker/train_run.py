"""A training request, done: trials as they end, models and a report at the end."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from prudent.core.errors import RunFailed
from prudent.core.money import Price
from prudent.core.units import format_duration
from prudent.service.security.data_locations import resolve_in_folders, scheme_of
from prudent.service.worker import machines
from prudent.service.worker.artifacts import MODELS, write_report, write_result
from prudent.service.worker.messages import (
    DoneMessage,
    ExportedModel,
    InterruptedMessage,
    NoteMessage,
    ProcessMessage,
    ProgressMessage,
    RunTask,
    SendMessage,
    TrialEndMessage,
    TrialStartMessage,
)
from prudent.service.worker.warm_pool import WarmEngine, WarmPool
from prudent.training.engines.engine import Engine
from prudent.training.leaderboard import (
    ClusterReady,
    Leaderboard,
    LeaderboardEntry,
    SpendingUpdated,
    TrainingEvent,
    TrainingTrialStarted,
    TrialFailure,
)
from prudent.training.leaderboard import TrainingTrialEnded as TrialEnded
from prudent.training.models.description import MODEL_FILE
from prudent.training.request.request import TrainingRequest
from prudent.training.request.resources import SPARK, cluster_trial_price, parallelism_of, requested_cluster

_HALF_WAY = 8
"""Without a limit nobody knows how many trials there will be; after so many, progress says one half."""


def perform_training(
    task: RunTask, send: SendMessage, folders: Sequence[Path], warm_pool: WarmPool
) -> ProcessMessage:
    """Train, rank, export and report; goes on where an earlier worker stopped."""
    from prudent.training.search.search import INTERRUPTED
    from prudent.training.train import train

    request = request_of(task, folders)
    out = task.folder / MODELS
    relay = TrainingRelay(request, _price(task, request), send)
    if rents(task, request):
        assert task.where is not None
        board = train(request, SPARK, out, where=task.where, home=task.home, resume=True, watch=relay.watch)
    else:
        if machines.wants_machines(request):
            note(send, machines.NONE_HERE)
        engine: str | Engine = WarmEngine(warm_pool) if task.engine == "local" else task.engine
        board = train(request, engine, out, resume=True, watch=relay.watch)
    if board.ended == INTERRUPTED:
        return InterruptedMessage()
    _write(board, task.folder)
    if not board.entries:
        why = board.failures[0].why if board.failures else board.ended
        raise RunFailed(f"No model could be trained: {why}")
    return DoneMessage(
        tuple(
            ExportedModel(e.rank, e.algorithm, e.score, e.metric, e.value, Path(e.model_path).name)
            for e in board.entries
            if (Path(e.model_path) / MODEL_FILE).is_file()  # a function's minimum is not a model
        ),
        board.ended if "budget" in board.ended else "",
    )


def request_of(task: RunTask, folders: Sequence[Path]) -> TrainingRequest:
    """The request with its file found, and within what the user may still spend today."""
    request = TrainingRequest.parse(task.document)
    changes: dict[str, object] = {}
    if request.parallelism is None and not rents(task, request):
        changes["parallelism"] = task.parallelism
    if request.dataset is not None and scheme_of(request.dataset.path) == "file":
        found = str(resolve_in_folders(request.dataset.path, folders))
        said = request.dataset.model_dump(mode="json", by_alias=True, exclude_none=True)
        changes["dataset"] = {**said, "path": found}
    if task.left_usd is not None and (request.budget.usd is None or request.budget.usd > task.left_usd):
        said = request.budget.model_dump(mode="json", exclude_none=True)
        changes["budget"] = {**said, "usd": max(task.left_usd, 1e-6)}
    return request.changed(changes)


def rents(task: RunTask, request: TrainingRequest) -> bool:
    """Whether machines are rented for it, and Spark runs there."""
    return task.where is not None and machines.wants_machines(request)


def note(send: SendMessage, text: str, **more: object) -> None:
    """Tell something about machines to whoever follows the run, and to its log."""
    logging.info("%s", text)
    send(NoteMessage("machines", {"text": text, **more}))


def _price(task: RunTask, request: TrainingRequest) -> Price:
    """What an hour of a trial costs, as the search reckons it."""
    from prudent.training.request.resources import trial_price

    if rents(task, request) and not request.machine:
        assert task.where is not None
        if request.machines is not None:
            from prudent.training.joint.train import cheapest_price

            return cheapest_price(request, task.where, task.home)
        cluster = requested_cluster(request, None, task.where, task.folder / MODELS, task.home)
        assert cluster is not None
        return cluster_trial_price(cluster, request.parallelism or parallelism_of(cluster))
    return trial_price(request, request.parallelism or task.parallelism)


class TrainingRelay:
    """Turns what the search tells into messages."""

    def __init__(self, request: TrainingRequest, price: Price, send: SendMessage) -> None:
        self._budget, self._price, self._send = request.budget, price, send
        self._began_s = time.monotonic()
        self._ended, self._spent_usd = 0, 0.0

    def watch(self, event: TrainingEvent) -> None:
        if isinstance(event, ClusterReady):
            took = format_duration(event.took_s)
            text = f"Spark runs on {event.text} ({event.place}), ready after {took}."
            note(self._send, text, machines=event.text, place=event.place, took_s=event.took_s)
        elif isinstance(event, TrainingTrialStarted):
            self._send(
                TrialStartMessage(event.number, event.algorithm, {"why": event.why} if event.why else {})
            )
        elif isinstance(event, SpendingUpdated):
            self._spent_usd = event.total_usd
        elif isinstance(event, TrialEnded):
            self._ended += 1
            self._send(self._told(event.result))
            self._send(self.progress())

    def progress(self) -> ProgressMessage:
        """How much of the limit that ends first is used up."""
        budget, elapsed_s = self._budget, time.monotonic() - self._began_s
        parts = [
            self._ended / budget.trials if budget.trials else 0.0,
            elapsed_s / budget.time_s if budget.time_s else 0.0,
            self._spent_usd / budget.usd if budget.usd else 0.0,
        ]
        done = max(parts) if budget.given else self._ended / (self._ended + _HALF_WAY)
        done = min(done, 0.99)
        return ProgressMessage(done, elapsed_s * (1 - done) / done if budget.given and done > 0 else None)

    def _told(self, result: LeaderboardEntry | TrialFailure) -> TrialEndMessage:
        price = self._price
        if isinstance(result, TrialFailure):
            return TrialEndMessage(
                result.trial,
                result.algorithm,
                dict(result.hyperparameters),
                "failed",
                spent_usd=result.cost_usd,
                details={"why": result.why},
                usd_per_h=price.usd_per_h,
                price_date=str(price.date),
            )
        details = {
            "metric": result.metric,
            "value": result.value,
            "predict_ms": result.predict_ms,
            "transforms": dict(result.transforms),
            **({"machines": result.machines} if result.machines else {}),
        }
        return TrialEndMessage(
            result.trial,
            result.algorithm,
            dict(result.hyperparameters),
            "finished",
            result.score,
            result.cost_usd,
            result.train_s,
            result.cost_usd,
            price.usd_per_h,
            str(price.date),
            details,
        )


def _write(board: Leaderboard, folder: Path) -> None:
    """The result, and the report."""
    from prudent.reports.training import write_training_report

    said = board.to_dict()
    said.pop("out", None)
    for entry in said["entries"]:
        entry["model"] = f"{folder.name}-{entry['rank']}"
        entry["model_path"] = f"{MODELS}/{Path(entry['model_path']).name}"
    write_result(folder, said)
    if board.entries:
        made = Path(board.out)
        write_report(folder, lambda path: shutil.copyfile(write_training_report(board, made), path))
