"""Train a model's configuration again, on other or more data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prudent.training.algorithms.registry import algorithm
from prudent.training.description import read_description
from prudent.training.model import model_folder


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
        "metric": known.metric,
        "seed": known.seed,
    }
