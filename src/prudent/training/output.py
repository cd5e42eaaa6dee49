"""The folder of a request: work in progress, and in the end every model in a place that names it."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prudent._version import __version__
from prudent.core.errors import BadInput
from prudent.training.leaderboard import Entry, Leaderboard
from prudent.training.request import TrainingRequest

MODELS, WORK = "models", ".work"
_OURS = {MODELS, WORK, "leaderboard.json", "leaderboard.csv", "report.html"}
_COLUMNS = (
    "rank",
    "algorithm",
    "score",
    "metric",
    "value",
    "train_s",
    "predict_ms",
    "cost_usd",
    "trial",
    "model_path",
    "hyperparameters",
    "transforms",
)


class Output:
    """Where a request's models go. `trials` holds them under their working names until they are ranked."""

    def __init__(self, out: str | Path, request: TrainingRequest, engine: str, resume: bool) -> None:
        self.folder = Path(out)
        self._request, self._engine = request, engine
        self.work = self.folder / WORK
        self.trials, self.engine_work = self.work / "trials", self.work / "engine"
        self._check(resume)
        try:
            self.trials.mkdir(parents=True, exist_ok=True)
            self._note.write_text(json.dumps({**self._known, "request": request.to_dict()}, indent=1))
        except OSError as error:
            raise BadInput(
                f'Cannot write to "{self.folder}" ({error.strerror}); choose a folder you may write to.'
            ) from error
        self._take_back()

    @property
    def _note(self) -> Path:
        return self.work / "request.json"

    @property
    def _known(self) -> dict[str, str]:
        return {"fingerprint": self._request.fingerprint(), "engine": self._engine}

    def _check(self, resume: bool) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise BadInput(f'"{self.folder}" is a file; name a folder for the models.')
        held = sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []
        if not held:
            return
        strangers = [name for name in held if name not in _OURS]
        if strangers or not self._note.exists():
            raise BadInput(
                f'"{self.folder}" holds something else ({(strangers or held)[0]}); '
                "name an empty or a new folder."
            )
        if not resume:
            raise BadInput(
                f'"{self.folder}" holds the models of a request already; '
                "go on with --resume or name another folder."
            )
        try:
            before = json.loads(self._note.read_text())
        except (OSError, ValueError) as error:
            raise BadInput(f'"{self._note}" is damaged ({error}); name another folder.') from error
        for name, value in self._known.items():
            if before.get(name) != value:
                what = "request" if name == "fingerprint" else "engine"
                raise BadInput(
                    f'"{self.folder}" holds the models of another {what}; '
                    "set it as it was, or name another folder."
                )

    def _take_back(self) -> None:
        """A request that goes on ranks its models anew: they get their working names back."""
        models = self.folder / MODELS
        for place in sorted(models.iterdir()) if models.exists() else ():
            name = _read(place / "model.json").get("trial_folder")
            if name:
                place.rename(self.trials / str(name))
        if models.exists():
            shutil.rmtree(models)

    def journal(self, index: int, algorithm: str) -> Path:
        return self.work / f"{index}-{algorithm}.jsonl"

    # The end

    def place(self, ranked: Iterable[Entry], described: Mapping[str, Any]) -> tuple[Entry, ...]:
        """Move every model to models/<rank>-<algorithm>-<score> with its description; best first."""
        entries = list(ranked)
        models = self.folder / MODELS
        models.mkdir(exist_ok=True)
        digits = len(str(len(entries)))
        placed = []
        for rank, entry in enumerate(entries, start=1):
            folder = models / f"{rank:0{digits}d}-{entry.algorithm}-{entry.score:.4f}"
            here = Path(entry.model_path)
            now = replace(entry, rank=rank, model_path=str(folder))
            said = self._description(now, here, described)
            (here / "model.json").write_text(json.dumps(said, indent=1, ensure_ascii=False))
            here.rename(folder)
            placed.append(now)
        return tuple(placed)

    def _description(self, entry: Entry, here: Path, described: Mapping[str, Any]) -> dict[str, Any]:
        """What there is to know of a model, enough to use it and to train it again."""
        request, facts = self._request, _read(here / "facts.json")
        transforms = {name: kept for name, kept in entry.transforms.items() if name != "sample"}
        return {
            **described,
            "algorithm": entry.algorithm,
            "hyperparameters": dict(entry.hyperparameters),
            "transforms": transforms,
            "fraction": entry.transforms.get("sample", {}).get("fraction", 1.0),
            "domain": request.domain,
            "score": entry.score,
            "metric": entry.metric,
            "value": entry.value,
            "train_s": entry.train_s,
            "predict_ms": entry.predict_ms,
            "cost_usd": entry.cost_usd,
            "rank": entry.rank,
            "trial": entry.trial,
            "trial_folder": here.name,
            "seed": request.seed,
            "engine": self._engine,
            "validation": request.validation.model_dump(exclude_none=True)
            or {"holdout": request.validation.share},
            "dataset": request.dataset.model_dump(mode="json", exclude_none=True)
            if request.dataset
            else None,
            "export_difference": facts.get("export_difference"),
            "rows_trained": facts.get("rows_trained"),
            "rows_validated": facts.get("rows_validated"),
            "versions": {"prudent": __version__, **facts.get("versions", {})},
        }

    def write(self, board: Leaderboard) -> None:
        """The ranking as JSON and CSV."""
        (self.folder / "leaderboard.json").write_text(
            json.dumps(board.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        )
        with (self.folder / "leaderboard.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(_COLUMNS)
            for entry in board.entries:
                said = entry.to_dict()
                row = [json.dumps(v) if isinstance(v := said[name], dict) else v for name in _COLUMNS]
                writer.writerow(row)

    def tidy(self) -> None:
        """Throw away what only the engine needed, and what failed trials left."""
        shutil.rmtree(self.engine_work, ignore_errors=True)
        for left in self.trials.iterdir() if self.trials.exists() else ():
            shutil.rmtree(left, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
