"""`model.json`: all that must be known to use a model, and to train it again.

It lies beside `model.onnx` and is plain JSON, one object:

    format            1
    algorithm         the name as in the request
    hyperparameters   name -> value
    transforms        name -> settings, in order
    domain            as in the request
    columns           [{"name", "kind": "numeric" | "categorical" | "date", "categories": [text, …]}, …],
                      in the order in which model.onnx takes them
    classes           the labels in the order of their numbers; [] where there are none
    target            the name of the predicted column, or null
    metric, value, score, train_s, predict_ms, export_difference, rows_trained, rows_validated
    validation_score, test_score, interval
                      what was measured on the rows that ranked and on the test part, and where the true
                      score lies with 95 % certainty; null where that was not measured
    refitted          whether it was trained on all rows, after it had been judged
    iterations        in how many steps an iterative algorithm was trained; null for others
    fingerprint       of the data
    seed, fraction, trial
    engine            "local" or "spark"
    versions          package -> version
    machines          such as "2*m5.large", where the request left open which; absent elsewhere
    notes             what else should be known, such as why there is no PMML; absent where there is nothing
    request           what was asked about the data: path, format, target, features, validation; for --retrain
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.data.dataset import CATEGORICAL, DATE, NUMERIC, Column
from prudent.training.engines.engine import ModelFacts, TrialSpec

MODEL_FILE, DESCRIPTION_FILE, FACTS_FILE = "model.onnx", "model.json", "facts.json"
INPUT, PREDICTION, PROBABILITIES = "features", "prediction", "probabilities"
"""The names of a model's input and outputs in ONNX."""
FORMAT = 1
_FILES_ALONE = ("picture", "extra_files", "notes", "split_scores")


@dataclass(frozen=True)
class ModelDescription:
    """What `model.json` says."""

    algorithm: str
    hyperparameters: Mapping[str, Any]
    transforms: Mapping[str, Any]
    domain: str
    columns: tuple[Column, ...]
    classes: tuple[Any, ...]
    target: str | None
    metric: str
    value: float
    score: float
    train_s: float
    predict_ms: float
    export_difference: float | None
    rows_trained: int
    rows_validated: int
    fingerprint: str
    seed: int
    fraction: float
    trial: int
    engine: str
    versions: Mapping[str, str]
    request: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    machines: str = ""
    validation_score: float | None = None
    test_score: float | None = None
    interval: Sequence[float] | None = None
    refitted: bool = False
    iterations: int | None = None


def data_description(columns: Sequence[Column], classes: Sequence[Any], target: str | None) -> dict[str, Any]:
    """How raw rows become the matrix that a model takes, as a session of any engine says it."""
    return {
        "columns": [
            {"name": column.name, "kind": column.kind, "categories": list(column.categories)}
            for column in columns
        ],
        "classes": list(classes),
        "target": target,
    }


def write_description(
    folder: Path,
    *,
    data: Mapping[str, Any],
    spec: TrialSpec,
    facts: ModelFacts,
    domain: str,
    engine: str,
    request: Mapping[str, Any] | None = None,
    machines: str = "",
    validation_score: float | None = None,
    test_score: float | None = None,
    interval: tuple[float, float] | None = None,
) -> Path:
    """Write `model.json` into a model's folder; `data` is the session's description."""
    said = {
        "format": FORMAT,
        "algorithm": spec.algorithm,
        "hyperparameters": dict(spec.hyperparameters),
        "transforms": dict(spec.transforms),
        "domain": domain,
        "columns": list(data.get("columns", ())),
        "classes": list(data.get("classes", ())),
        "target": data.get("target"),
        "fingerprint": str(data.get("fingerprint", "")),
        "seed": spec.seed,
        "fraction": spec.fraction,
        "trial": spec.number,
        "engine": engine,
        "request": dict(request or {}),
        "validation_score": facts.score if validation_score is None else validation_score,
        "test_score": test_score,
        "interval": interval,
        **{name: value for name, value in asdict(facts).items() if name not in _FILES_ALONE},
    }
    if machines:
        said["machines"] = machines
    if facts.notes:
        said["notes"] = list(facts.notes)
    return _write(Path(folder) / DESCRIPTION_FILE, said)


def write_facts(folder: Path, facts: ModelFacts) -> Path:
    """Write `facts.json` into a model's folder, whole or not at all.

    It is to be written last: where the facts are, the model is whole.
    """
    return _write(Path(folder) / FACTS_FILE, asdict(facts), indent=None)


def read_facts(folder: Path) -> ModelFacts:
    """What an engine wrote of a model it trained."""
    said = _read(Path(folder) / FACTS_FILE)
    try:
        lists = {name: tuple(said.get(name, ())) for name in ("extra_files", "notes", "split_scores")}
        return ModelFacts(**{**said, **lists})
    except TypeError as error:
        raise _damaged(Path(folder) / FACTS_FILE, error) from error


def read_description(folder: Path) -> ModelDescription:
    """What `model.json` of a folder says."""
    path = Path(folder) / DESCRIPTION_FILE
    said = _read(path)
    if said.pop("format", None) != FORMAT:
        raise BadInput(
            f'"{path}" was written by another version of Prudent; use that version, or train it again.'
        )
    try:
        columns = _columns(said.pop("columns"))
        classes = tuple(said.pop("classes"))
        known = {name: said[name] for name in ModelDescription.__dataclass_fields__ if name in said}
        return ModelDescription(columns=columns, classes=classes, **known)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, error) from error


def _columns(said: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    columns = tuple(
        Column(str(each["name"]), str(each["kind"]), tuple(str(word) for word in each.get("categories", ())))
        for each in said
    )
    if any(column.kind not in (NUMERIC, CATEGORICAL, DATE) for column in columns):
        raise ValueError("a column of an unknown kind")
    return columns


def _read(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(
            f'"{path.parent}" is not a model folder: it has no {path.name}; give one that prudent '
            "train wrote."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(said, dict):
        raise _damaged(path, "it is not a JSON object")
    return said


def _write(path: Path, said: Mapping[str, Any], indent: int | None = 2) -> Path:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(
            json.dumps(_plain(said), indent=indent, ensure_ascii=False, allow_nan=False), encoding="utf-8"
        )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _damaged(path: Path, error: object) -> BadInput:
    said = " ".join(str(error).split())[:200]
    return BadInput(f'"{path}" is damaged ({said}); copy the model folder again, or train it again.')
