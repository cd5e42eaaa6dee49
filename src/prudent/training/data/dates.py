"""Dates as they are written, as days since 1970-01-01 with a fraction; UTC where a zone is said."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

_US_A_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)


def days_of(values: Any) -> NDArray[np.float64] | None:
    """An Arrow column of dates, timestamps or ISO 8601 text as days; None where it is something else."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        values = _parsed(values)
        if values is None:
            return None
    elif not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return None
    stamps = values.cast(pa.timestamp("us"), safe=False) if pa.types.is_date(values.type) else values
    if stamps.type.unit != "us":
        stamps = stamps.cast(pa.timestamp("us", stamps.type.tz), safe=False)
    counted: NDArray[np.float64] = (
        stamps.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    )
    return counted / _US_A_DAY


def _parsed(values: Any) -> Any:
    """Text as timestamps, or None if some of it is no date, or if only some of them name a zone."""
    import pyarrow as pa

    from prudent.training.data.encoding import trimmed_text

    trimmed = trimmed_text(values)
    if trimmed.null_count == len(trimmed):
        return None
    for zone in (None, "UTC"):
        try:
            return trimmed.cast(pa.timestamp("us", zone))
        except pa.ArrowInvalid:
            continue
    return None


def day_of(value: Any) -> float:
    """One date as days: text in ISO 8601, a date or timestamp of Python or numpy, or days already.

    >>> day_of("1970-01-02T12:00:00"), day_of("1970-01-02T12:00:00+02:00"), day_of(date(1970, 1, 31))
    (1.5, 1.4166666666666667, 30.0)
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime):
        plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        away = plain - _EPOCH
        return ((away.days * 86_400 + away.seconds) * 1_000_000 + away.microseconds) / _US_A_DAY
    if isinstance(value, date):
        return float(value.toordinal() - _EPOCH.toordinal())
    return float(value)
