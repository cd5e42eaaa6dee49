"""The output folder of a request: work in progress, and in the end every model in a folder named after it."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.algorithms.registry import algorithm, algorithms
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.leaderboard import SAMPLE, Leaderboard, LeaderboardEntry
from prudent.training.models.description import read_description, read_facts, write_description
from prudent.training.request.request import TrainingRequest

FORMAT = 2
"""The form in which an unfinished request is kept: as one study since 2."""
WORK = ".work"
CLUSTER = "cluster"
_OWN_FILES = {WORK, CLUSTER, "leaderboard.json", "leaderboard.csv", "report.html"}
_MODEL_FOLDER = re.compile(rf"\d+-({'|'.join(algorithms())})-.+")
_COLUMNS = (
    "rank",
    "algorithm",
    "score",
    "metric",
    "value",
    "validation_score",
    "test_score",
    "interval",
    "rows_trained",
    "train_s",
    "predict_ms",
    "cost_usd",
    "trial",
    "machines",
    "fraction",
    "model_path",
    "hyperparameters",
    "transforms",
)


class OutputFolder:
    """Where a request's models go; until they are ranked they are in `trials`, under their trial's number."""

    def __init__(self, out: str | Path, request: TrainingRequest, engine: str, resume: bool) -> None:
        self.folder = Path(out)
        self._request, self._engine = request, engine
        self.work = self.folder / WORK
        self.trials, self.engine_work = self.work / "trials", self.work / "engine"
        self._check(resume)
        self._found, self._new = self.folder.exists(), not self._request_file.exists()
        try:
            self.trials.mkdir(parents=True, exist_ok=True)
            said = {"format": FORMAT, **self._known, "request": request.to_dict()}
            self._request_file.write_text(json.dumps(said, indent=1))
        except OSError as error:
            raise BadInput(
                f'Cannot write to "{self.folder}" ({error.strerror}); choose a folder you may write to.'
            ) from error
        self._unrank()

    @property
    def _request_file(self) -> Path:
        return self.work / "request.json"

    @property
    def _known(self) -> dict[str, str]:
        return {"fingerprint": self._request.fingerprint(), "engine": self._engine}

    def _check(self, resume: bool) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise BadInput(f'"{self.folder}" is a file; name a folder for the models.')
        held = sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []
        if held in ([], [CLUSTER]):  # a run that was killed while its machines booted has left their logs
            return
        strangers = [name for name in held if name not in _OWN_FILES and not _MODEL_FOLDER.fullmatch(name)]
        if strangers or not self._request_file.exists():
            raise BadInput(
                f'"{self.folder}" holds something else ({(strangers or held)[0]}); '
                "name an empty or a new folder."
            )
        if not resume:
            raise BadInput(
                f'"{self.folder}" holds the models of a request already; '
                "continue with --resume or name another folder."
            )
        try:
            before = json.loads(self._request_file.read_text())
        except (OSError, ValueError) as error:
            raise BadInput(f'"{self._request_file}" is damaged ({error}); name another folder.') from error
        if before.get("format") != FORMAT:
            raise BadInput(
                f'"{self.folder}" was begun by a version of Prudent that kept its trials in another form; '
                "name another folder."
            )
        for name, value in self._known.items():
            if before.get(name) != value:
                what = "request" if name == "fingerprint" else "engine"
                raise BadInput(
                    f'"{self.folder}" holds the models of another {what}; '
                    "set it as it was, or name another folder."
                )

    def _unrank(self) -> None:
        """Move ranked models back under their trials' numbers, because a resumed request ranks anew."""
        for place in sorted(self.folder.iterdir()):
            if _MODEL_FOLDER.fullmatch(place.name):
                place.rename(self.trials / str(read_description(place).trial))

    def undo(self) -> None:
        """Remove what was written for a request that could not begin, so that it can be corrected."""
        if self._new:
            shutil.rmtree(self.work, ignore_errors=True)
            if not self._found:
                with contextlib.suppress(OSError):
                    self.folder.rmdir()

    @property
    def journal(self) -> Path:
        """The journal of the request's study."""
        return self.work / "study.jsonl"

    # The end

    def rank(self, board: Leaderboard, described: Mapping[str, Any]) -> Leaderboard:
        """Put the models of a leaderboard, the best first, into their folders, and write it."""
        ranked = replace(board, entries=self._place(board.entries, described))
        self.tidy()
        self.write(ranked)
        return ranked

    def _place(
        self, ranked: Sequence[LeaderboardEntry], described: Mapping[str, Any]
    ) -> tuple[LeaderboardEntry, ...]:
        """Move every model to <rank>-<algorithm>-<score> and describe it; `ranked` has the best first."""
        digits = len(str(len(ranked)))
        placed = []
        for rank, entry in enumerate(ranked, start=1):
            folder = self.folder / f"{rank:0{digits}d}-{entry.algorithm}-{entry.score:.4f}"
            here = Path(entry.model_path)
            facts = replace(read_facts(here), value=entry.value, score=entry.score)
            self._describe(entry, here, described, facts)
            here.rename(folder)
            known = replace(entry, rows_trained=facts.rows_trained, refitted=facts.refitted)
            placed.append(replace(known, rank=rank, model_path=str(folder)))
        return tuple(placed)

    def _describe(
        self, entry: LeaderboardEntry, here: Path, described: Mapping[str, Any], facts: ModelFacts
    ) -> None:
        """Write all that is needed to use a model and to train it again."""
        request = self._request
        asked = {**(request.dataset.model_dump(mode="json", exclude_none=True) if request.dataset else {})}
        said = request.to_dict()
        asked |= {name: said[name] for name in ("validation", "test", "classWeights") if name in said}
        given = algorithm(entry.algorithm).complete(entry.hyperparameters)
        spec = TrialSpec(
            entry.trial,
            entry.algorithm,
            {name: value for name, value in given.items() if value is not None},
            {name: settings for name, settings in entry.transforms.items() if name != SAMPLE},
            entry.fraction,
            request.seed,
            here,
        )
        write_description(
            here,
            data=described,
            spec=spec,
            facts=facts,
            domain=request.domain,
            engine=self._engine,
            request=asked,
            machines=entry.machines,
            validation_score=entry.validation_score,
            test_score=entry.test_score,
            interval=entry.interval,
        )

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
                row = [_cell(said[name]) for name in _COLUMNS]
                writer.writerow(row)

    def tidy(self) -> None:
        """Delete the engine's own files and those of failed trials."""
        shutil.rmtree(self.engine_work, ignore_errors=True)
        for left in self.trials.iterdir() if self.trials.exists() else ():
            shutil.rmtree(left, ignore_errors=True)


def _cell(value: Any) -> Any:
    """A value in CSV: what has parts as JSON."""
    return json.dumps(value) if isinstance(value, (dict, tuple)) else value
