"""The column by which rows belong together or follow each other, inside Spark."""

from __future__ import annotations

from typing import Any

from prudent.core.errors import BadInput
from prudent.training.data.formats import LIBSVM
from prudent.training.data.links import link_values
from prudent.training.engines.spark.dataset import MAIN
from prudent.training.engines.spark.dates import as_days, is_zoned
from prudent.training.engines.spark.files import ORIGIN, RawFrame, Sources, as_number, cleaned, column_of


def link_column(raw: RawFrame, sources: Sources, kind: str, groups: str | None, time: str | None) -> Any:
    """The group of each row as text, or its time as a number; None where rows are not linked.

    What cannot link rows is refused with the place where it stands.
    """
    name = groups or time
    if name is None:
        return None
    if name not in raw.names:
        link_values(sources[MAIN], kind, name, groups is None)
        raise BadInput(f'There is no column "{name}"; name one of the data.')
    found = _group(raw, name) if time is None else _time(raw, name)
    if found is None or not _is_whole(raw, found):
        link_values(sources[MAIN], kind, name, groups is None)
        raise BadInput(f'Some rows have no "{name}" that Spark can read; correct them, or leave them out.')
    return found


def refuse_links_of_libsvm(sources: Sources, kind: str, name: str | None) -> None:
    """Its columns have no names."""
    if name is not None and kind == LIBSVM:
        link_values(sources[MAIN], kind, name, False)


def _group(raw: RawFrame, name: str) -> Any:
    column = column_of(name)
    return cleaned(column, True) if raw.untyped else column.cast("string")


def _time(raw: RawFrame, name: str) -> Any:
    """Dates, if all values are dates, else numbers."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    column, type_of = column_of(name), raw.frame.schema[name].dataType
    text = isinstance(type_of, st.StringType)
    said = cleaned(column, True) if text else column
    if text:
        days = as_days(said, type_of)
        counts = _of_data(raw).agg(sf.count(said), sf.count(days), sf.count_if(is_zoned(said)))
        present, dates, zoned = counts.first()
        if present == dates and zoned in (0, dates):
            return days
    if not isinstance(type_of, (st.StringType, st.NumericType)):
        return None
    return cleaned(as_number(said, text), False)


def _is_whole(raw: RawFrame, link: Any) -> bool:
    return bool(_of_data(raw).where(link.isNull()).isEmpty())


def _of_data(raw: RawFrame) -> Any:
    """The rows that are split; those of files beside them are apart already."""
    return raw.frame.where(column_of(ORIGIN) == MAIN)
