"""Dates as they are written, as days since 1970-01-01: what `data.dates` does, as expressions of Spark."""

from __future__ import annotations

from typing import Any

_US_A_DAY = 86_400_000_000
_ISO_8601 = (
    r"^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2})(?::(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?)?"
    r"(Z|[+-]\d{2}(?::?\d{2})?)?)?$"
)
_DATE, _HOUR, _MINUTE, _SECOND, _FRACTION, _ZONE = range(1, 7)


def is_dated(kind: Any) -> bool:
    """Whether a type is one of dates or times."""
    from pyspark.sql import types as st

    return isinstance(kind, (st.DateType, st.TimestampType, st.TimestampNTZType))


def as_days(column: Any, kind: Any) -> Any:
    """A column of dates, timestamps or ISO 8601 text as days, null where a value is none."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    if isinstance(kind, st.StringType):
        us = _parsed_us(column)
    elif isinstance(kind, st.DateType):
        us = sf.unix_date(column) * sf.lit(_US_A_DAY)
    elif isinstance(kind, st.TimestampType):
        us = sf.unix_micros(column)
    else:
        begin = sf.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        us = sf.timestamp_diff("MICROSECOND", begin, column)
    return us.cast("double") / float(_US_A_DAY)


def is_zoned(text: Any) -> Any:
    """Whether a text that is a date says in which zone."""
    from pyspark.sql import functions as sf

    return sf.regexp_extract(text, _ISO_8601, _ZONE) != ""


def _parsed_us(text: Any) -> Any:
    """Microseconds since 1970, in UTC where a zone is said; null where the text is no date."""
    from pyspark.sql import functions as sf

    def part(number: int) -> Any:
        return sf.regexp_extract(text, _ISO_8601, number)

    def count(said: Any) -> Any:
        return sf.coalesce(said.try_cast("bigint"), sf.lit(0))

    hour, minute, second = count(part(_HOUR)), count(part(_MINUTE)), count(part(_SECOND))
    fraction = count(sf.rpad(part(_FRACTION), 6, "0"))
    zone = sf.replace(part(_ZONE), sf.lit(":"), sf.lit(""))
    zone_hours, zone_minutes = count(sf.substring(zone, 2, 2)), count(sf.substring(zone, 4, 2))
    away = zone_hours * 60 + zone_minutes
    minutes = hour * 60 + minute + sf.when(zone.startswith("-"), away).otherwise(-away)
    seconds = sf.unix_date(part(_DATE).try_cast("date")).cast("bigint") * 86_400 + minutes * 60 + second
    # Most texts are no dates: their beginning says so.
    is_time = (
        text.rlike(r"^\d{4}-\d{2}-\d{2}")
        & (hour < 24)
        & (minute < 60)
        & (second < 60)
        & (zone_hours < 24)
        & (zone_minutes < 60)
    )
    return sf.when(is_time, seconds * 1_000_000 + fraction)
