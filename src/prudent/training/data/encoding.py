"""From columns as they are written to numbers: a number, a date, a category, or missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.csv_files import MISSING, is_number
from prudent.training.data.dataset import CATEGORICAL, DATE, NUMERIC, Batch, Column, loses_digits
from prudent.training.data.dates import days_of
from prudent.training.data.record_files import category_text

MOST_CATEGORIES = 1000
"""A column keeps its most frequent categories up to this number; rarer ones count as missing, as one does
that was never seen."""

LARGEST = float(np.finfo(np.float32).max)
"""What is beyond this is refused: models compute with it in single precision here and there."""
_MOST_DISTINCT = 1_000_000
_SLIP_SHARE = 0.01
_ENOUGH_NUMBERS = 50


@dataclass
class ColumnEncoder:
    """Learns what a feature is while its values pass by.

    A column is taken for numeric until a value says otherwise, and then for dates until one says otherwise;
    `contradicted` asks for another pass, because the numbers given out before meant something else.
    """

    name: str
    kind: str = NUMERIC
    wide: bool = False
    """Whether numbers lose digits in single precision."""
    contradicted: bool = False
    seen: bool = False
    codes: dict[str, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    first_text: tuple[str, str] | None = None
    """Where the first value stands that is no number, and the value, in a column of untyped text."""

    def encode(self, batch: Batch) -> NDArray[np.float64]:
        """The values of a batch as numbers, NaN where one is missing."""
        values = batch.columns.get(self.name)
        if values is None:
            return np.full(batch.rows, np.nan)
        seen_before, self.seen = self.seen, self.seen or values.null_count < len(values)
        if self.kind == NUMERIC and not is_temporal(values.type):
            numbers = as_numbers(values, batch, self.name)
            if numbers is not None:
                self.wide = self.wide or loses_digits(numbers)
                return numbers
        if self.kind == DATE or (self.kind == NUMERIC and not seen_before):
            days = days_of(values)
            if days is not None:
                self.kind = DATE
                self.wide = self.wide or loses_digits(days, exactly=True)
                return days
        if self.kind != CATEGORICAL:
            self.kind, self.contradicted, self.wide = CATEGORICAL, True, False
        return self._as_codes(values, batch)

    def start_over(self) -> None:
        """Forget what was counted, before another pass."""
        self.contradicted, self.codes, self.counts = False, {}, []

    def column(self) -> tuple[Column, NDArray[np.float64] | None]:
        """The column, and for a category's number given out so far the final one (NaN: a rare one)."""
        if self.kind != CATEGORICAL:
            return Column(self.name, self.kind), None
        self._refuse_slips()
        often = sorted(self.codes, key=lambda word: (-self.counts[self.codes[word]], word))[:MOST_CATEGORIES]
        categories = tuple(sorted(often))
        final = np.full(len(self.codes) + 1, np.nan)
        for number, word in enumerate(categories):
            final[self.codes[word]] = number
        return Column(self.name, CATEGORICAL, categories), final

    def _as_codes(self, values: Any, batch: Batch) -> NDArray[np.float64]:
        words, places = distinct(values)
        counts = np.bincount(places[places >= 0], minlength=len(words))
        numbers = np.full(len(words) + 1, np.nan)  # the last is for missing values, at place -1
        for word, count, place in zip(words, counts.tolist(), range(len(words)), strict=True):
            if word not in self.codes and len(self.codes) >= _MOST_DISTINCT:
                continue
            code = self.codes.setdefault(word, len(self.codes))
            if code == len(self.counts):
                self.counts.append(0)
            self.counts[code] += count
            numbers[place] = code
            if batch.untyped and self.first_text is None and not is_number(word):
                first = int(np.flatnonzero(places == place)[0])
                self.first_text = (batch.where(first, self.name), word)
        return numbers[places]

    def _refuse_slips(self) -> None:
        """A column of numbers with a word here and there is a slip, not a thousand categories."""
        if self.first_text is None:
            return
        numeric = [self.counts[code] for word, code in self.codes.items() if is_number(word)]
        total = sum(self.counts)
        if is_slip(total - sum(numeric), len(numeric), total):
            raise slip(*self.first_text)


