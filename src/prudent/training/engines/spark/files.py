"""Files as Spark frames: columns as they are written, nothing decided yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.algorithms.algorithm import REGRESSION
from prudent.training.data.csv_files import MISSING, layout_of
from prudent.training.data.formats import AVRO, CSV, JSON, LIBSVM, PARQUET
from prudent.training.data.libsvm_files import libsvm_blocks
from prudent.training.data.reading import table_batches
from prudent.training.engines.spark.spark_session import first_line


@dataclass(frozen=True)
class RawFrame:
    """A frame with the names of its columns; in an `untyped` one (CSV) everything is text."""

    frame: Any
    names: tuple[str, ...]
    untyped: bool


def read_libsvm(spark: Any, parts: Sequence[Path]) -> Any:
    """A frame of `label` and `features` (sparse vectors)."""
    return spark.read.format("libsvm").load(_paths(parts))


def read_columns(
    spark: Any, parts: Sequence[Path], kind: str, known: Sequence[str], work: Path, lines: bool = False
) -> RawFrame:
    """A frame of named columns; `lines`: CSV values may hold line breaks, which is slower to read."""
    reader = spark.read
    if kind == CSV:
        return read_csv(reader, parts, known, lines)
    if kind == PARQUET:
        frame = reader.parquet(*_paths(parts))
    elif kind == JSON:
        frame = reader.option("mode", "FAILFAST").json(_paths(parts))
    else:
        frame = reader.parquet(_as_parquet(parts, work))
    return RawFrame(frame, tuple(frame.columns), False)


def read_csv(
    reader: Any, parts: Sequence[Path], known: Sequence[str], lines: bool, numeric: Collection[str] = ()
) -> RawFrame:
    """CSV as text, but for columns that are known to be `numeric`."""
    from pyspark.sql.types import DoubleType, StringType, StructField, StructType

    layout = layout_of(parts[0], known)
    for part in parts[1:]:
        if layout_of(part, known, layout).header != layout.header:
            raise BadInput(
                f'"{parts[0].name}" and "{part.name}" differ in their first line; give every part the same '
                "header, or none."
            )
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
    frame = reader.options(**options).schema(schema).csv(_paths(parts))
    return RawFrame(frame, layout.names, True)


def _as_parquet(parts: Sequence[Path], work: Path) -> str:
    """Avro as Parquet, a batch at a time: Spark reads Avro only with a jar that pip does not bring."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = work / "avro-as-parquet"
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
