"""The files of a trained model's folder, and the versions of what made them."""

from __future__ import annotations

import platform
import shutil
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prudent.training.engines.predictions import PREDICTIONS_FILE
from prudent.training.models.description import FACTS_FILE, MODEL_FILE

PMML, SPARKS_OWN = "model.pmml", "spark"
_ALWAYS = ("prudent", "numpy", "scipy", "onnx", "onnxruntime")


def write_model(folder: Path, onnx: bytes, pmml: bytes | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL_FILE).write_bytes(onnx)
    if pmml is not None:
        (folder / PMML).write_bytes(pmml)


def remove_model_files(folder: Path) -> None:
    """Remove what an unfinished trial may have written: where there are facts, there is a model."""
    for name in (FACTS_FILE, MODEL_FILE, PMML, PREDICTIONS_FILE):
        (folder / name).unlink(missing_ok=True)
    for name in (FACTS_FILE, PREDICTIONS_FILE):
        for unfinished in folder.glob(f".{name}.*"):
            unfinished.unlink(missing_ok=True)
    shutil.rmtree(folder / SPARKS_OWN, ignore_errors=True)


@cache
def library_versions(library: str | None = None) -> dict[str, str]:
    """Versions of what takes part in training, with the library that fits the model where there is one."""
    found = {"python": platform.python_version()}
    for name in (*_ALWAYS, *([library] if library else [])):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a folder, not installed
            found[name] = "unknown"
    return found
