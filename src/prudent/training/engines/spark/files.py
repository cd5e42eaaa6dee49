"""Files as Spark frames: columns as they are written, nothing decided yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.algorithms.algorithm import REGRESSION
from prudent.training.data.csv_files import MISSING, CsvLayout, layout_of
from prudent.training.data.dataset import EXACT_TO
from prudent.training.data.formats import AVRO, CSV, JSON, LIBSVM, PARQUET
from prudent.training.data.libsvm_files import libsvm_blocks
from prudent.training.data.reading import table_batches
from prudent.training.engines.spark.dataset import MAIN
from prudent.training.engines.spark.dates import as_days, is_dated, is_zoned
from prudent.training.engines.spark.spark_session import first_line


@dataclass(frozen=True)
class RawFrame:
    """A frame with the names of its columns; in an `untyped` one (CSV) everything is text.

    Columns of `dates` were dates or times by their type, and are days since 1970 now.
    """

    frame: Any
    names: tuple[str, ...]
    untyped: bool
    dates: frozenset[str] = frozenset()

    def with_days(self, names: Sequence[str]) -> RawFrame:
        """The same with days in place of typed dates in some of the columns."""
        kinds = {name: self.frame.schema[name].dataType for name in names}
        dated = {name: kind for name, kind in kinds.items() if is_dated(kind)}
        days = {name: as_days(column_of(name), kind) for name, kind in dated.items()}
        return replace(self, frame=self.frame.withColumns(days), dates=frozenset(dated)) if dated else self


Sources = Sequence[Sequence[Path]]
"""Files by where their rows come from: the data (MAIN), a file for validation, one for the test."""
ORIGIN = "prudent's origin"
"""The column of a raw frame that says which of the sources a row is from."""


def read_libsvm(spark: Any, sources: Sources) -> Any:
    """A frame of `label`, `features` (sparse vectors, all as wide as the widest) and ORIGIN."""
    reader = spark.read.format("libsvm")
    frames = [reader.load(_paths(parts)) for parts in sources if parts]
    if len(frames) > 1:
        first = [frame.select("features").first() for frame in frames]
        widest = max(row["features"].size for row in first if row is not None)
        reader = reader.option("numFeatures", widest)
    return _united([reader.load(_paths(parts)) if parts else None for parts in sources])


def read_columns(
    spark: Any, sources: Sources, kind: str, known: Sequence[str], work: Path, lines: bool = False
) -> RawFrame:
    """A frame of named columns; `lines`: CSV values may hold line breaks, which is slower to read."""
    if kind == CSV:
        return read_csv(spark, sources, known, lines)

    def read(parts: Sequence[Path], place: int) -> Any:
        if not parts:
            return None
        if kind == PARQUET:
            return spark.read.parquet(*_paths(parts))
        if kind == JSON:
            return spark.read.option("mode", "FAILFAST").json(_paths(parts))
        return spark.read.parquet(_as_parquet(parts, work / f"avro-as-parquet-{place}"))

    frames = [read(parts, place) for place, parts in enumerate(sources)]
    return RawFrame(_united(frames), tuple(frames[MAIN].columns), False)


def read_csv(
    spark: Any, sources: Sources, known: Sequence[str], lines: bool, numeric: Collection[str] = ()
) -> RawFrame:
    """CSV as text, but for columns that are known to be `numeric`."""
    layout = layout_of(sources[MAIN][0], known)

    def read(parts: Sequence[Path]) -> Any:
        own = [(part, layout_of(part, known, layout)) for part in parts]
        for part, found in own:
            if found.header != layout.header:
                raise BadInput(
                    f'"{sources[MAIN][0].name}" and "{part.name}" differ in their first line; give every '
                    "part the same header, or none."
                )
        # Columns may stand in another order in another part.
        alike = [(found, [part for part, _ in some]) for found, some in groupby(own, key=itemgetter(1))]
        frames = [_csv_frame(spark, some, found, lines, numeric) for found, some in alike]
        return reduce(lambda one, other: one.unionByName(other), frames)

    return RawFrame(_united([read(parts) if parts else None for parts in sources]), layout.names, True)


def _csv_frame(
    spark: Any, parts: Sequence[Path], layout: CsvLayout, lines: bool, numeric: Collection[str]
) -> Any:
    from pyspark.sql.types import DoubleType, StringType, StructField, StructType

    kinds = [DoubleType() if name in numeric else StringType() for name in layout.names]
    schema = StructType([StructField(*field) for field in zip(layout.names, kinds, strict=True)])
    options = {
        "sep": layout.separator,
        "header": layout.header,
        "mode": "FAILFAST",
        "quote": '"',
        "escape": '"',
        "enforceSchema": True,
        "multiLine": lines,
        "ignoreLeadingWhiteSpace": True,
        "ignoreTrailingWhiteSpace": True,
        # Else a row with too many values goes unnoticed when the last column is not asked for.
        "columnPruning": False,
    }
    return spark.read.options(**options).schema(schema).csv(_paths(parts))


def _united(frames: Sequence[Any]) -> Any:
    """The frames of sources (None where there is none) one after the other, with ORIGIN."""
    from pyspark.sql import functions as sf

    marked = [
        frame.withColumn(ORIGIN, sf.lit(place)) for place, frame in enumerate(frames) if frame is not None
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), marked)


def _as_parquet(parts: Sequence[Path], folder: Path) -> str:
    """Avro as Parquet, a batch at a time: Spark reads Avro only with a jar that pip does not bring."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    for number, batch in enumerate(table_batches(parts, AVRO)):
        table = pa.table(dict(batch.columns))
        parquet.write_table(table, folder / f"part-{number:05}.parquet")
    return str(folder)


