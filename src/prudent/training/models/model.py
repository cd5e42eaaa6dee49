"""A trained model, ready to predict, and the request that trains it again.

To predict, its folder's `model.onnx` and `model.json` suffice.

Neither Spark, scikit-learn nor any training code is needed, and nothing is loaded that could run code of its
own: ONNX is a graph of known operations, the description is JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, RunFailed
from prudent.training.algorithms.registry import algorithm
from prudent.training.data.dataset import Matrix
from prudent.training.data.features import encode_rows
from prudent.training.models.description import (
    DESCRIPTION_FILE,
    INPUT,
    MODEL_FILE,
    PREDICTION,
    PROBABILITIES,
    ModelDescription,
    read_description,
)

_ROWS = 1 << 16
_LEADERBOARD = "leaderboard.json"


@dataclass(frozen=True, eq=False)
class Model:
    """What a folder of `prudent train` holds.

    `rows` are dicts by column name, lists in the order of `columns`, an array or a pandas frame. Unknown
    categories and missing values are handled as they were in training.
    """

    description: ModelDescription
    session: Any

    @property
    def columns(self) -> tuple[str, ...]:
        """The features, in the order in which lists and arrays hold them."""
        return tuple(column.name for column in self.description.columns)

    @property
    def has_probabilities(self) -> bool:
        return PROBABILITIES in {output.name for output in self.session.get_outputs()}

    def predict(self, rows: Any) -> NDArray[Any]:
        """For each row the label, as the training data have it, the value, or the number of the cluster."""
        return self.predict_matrix(encode_rows(rows, self.description.columns))

    def predict_proba(self, rows: Any) -> NDArray[np.float32]:
        """For each row the probability of each class, in the order of `description.classes`."""
        return self.probabilities_of(encode_rows(rows, self.description.columns))

    def predict_matrix(self, matrix: Matrix) -> NDArray[Any]:
        """Predictions for rows that are numbers already, as the data set's matrix has them."""
        found = self._run(PREDICTION, matrix).reshape(-1)
        if self.description.classes:
            return np.array(self.description.classes)[found.astype(np.int64)]
        return found if found.dtype.kind in "iu" else found.astype(np.float64)

    def probabilities_of(self, matrix: Matrix) -> NDArray[np.float32]:
        """The same for probabilities."""
        if not self.has_probabilities:
            raise BadInput(
                f"A model by {self.description.algorithm} gives no probabilities; use predict instead."
            )
        return self._run(PROBABILITIES, matrix)

    def _run(self, output: str, matrix: Matrix) -> NDArray[Any]:
        kind = np.float64 if self.session.get_inputs()[0].type == "tensor(double)" else np.float32
        try:
            parts = []
            for start in range(0, max(len(matrix), 1), _ROWS):
                rows = np.ascontiguousarray(matrix[start : start + _ROWS], kind)
                parts.append(self.session.run([output], {INPUT: rows})[0])
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            raise RunFailed(f"The model cannot be computed ({said}); train it again.") from error
        return np.concatenate(parts) if len(parts) > 1 else np.asarray(parts[0])


def load(path: str | Path) -> Model:
    """The model of a folder that `prudent train` wrote; of a whole request's folder, the best one."""
    folder = model_folder(Path(path))
    description = read_description(folder)
    session = _session(_inside(folder, MODEL_FILE))
    _check(folder, description, session)
    return Model(description, session)


def onnx_predictions(path: Path, matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """What a `model.onnx` says of rows: numbers of classes or values, and probabilities where it has them."""
    session = _session(path)
    names = [output.name for output in session.get_outputs()]
    wanted = [name for name in (PREDICTION, PROBABILITIES) if name in names]
    try:
        parts = [
            session.run(wanted, {INPUT: np.ascontiguousarray(matrix[start : start + _ROWS])})
            for start in range(0, len(matrix), _ROWS)
        ]
    except Exception as error:
        raise RunFailed(f'"{path}" cannot be computed ({" ".join(str(error).split())[:200]}).') from error
    found = [np.concatenate([part[number] for part in parts]) for number in range(len(wanted))]
    predicted = found[0].reshape(-1)
    return predicted, found[1] if PROBABILITIES in wanted else None


def model_folder(path: Path) -> Path:
    """The folder of one model that a path means; of a whole request's folder, that of the best."""
    path = path.expanduser()
    if path.name in (MODEL_FILE, DESCRIPTION_FILE) and path.is_file():
        path = path.parent
    if not path.is_dir():
        raise BadInput(f'There is no model folder "{path}"; give one that prudent train wrote.')
    if (path / DESCRIPTION_FILE).exists() or not (path / _LEADERBOARD).is_file():
        return path
    try:
        best = json.loads((path / _LEADERBOARD).read_text(encoding="utf-8"))["entries"][0]["model_path"]
        return path / Path(str(best)).name
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise BadInput(
            f'"{path}" has no model in its {_LEADERBOARD}; give the folder of one model.'
        ) from error


def _inside(folder: Path, name: str) -> Path:
    """A file of the folder itself; a link out of it is not followed."""
    path = folder / name
    if not path.is_file():
        raise BadInput(
            f'"{folder}" is not a model folder: it has no {name}; give one that prudent train wrote.'
        )
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(f'"{path}" leads out of its folder; copy the model itself there.')
    return path


def _session(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise BadInput('Predicting needs onnxruntime; pip install "prudent[train]".') from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # every failure to parse or to build the graph has a class of its own
        raise BadInput(
            f'"{path}" is damaged or no ONNX model; copy the folder again, or train it again.'
        ) from error


def _check(folder: Path, description: ModelDescription, session: Any) -> None:
    inputs, outputs = session.get_inputs(), {output.name for output in session.get_outputs()}
    fits = len(inputs) == 1 and inputs[0].name == INPUT and PREDICTION in outputs
    width = inputs[0].shape[1] if fits and len(inputs[0].shape) == 2 else None
    if not fits or (isinstance(width, int) and width != len(description.columns)):
        raise BadInput(
            f'The {MODEL_FILE} and {DESCRIPTION_FILE} in "{folder}" do not belong together; copy both from '
            "where they were written."
        )


def retraining_request(model: str | Path, data: str) -> dict[str, Any]:
    """The request that trains exactly the configuration of a model, on all the rows of `data`.

    Target, features, validation, metric and seed are those of the model, so that scores can be compared.
    """
    known = read_description(model_folder(Path(model)))
    asked = dict(known.request)
    settings = {
        name: value for name, value in known.hyperparameters.items() if name in algorithm(known.algorithm)
    }
    dataset = {name: asked[name] for name in ("target", "features") if asked.get(name) is not None}
    if Path(data).suffix == "" and asked.get("format"):
        dataset["format"] = asked["format"]
    return {
        "domain": known.domain,
        "dataset": {"path": data, **dataset},
        "methods": [
            {
                "algorithm": known.algorithm,
                "hyperparameters": [{"param": name, "values": [value]} for name, value in settings.items()],
            }
        ],
        "parameterSearch": "grid",
        "transforms": [{"name": name, **chosen} for name, chosen in known.transforms.items()],
        "validation": asked.get("validation") or {},
        **{name: asked[name] for name in ("test", "classWeights") if name in asked},
        "metric": known.metric,
        "seed": known.seed,
    }
