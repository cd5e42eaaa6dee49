"""What is to be predicted: which column, and its values as numbers or as numbers of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.training.algorithms.algorithm import CLUSTERING, REGRESSION
from prudent.training.data.csv_files import is_number
from prudent.training.data.dataset import Batch
from prudent.training.data.encoding import as_doubles, as_numbers, is_text, trimmed_text

BINOMIAL = "binomial-classification"
USUAL_NAMES = ("label", "target", "class", "y")
"""What the column to predict is called where nobody says."""

_MOST_CLASSES = 1000


@dataclass(frozen=True)
class Target:
    """The target of a data set: y, and the labels of its classes if it has classes."""

    y: NDArray[Any] | None
    classes: tuple[Any, ...] = ()


def target_name(names: Sequence[str], said: str | None, domain: str) -> str | None:
    """The column to predict: the one that was said, or one with a usual name."""
    if said is not None:
        if said not in names:
            raise unknown("target", said, names)
        return said
    if domain == CLUSTERING:
        return None
    by_lower = {name.lower(): name for name in reversed(names)}
    found = next((by_lower[usual] for usual in USUAL_NAMES if usual in by_lower), None)
    if found is None:
        shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
        raise BadInput(
            f'No column is called {", ".join(USUAL_NAMES[:-1])} or {USUAL_NAMES[-1]}; say with "target" '
            f"which one to predict: {shown}."
        )
    return found


def raw_target(name: str, batch: Batch, domain: str) -> NDArray[Any]:
    """The target's values of a batch, as numbers or labels; a missing one is an error that says where."""
    import pyarrow as pa

    values = batch.columns.get(name)
    if values is None or pa.types.is_null(values.type):
        raise _missing(name, batch, 0)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if is_text(values.type):
        values = trimmed_text(values)
    if values.null_count:
        raise _missing(name, batch, values.is_null().index(True).as_py())
    if domain == REGRESSION:
        return _numbers(name, values, batch)
    if pa.types.is_floating(values.type) and values.is_nan().index(True).as_py() >= 0:
        raise _missing(name, batch, values.is_nan().index(True).as_py())
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64(), safe=False)
    if pa.types.is_nested(values.type) or pa.types.is_temporal(values.type):
        raise BadInput(
            f'The target "{name}" holds {values.type}, which is not a label; write it as text or a number.'
        )
    if is_text(values.type):  # one text for all rows that say the same
        encoded = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        encoded = encoded.dictionary_encode()
        words: NDArray[Any] = encoded.dictionary.to_numpy(zero_copy_only=False).astype(object)
        codes: NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
        return words[codes]
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found if found.dtype.kind in "biuf" else found.astype(object)


def numeric_target(y: NDArray[np.float64], name: str) -> Target:
    """The target of a regression; it must vary."""
    if len(y) and (y == y[0]).all():
        raise BadInput(
            f'The target "{name}" is {y[0]:g} in every row, so there is nothing to learn; give data in '
            "which it varies, or another target."
        )
    return Target(np.ascontiguousarray(y, np.float64))


def class_target(parts: Sequence[NDArray[Any]], name: str, domain: str, untyped: bool) -> Target:
    """The target of a classification: the labels in order, and for each row the number of its own.

    Labels keep their type: whole numbers, other numbers, booleans or text. In a file of text alone, labels
    that are all numbers are numbers. Where types are mixed, all are text.
    """
    labels = _united(parts, untyped)
    if isinstance(labels, list):
        classes: tuple[Any, ...] = tuple(sorted(set(labels)))
        places = {label: place for place, label in enumerate(classes)}
        codes = np.fromiter((places[label] for label in labels), np.int64, len(labels))
    else:
        found, codes = np.unique(labels, return_inverse=True)
        classes = tuple(found.tolist())
    _check_classes(classes, len(labels), name, domain)
    return Target(codes.reshape(-1).astype(np.int64), classes)


def as_whole_numbers(values: NDArray[np.float64]) -> NDArray[Any]:
    """Numbers as integers, if all of them are."""
    exact = bool((np.abs(values) < 2**53).all() and (values % 1 == 0).all())
    return values.astype(np.int64) if exact else values


def _united(parts: Sequence[NDArray[Any]], untyped: bool) -> NDArray[Any] | list[str]:
    """All labels: as numbers, or as texts, of which equal ones are one object each."""
    kinds = {part.dtype.kind for part in parts}
    if kinds <= set("iuf") or kinds == {"b"}:
        return np.concatenate(parts)
    different: dict[str, str] = {}
    words = [different.setdefault(said, said) for part in parts for said in map(str, part.tolist())]
    if untyped and all(is_number(word) for word in different):
        values = {word: float(word) for word in different}
        numbers = np.fromiter((values[word] for word in words), np.float64, len(words))
        integers = all(word.lstrip("+-").isdigit() for word in different)
        return as_whole_numbers(numbers) if integers else numbers
    return words


def _check_classes(classes: tuple[Any, ...], rows: int, name: str, domain: str) -> None:
    if len(classes) == 1:
        raise BadInput(
            f'The target "{name}" is {classes[0]!r} in every row; a classification needs two classes or more.'
        )
    if domain == BINOMIAL and len(classes) > 2:
        shown = ", ".join(repr(label) for label in classes[:5])
        raise BadInput(
            f'The target "{name}" has {len(classes)} classes ({shown}{", …" if len(classes) > 5 else ""}), '
            f'but {BINOMIAL} has two; use the domain "multinomial-classification".'
        )
    if len(classes) > _MOST_CLASSES or (len(classes) == rows and rows > 10):
        raise BadInput(
            f'The target "{name}" has {len(classes):,} different values in {rows:,} rows, which are no '
            'classes; use the domain "regression", or another target.'
        )


def _numbers(name: str, values: Any, batch: Batch) -> NDArray[np.float64]:
    import pyarrow as pa

    if is_text(values.type):
        try:
            values = values.cast(pa.float64())
        except pa.ArrowInvalid as error:
            words = values.to_pylist()
            place = next((p for p, word in enumerate(words) if not is_number(word)), 0)
            raise BadInput(
                f'{batch.where(place, name)}: "{words[place]}" is not a number, as regression needs; '
                "correct it, or use a classification domain."
            ) from error
    elif as_numbers(values, batch, name) is None:
        raise BadInput(f'The target "{name}" is not numeric; use a classification domain.')
    y = as_doubles(values)
    if not np.isfinite(y).all():
        raise _missing(name, batch, int(np.flatnonzero(~np.isfinite(y))[0]))
    return y


def _missing(name: str, batch: Batch, place: int) -> BadInput:
    return BadInput(
        f"{batch.where(place, name)}: the target has no value there; fill it in, or leave the row out."
    )