def explain(parts: Sequence[Path], kind: str, known: Sequence[str], error: BaseException) -> BadInput | None:
    """Why files cannot be read, with row and column, as the reader of the local engine sees it.

    None if that one finds nothing wrong with them.
    """
    try:
        for path in parts if kind == LIBSVM else ():
            for _ in libsvm_blocks(path):
                pass
        for _ in () if kind == LIBSVM else table_batches(parts, kind, known):
            pass
    except BadInput as found:
        return found
    if kind == CSV:
        return None
    return BadInput(
        f'Spark cannot read "{parts[0].name}" ({first_line(error)}); check the file and its format.'
    )


def _paths(parts: Sequence[Path]) -> list[str]:
    # Not resolved: a link may be the one name that a file has here and on the machines of a cluster.
    return [part.absolute().as_uri() for part in parts]


@dataclass(frozen=True)
class DataProfile:
    """By feature: how many values there are, how many of them are numbers, how many are infinite.

    `dates` counts the values that are dates, `zoned` those of them that name a zone, `long` the numbers above
    2^24 that lose digits in single precision, `inexact` the numbers and dates of any size that do. `spelled`
    says that some missing value is written out (as "NA", say) and not just left empty.
    `bad_targets` counts rows whose target is missing or of the wrong kind.
    """

    rows: int
    present: Mapping[str, int]
    numbers: Mapping[str, int]
    infinite: Mapping[str, int]
    dates: Mapping[str, int]
    zoned: Mapping[str, int]
    long: Mapping[str, int]
    inexact: Mapping[str, int]
    spelled: Mapping[str, bool]
    bad_targets: int

    def is_numeric(self, name: str) -> bool:
        return self.numbers[name] == self.present[name]

    def is_date(self, name: str) -> bool:
        """Whether all values are dates, all of which name a zone, or none."""
        whole = self.dates[name] == self.present[name] > 0
        return whole and self.zoned[name] in (0, self.dates[name])


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
        {name: found[name].dates for name in names},
        {name: found[name].zoned for name in names},
        {name: found[name].long for name in names},
        {name: found[name].inexact for name in names},
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


def _is_inexact(column: Any) -> Any:
    """Whether single precision would change a number."""
    return column.cast("float").cast("double") != column.cast("double")


@dataclass(frozen=True)
class _Count:
    rows: int = 0
    present: int = 0
    numbers: int = 0
    spelled: int = 0
    infinite: int = 0
    dates: int = 0
    zoned: int = 0
    long: int = 0
    inexact: int = 0


def _counted(raw: RawFrame, names: Sequence[str], text: bool, numbers: bool) -> dict[str, _Count]:
    """Counts of some columns, all text or all numbers.

    Columns become rows first: one small expression for all instead of one for each, which Java could not
    compile for a wide table.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    kind = "string" if text else "double"
    values = sf.array(*(column_of(name).cast(kind) for name in names))
    said = raw.frame.select(sf.posexplode(values).alias("p", "said"))
    parsed = as_number(sf.col("said"), text) if numbers else sf.lit(None).cast("double")
    # Most values are numbers: only the others are looked at as words.
    word = sf.when(sf.col("parsed").isNull(), cleaned(sf.col("said"), text))
    number = sf.col("number")
    days = as_days(sf.col("word"), st.StringType()) if text else sf.lit(None).cast("double")
    found = (
        said.select("p", "said", parsed.alias("parsed"))
        .select("p", "said", cleaned(sf.col("parsed"), False).alias("number"), word.alias("word"))
        .groupBy("p")
        .agg(
            sf.count(sf.lit(1)),
            sf.count("said"),
            sf.count("word"),
            sf.count("number"),
            sf.count_if(sf.abs(number.cast("float")) == sf.lit(float("inf"))),
            sf.count(days),
            sf.count_if(days.isNotNull() & is_zoned(sf.col("word"))),
            sf.count_if((sf.abs(number) > sf.lit(EXACT_TO)) & _is_inexact(number)),
            sf.count_if(_is_inexact(sf.coalesce(number, days))),
        )
        .collect()
    )
    counts = {
        place: _Count(rows, words + known, known, written - words - known, *others)
        for place, rows, written, words, known, *others in found
    }
    return {name: counts.get(place, _Count()) for place, name in enumerate(names)}
