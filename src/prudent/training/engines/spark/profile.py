"""What the columns of a frame hold, learnt in one pass over all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prudent.training.data.csv_files import MISSING
from prudent.training.data.target import REGRESSION
from prudent.training.engines.spark.files import RawFrame


@dataclass(frozen=True)
class DataProfile:
    """By feature: how many values there are, how many of them are numbers, how many are infinite.

    `spelled` says that some missing value is written out (as "NA", say) and not just left empty.
    `bad_targets` counts rows whose target is missing or of the wrong kind.
    """

    rows: int
    present: Mapping[str, int]
    numbers: Mapping[str, int]
    infinite: Mapping[str, int]
    spelled: Mapping[str, bool]
    bad_targets: int

    def is_numeric(self, name: str) -> bool:
        return self.numbers[name] == self.present[name]


def profile_of(raw: RawFrame, names: Sequence[str], label: str | None, domain: str) -> DataProfile:
    """Look at every value of the features and of the target `label`, if there is one."""
    from pyspark.sql import types as st

    asked = [*names, *([label] if label is not None else [])]
    kinds = {name: raw.frame.schema[name].dataType for name in asked}
    words = [name for name in asked if isinstance(kinds[name], st.StringType)]
    found: dict[str, _Count] = {}
    if words:
        found |= _counted(raw, words, text=True, numbers=raw.untyped)
    if len(words) < len(asked):
        found |= _counted(raw, [name for name in asked if name not in words], text=False, numbers=True)
    rows = max((count.rows for count in found.values()), default=0)
    bad = 0
    if label is not None:
        target = found[label]
        bad = rows - target.present
        if domain == REGRESSION:
            bad = rows - target.numbers + target.infinite
    return DataProfile(
        rows,
        {name: found[name].present for name in names},
        {name: found[name].numbers for name in names},
        {name: found[name].infinite for name in names},
        {name: found[name].spelled > 0 for name in names},
        bad,
    )


def column_of(name: str) -> Any:
    """A column by its name, whatever letters it has."""
    from pyspark.sql import functions as sf

    return sf.col(f"`{name.replace('`', '``')}`")


def cleaned(column: Any, text: bool) -> Any:
    """A column with null where the value is missing, and text without blanks around it."""
    from pyspark.sql import functions as sf

    if not text:
        return sf.when(sf.isnan(column), None).otherwise(column)
    word = sf.trim(column)
    return sf.when(word.isin(*MISSING), None).otherwise(word)


def as_number(column: Any, text: bool) -> Any:
    """A column as numbers; null where text is none."""
    return column.try_cast("double") if text else column.cast("double")


@dataclass(frozen=True)
class _Count:
    rows: int = 0
    present: int = 0
    numbers: int = 0
    infinite: int = 0
    spelled: int = 0


def _counted(raw: RawFrame, names: Sequence[str], text: bool, numbers: bool) -> dict[str, _Count]:
    """Counts of some columns, all text or all numbers.

    Columns become rows first: one small expression for all instead of one for each, which Java could not
    compile for a wide table.
    """
    from pyspark.sql import functions as sf

    kind = "string" if text else "double"
    values = sf.array(*(column_of(name).cast(kind) for name in names))
    said = raw.frame.select(sf.posexplode(values).alias("p", "said"))
    parsed = as_number(sf.col("said"), text) if numbers else sf.lit(None).cast("double")
    # Most values are numbers: only the others are looked at as words.
    word = sf.when(sf.col("parsed").isNull(), cleaned(sf.col("said"), text))
    found = (
        said.select("p", "said", parsed.alias("parsed"))
        .select("p", "said", cleaned(sf.col("parsed"), False).alias("number"), word.alias("word"))
        .groupBy("p")
        .agg(
            sf.count(sf.lit(1)),
            sf.count("said"),
            sf.count("word"),
            sf.count("number"),
            sf.count_if(sf.abs(sf.col("number").cast("float")) == sf.lit(float("inf"))),
        )
        .collect()
    )
    counts = {
        place: _Count(rows, words + known, known, infinite, written - words - known)
        for place, rows, written, words, known, infinite in found
    }
    return {name: counts.get(place, _Count()) for place, name in enumerate(names)}
