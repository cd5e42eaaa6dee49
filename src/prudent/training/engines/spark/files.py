"""Files as Spark frames: columns as they are written, nothing decided yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.data.csv_files import layout_of
from prudent.training.data.formats import AVRO, CSV, JSON, LIBSVM, PARQUET
from prudent.training.data.libsvm_files import libsvm_blocks
from prudent.training.data.reading import table_batches
from prudent.training.engines.spark.context import first_line


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
