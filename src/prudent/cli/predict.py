"""`prudent predict MODEL DATA`: predictions of a trained model for new rows."""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from prudent.cli.console import out, say, say_json
from prudent.cli.options import AsJson
from prudent.core.errors import BadInput

if TYPE_CHECKING:
    from prudent.training.models.model import Model


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model's folder, or a request's: then the best model.")
    ],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A file, a folder of parts, http(s):// or s3://.")
    ],
    to: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the predictions to this CSV file.")
    ] = None,
    as_json: AsJson = False,
    proba: Annotated[bool, typer.Option("--proba", help="Also give the probability of each class.")] = False,
    data_format: Annotated[
        str | None,
        typer.Option(
            "--format", help="libsvm, csv, parquet, avro or json. \\[default: found out from the data]"
        ),
    ] = None,
) -> None:
    """Predict with a trained model: one line for each row of the data, in their order."""
    from prudent.training.models.model import load

    loaded = load(model)
    if proba and not loaded.has_probabilities:
        raise BadInput(
            f"A model by {loaded.description.algorithm} gives no probabilities; leave out --proba."
        )
    with tempfile.TemporaryDirectory(prefix="prudent-") as cache:
        blocks = _predicted(loaded, data, data_format, Path(cache), proba)
        if as_json:
            _say_json(loaded, blocks, to, proba)
        elif to is not None:
            rows = _write_file(loaded, blocks, to, proba)
            say(out(), f"{rows:,} row{'s' if rows != 1 else ''} predicted: {to}")
        else:
            _write(loaded, blocks, sys.stdout, proba)


def _predicted(
    model: Model, data: str, data_format: str | None, cache: Path, proba: bool
) -> Iterator[tuple[list[Any], list[list[float]]]]:
    """Predictions and probabilities, block by block."""
    from prudent.training.data.features import feature_blocks

    for block in feature_blocks(data, model.description.columns, data_format, cache=cache):
        chances = model.probabilities_of(block).astype(float).round(6).tolist() if proba else []
        yield model.predict_matrix(block).tolist(), chances


def _say_json(model: Model, blocks: Iterator[Any], to: Path | None, proba: bool) -> None:
    if to is not None:
        say_json({"rows": _write_file(model, blocks, to, proba), "out": str(to)})
        return
    found = list(blocks)
    said: dict[str, Any] = {"predictions": [value for values, _ in found for value in values]}
    if proba:
        said["classes"] = list(model.description.classes)
        said["probabilities"] = [row for _, rows in found for row in rows]
    say_json({"rows": len(said["predictions"]), **said})


def _write_file(model: Model, blocks: Iterator[Any], to: Path, proba: bool) -> int:
    """A CSV file, whole or not at all."""
    part = to.with_name(f".{to.name}.part")
    try:
        with ExitStack() as cleanup:
            to.parent.mkdir(parents=True, exist_ok=True)
            cleanup.callback(part.unlink, missing_ok=True)
            with part.open("w", encoding="utf-8", newline="") as file:
                rows = _write(model, blocks, file, proba)
            part.replace(to)
    except OSError as error:
        raise BadInput(
            f'Cannot write "{to}" ({error.strerror}); choose a folder that you may write to.'
        ) from error
    return rows


def _write(model: Model, blocks: Iterator[Any], file: TextIO, proba: bool) -> int:
    writer, rows = csv.writer(file, lineterminator="\n"), 0
    name = model.description.target or "prediction"
    writer.writerow([name, *(f"probability of {label}" for label in model.description.classes if proba)])
    for values, chances in blocks:
        rows += len(values)
        writer.writerows([value, *(chances[place] if proba else ())] for place, value in enumerate(values))
    return rows