def is_slip(words: int, numbers: int, values: int) -> bool:
    """Whether a column has so few words among so many numbers that somebody has mistyped them."""
    return numbers > _ENOUGH_NUMBERS and 0 < words < _SLIP_SHARE * values


def slip(where: str, word: str) -> BadInput:
    return BadInput(
        f'{where}: "{word}" is not a number, but nearly all values of this column are; correct it, '
        "or leave it empty if the value is missing."
    )


def encode_known(column: Column, batch: Batch) -> NDArray[np.float64]:
    """The values of a column that training has seen; a category it has not seen is missing."""
    values = batch.columns.get(column.name)
    if values is None:
        return np.full(batch.rows, np.nan)
    if column.kind == DATE and values.null_count < len(values):
        days = days_of(values)
        if days is None:
            raise BadInput(
                f'"{column.name}" of "{batch.path.name}" has values that are no dates, as the model needs '
                "there; write them as in 2026-01-31 or 2026-01-31T18:30:00, or leave them empty."
            )
        return days
    if column.kind in (NUMERIC, DATE):
        numbers = as_numbers(values, batch, column.name)
        if numbers is None:
            raise _not_numeric(values, batch, column.name)
        return numbers
    codes: Mapping[str, int] = {word: number for number, word in enumerate(column.categories)}
    words, places = distinct(values)
    table = np.array([*(codes.get(word, np.nan) for word in words), np.nan])
    return table[places]


def as_numbers(values: Any, batch: Batch, name: str) -> NDArray[np.float64] | None:
    """A column as numbers, or None if it holds text; an infinite number is refused."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if is_text(kind):
        if not batch.untyped and values.null_count < len(values):
            return None
        found = _parsed(values)
        if found is None:
            return None
        values = found
    elif not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    ):
        raise BadInput(
            f'The column "{name}" of "{batch.path.name}" holds {kind}, which is neither number nor text; '
            'write it as a number, or leave it out with "features".'
        )
    wide = as_doubles(values)
    too_large = np.abs(wide) > LARGEST
    if too_large.any():
        place = int(np.flatnonzero(too_large)[0])
        raise BadInput(
            f"{batch.where(place, name)}: {wide[place]} is beyond what a model can compute with; correct it, "
            "or leave it empty if the value is missing."
        )
    return wide


def as_doubles(values: Any) -> NDArray[np.float64]:
    """A column of numbers or truth values, NaN where one is missing."""
    import pyarrow as pa

    plain = values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values
    found: NDArray[np.float64] = plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found


def distinct(values: Any) -> tuple[list[str], NDArray[np.int64]]:
    """The different texts of a column, and for each row the place of its text among them, -1 if missing."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not is_text(values.type):
        plain = [None if v is None or v != v else category_text(v) for v in values.to_pylist()]  # noqa: PLR0124
        values = pa.array(plain, pa.string())
    encoded = trimmed_text(values).dictionary_encode()
    places = compute.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), places


def trimmed_text(values: Any) -> Any:
    """Text without blanks around it, and missing where it says so."""
    import pyarrow as pa
    from pyarrow import compute

    trimmed = compute.utf8_trim_whitespace(values)
    missing = compute.is_in(trimmed, value_set=pa.array(MISSING, trimmed.type))
    return compute.if_else(missing, pa.scalar(None, trimmed.type), trimmed)


def is_temporal(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _parsed(values: Any) -> Any:
    """Text as float64, or None where it is not numbers; blanks are only cut off where they are in the way."""
    import pyarrow as pa

    try:
        return values.cast(pa.float64())
    except pa.ArrowInvalid:
        try:
            return trimmed_text(values).cast(pa.float64())
        except pa.ArrowInvalid:
            return None


def _not_numeric(values: Any, batch: Batch, name: str) -> BadInput:
    words = values.to_pylist()
    place = next((p for p, w in enumerate(words) if w is not None and not is_number(str(w).strip())), 0)
    return BadInput(
        f'{batch.where(place, name)}: "{words[place]}" is not a number, but the model was trained on numbers '
        "there; correct it, or leave it empty if the value is missing."
    )
