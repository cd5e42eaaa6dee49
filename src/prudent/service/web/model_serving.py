"""Predictions of stored models; the last used ones stay loaded."""

from __future__ import annotations

import io
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prudent.core.errors import BadInput
from prudent.service.intake.refusal import refusal
from prudent.service.store.models import StoredModel as Stored
from prudent.service.worker import artifacts

if TYPE_CHECKING:
    from prudent.training.models.model import Model

KEPT = 16
GONE = 410
MOST_ROWS = 100_000


class ModelPredictor:
    """Loads models when they are first used and forgets those unused for longest."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.threads = ThreadPoolExecutor(2, "predict")
        """For predictions alone, so that a report need not wait for them."""
        self._loaded: OrderedDict[str, Model] = OrderedDict()
        self._lock = threading.Lock()

    def predict(self, stored: Stored, document: Any) -> dict[str, Any]:
        """What the model says about `rows`, and with `probabilities` how sure it is."""
        rows, probabilities = _asked(document)
        model = self._model(stored)
        try:
            found = model.predict(rows)
            answer: dict[str, Any] = {"model": stored.id, "predictions": found.tolist()}
            _check_finite(found)
            if probabilities:
                answer["classes"] = list(model.description.classes)
                sure = model.predict_proba(rows)
                _check_finite(sure)
                answer["probabilities"] = sure.tolist()
        except BadInput as error:
            raise refusal(str(error), "rows") from None
        except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
            raise refusal(
                f"The rows do not fit the model ({error}); give one object per row.", "rows"
            ) from None
        return answer

    def columns(self, stored: Stored) -> list[dict[str, Any]]:
        """The features of a model, for a form: name, kind and categories."""
        return [
            {"name": column.name, "kind": column.kind, "categories": list(column.categories)}
            for column in self._model(stored).description.columns
        ]

    def _model(self, stored: Stored) -> Model:
        from prudent.training.models.model import load

        with self._lock:
            if stored.id in self._loaded:
                self._loaded.move_to_end(stored.id)
                return self._loaded[stored.id]
        folder = artifacts.local_folder(stored.path, self.cache)
        if folder is None:
            raise refusal(f"The files of model {stored.id} are gone; train it again.", status=GONE)
        model = load(folder)
        with self._lock:
            self._loaded[stored.id] = model
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
        return model


def _check_finite(found: Any) -> None:
    """Refuse answers with NaN or infinity: JSON has no such numbers."""
    if found.dtype.kind != "f":
        return
    odd = np.flatnonzero(~np.isfinite(found).reshape(len(found), -1).all(axis=1))
    if len(odd):
        raise BadInput(
            f"The model has no answer for row {odd[0] + 1}: its numbers are too large; correct them."
        )


def _asked(document: Any) -> tuple[list[Any], bool]:
    if not isinstance(document, Mapping):
        raise refusal('Give an object: {"rows": […]}.', status=400)
    for key in document:
        if key not in ("rows", "probabilities"):
            raise refusal(f'Unknown key "{str(key)[:40]}"; use rows and probabilities.', str(key)[:40])
    rows, probabilities = document.get("rows"), document.get("probabilities", False)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, (list, dict)) for row in rows):
        raise refusal("Give a list of rows, each an object by column or a list of values.", "rows")
    if len(rows) > MOST_ROWS:
        raise refusal(f"There are more than {MOST_ROWS} rows; send them in parts.", "rows")
    if not isinstance(probabilities, bool):
        raise refusal("Give true or false.", "probabilities")
    return rows, probabilities


_BLOCK = 1 << 16


class _ZipBuffer(io.RawIOBase):
    """Takes what a zip writes, until somebody wants it; cannot seek, so that nothing is kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        block = bytes(data)  # type: ignore[call-overload]
        self._parts.append(block)
        return len(block)

    def take(self) -> bytes:
        found = b"".join(self._parts)
        self._parts.clear()
        return found


def zipped(folder: Path, name: str) -> Iterator[bytes]:
    """The folder's files as a zip, piece by piece: a large model does not fill the memory."""
    sink = _ZipBuffer()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            fact = zipfile.ZipInfo.from_file(path, f"{name}/{path.relative_to(folder).as_posix()}")
            fact.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(fact, "w") as entry, path.open("rb") as file:
                while block := file.read(_BLOCK):
                    entry.write(block)
                    if ready := sink.take():
                        yield ready
    yield sink.take()
