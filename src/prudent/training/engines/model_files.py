"""The files of a trained model's folder, and the versions of what made them."""

from __future__ import annotations

import json
import platform
import shutil
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prudent.training.engines.engine import ModelFacts

FACTS, MODEL, PMML, SPARKS_OWN = "facts.json", "model.onnx", "model.pmml", "spark"
_ALWAYS = ("prudent", "numpy", "scipy", "onnx", "onnxruntime")


def write_model(folder: Path, onnx: bytes, pmml: bytes | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(onnx)
    if pmml is not None:
        (folder / PMML).write_bytes(pmml)


def write_facts(folder: Path, facts: ModelFacts) -> None:
    """To be written last: where the facts are, the model is whole."""
    unfinished = folder / f".{FACTS}"
    unfinished.write_text(json.dumps(asdict(facts)))
    unfinished.rename(folder / FACTS)


def remove_model_files(folder: Path) -> None:
    """Remove what an unfinished trial may have written: where there are facts, there is a model."""
    for name in (FACTS, f".{FACTS}", MODEL, PMML):
        (folder / name).unlink(missing_ok=True)
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
