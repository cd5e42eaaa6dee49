"""Data into Spark: what the columns are is learnt in one pass, then they are cached as numbers.

What counts as a number, a category or missing is as in `prudent.training.data`; that reader also says where
the mistake is when Spark stumbles over one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput, unknown
from prudent.training.algorithms.algorithm import CLUSTERING
from prudent.training.data.dataset import CATEGORICAL, DATE, NUMERIC, Column
from prudent.training.data.encoding import MOST_CATEGORIES, is_slip, slip
from prudent.training.data.formats import CSV, LIBSVM, check_columns, format_of
from prudent.training.data.reading import feature_names, table_batches
from prudent.training.data.sources import local_parts
from prudent.training.data.target import raw_target, target_name
from prudent.training.engines.spark.dataset import (
    FEATURES,
    JUDGING,
    LABEL,
    LINK,
    MAIN,
    ROW,
    TESTING,
    SparkDataset,
    column_names,
    origin_of,
    row_numbers,
)
from prudent.training.engines.spark.dates import as_days
from prudent.training.engines.spark.files import (
    ORIGIN,
    DataProfile,
    RawFrame,
    Sources,
    as_number,
    cleaned,
    column_of,
    explain,
    profile_of,
    read_columns,
    read_csv,
    read_libsvm,
)
from prudent.training.engines.spark.links import link_column, refuse_links_of_libsvm
from prudent.training.engines.spark.target import label_of

_MOST_DENSE = 4096
"""Columns up to which libsvm rows are kept dense, rounded to float32 like all others."""


@dataclass(frozen=True)
class DatasetQuery:
    """What is asked of the data: where they are, what is to be predicted, from which columns."""

    path: str
    format: str | None
    target: str | None
    features: tuple[str, ...] | None
    domain: str
    as_columns: bool = False
    """Whether features are to stay apart although nothing is missing (a transformation wants them so)."""
    groups: str | None = None
    """The column of the groups that are to stay whole; it is no feature."""
    time: str | None = None
    """The column of the times by which rows are split."""
    also: tuple[str | None, str | None] = (None, None)
    """Where rows for validation and for the test are, if they have files of their own."""

    @property
    def known(self) -> list[str]:
        return [*([self.target] if self.target else []), *(self.features or ())]

    @property
    def places(self) -> tuple[str | None, ...]:
        """Where the data are, then the files beside them."""
        return self.path, *self.also

    def sources(self, cache: Path) -> list[list[Path]]:
        """The files of all places; what is far away is copied into the cache."""
        return [[] if place is None else local_parts(place, cache) for place in self.places]


def read_dataset_into_spark(
    spark: Any, query: DatasetQuery, work: Path, sources: Sources | None = None
) -> SparkDataset:
    """The data that a question names, cached in Spark; `sources` are its files if they were fetched."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    sources = query.sources(work / "data") if sources is None else sources
    kind = format_of(list(sources[MAIN]), query.format)
    read = _of_libsvm if kind == LIBSVM else _of_columns
    try:
        dataset = read(spark, sources, kind, query, work, False)
    except (PySparkException, Py4JError) as error:
        why = explain(_every(sources), kind, query.known, error)
        if why is not None:
            raise why from error
        # Nothing is wrong but a line break inside quotes: read again, file by file instead of in splits.
        dataset = read(spark, sources, kind, query, work, True)
    if not dataset.columns:
        raise BadInput(f'"{query.path}" has no feature with a value; give data with more columns.')
    return dataset


def _every(sources: Sources) -> list[Path]:
    return [part for parts in sources for part in parts]


# Tables


def _of_columns(
    spark: Any, sources: Sources, kind: str, query: DatasetQuery, work: Path, lines: bool
) -> SparkDataset:
    from pyspark.sql import functions as sf

    raw = read_columns(spark, sources, kind, query.known, work, lines)
    check_columns(len(raw.names), sources[MAIN][0].name)
    target = target_name(raw.names, query.target, query.domain)
    names = [n for n in feature_names(raw.names, query.features, target) if n != query.groups]
    label = target if query.domain != CLUSTERING else None
    values = {name: f"v{place}" for place, name in enumerate(names)}
    raw = raw.with_days([name for name in raw.names if name != label])
    _check_kinds(raw, [*names, *([label] if label is not None else [])])
    profile = profile_of(raw, names, label, query.domain)
    if profile.rows == 0:
        raise BadInput(f'"{query.path}" has no rows; give data with at least one row.')
    _check_usable(profile, _every(sources), kind, query, target)
    link = link_column(raw, sources, kind, query.groups, query.time)
    kept = [name for name in names if profile.present[name] > 0]
    if raw.untyped:
        # Read again with the types that were found: Spark then parses numbers as it reads.
        typed = [name for name in kept if profile.is_numeric(name) and not profile.spelled[name]]
        apart = {label, query.groups, query.time}
        raw = read_csv(spark, sources, query.known, lines, [name for name in typed if name not in apart])
    frame = _selected_columns(raw, values, label, link)
    columns = _columns(frame, kept, values, profile, raw.dates)
    missing = tuple(profile.present[name] < profile.rows for name in kept)
    wide = any(_is_wide(profile, column) for column in columns)
    frame = _encoded(frame, columns, values, missing, wide)
    number, classes = (
        label_of(frame, "t", raw.untyped, query.domain, label) if label is not None else (None, ())
    )
    is_vector = not (query.as_columns or any(missing) or wide or any(c.kind != NUMERIC for c in columns))
    chosen = [sf.col(place) for place in column_names(len(columns))]
    if is_vector:
        chosen = [_as_vector(chosen).alias(FEATURES)]
    labelled = [number.alias(LABEL)] if number is not None else []
    linked = [sf.col(LINK)] if link is not None else []
    final = frame.select(row_numbers(sf.col("origin")).alias(ROW), *labelled, *linked, *chosen)
    return _cache(final, columns, classes, label, is_vector, missing, wide)


def _selected_columns(raw: RawFrame, values: Mapping[str, str], label: str | None, link: Any) -> Any:
    """The columns that are used, cleaned, under names of ours; the target is `t`."""
    wanted = [_cleaned(raw, name).alias(value) for name, value in values.items()]
    wanted += [_cleaned(raw, label).alias("t")] if label is not None else []
    wanted += [link.alias(LINK)] if link is not None else []
    return raw.frame.select(*wanted, column_of(ORIGIN).alias("origin"))


def _cleaned(raw: RawFrame, name: str) -> Any:
    from pyspark.sql import types as st

    column, kind = column_of(name), raw.frame.schema[name].dataType
    if isinstance(kind, st.BooleanType):
        return column
    text = isinstance(kind, st.StringType)
    return cleaned(column if text else column.cast("double"), text)


def _check_kinds(raw: RawFrame, names: Sequence[str]) -> None:
    from pyspark.sql import types as st

    for name in names:
        kind = raw.frame.schema[name].dataType
        if not isinstance(kind, (st.StringType, st.BooleanType, st.NumericType, st.NullType)):
            raise BadInput(
                f'The column "{name}" holds {kind.simpleString()}, which is neither number nor text; write '
                'it as a number, or leave it out with "features".'
            )


def _check_usable(
    profile: DataProfile, parts: Sequence[Path], kind: str, query: DatasetQuery, target: str | None
) -> None:
    """An error that names the place, for what no model can be trained on."""
    if profile.bad_targets and target is not None:
        for batch in table_batches(parts, kind, query.known):
            raw_target(target, batch, query.domain)
        raise BadInput(f'The target "{target}" has rows without a value; fill them in, or leave them out.')
    for name, count in profile.infinite.items():
        if count and profile.is_numeric(name):
            raise BadInput(
                f'The column "{name}" has values beyond what a model can compute with; correct them, '
                "or leave them empty if they are missing."
            )
        odd = profile.present[name] - profile.numbers[name]
        if kind == CSV and is_slip(odd, profile.numbers[name], profile.present[name]):
            raise _mistyped_number(parts, kind, query, name)


def _mistyped_number(parts: Sequence[Path], kind: str, query: DatasetQuery, name: str) -> BadInput:
    """A column of numbers with a word here and there is a slip, not a thousand categories."""
    from prudent.training.data.csv_files import is_number

    for batch in table_batches(parts, kind, query.known, [name]):
        for place, word in enumerate(batch.columns[name].to_pylist()):
            if word is not None and not is_number(word.strip()):
                return slip(batch.where(place, name), word)
    return BadInput(f'The column "{name}" has a few values that are not numbers; correct them.')


def _columns(
    frame: Any,
    kept: Sequence[str],
    values: Mapping[str, str],
    profile: DataProfile,
    dates: Collection[str],
) -> tuple[Column, ...]:
    def kind(name: str) -> str:
        if name in dates or profile.is_date(name):
            return DATE
        return NUMERIC if profile.is_numeric(name) else CATEGORICAL

    kinds = {name: kind(name) for name in kept}
    words = [values[name] for name in kept if kinds[name] == CATEGORICAL]
    found = _categories(frame, words) if words else {}
    return tuple(Column(name, kinds[name], found.get(values[name], ())) for name in kept)


def _is_wide(profile: DataProfile, column: Column) -> bool:
    """Whether large numbers of a column, or times of its dates, lose digits in single precision."""
    lost = {NUMERIC: profile.long, DATE: profile.inexact}.get(column.kind, {})
    return lost.get(column.name, 0) > 0


def _categories(frame: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The most frequent words of each column, in the order of the alphabet."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    pairs = sf.explode(
        sf.array(*(sf.struct(sf.lit(name).alias("name"), sf.col(name).alias("word")) for name in names))
    )
    counts = frame.select(pairs.alias("pair")).select("pair.*").where("word IS NOT NULL")
    order = Window.partitionBy("name").orderBy(sf.desc("count"), "word")
    often = (
        counts.groupBy("name", "word")
        .count()
        .withColumn("place", sf.row_number().over(order))
        .where(sf.col("place") <= MOST_CATEGORIES)
        .collect()
    )
    return {name: tuple(sorted(row["word"] for row in often if row["name"] == name)) for name in names}


def _encoded(
    frame: Any, columns: Sequence[Column], values: Mapping[str, str], missing: Sequence[bool], wide: bool
) -> Any:
    """The frame with a column of numbers for each feature, NaN where a value is missing."""
    from pyspark.ml.feature import StringIndexerModel
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    places = {column.name: place for place, column in enumerate(columns)}
    words = [column for column in columns if column.kind == CATEGORICAL]
    if words:
        indexer = StringIndexerModel.from_arrays_of_labels(
            [list(column.categories) for column in words],
            inputCols=[values[column.name] for column in words],
            outputCols=[f"k{places[column.name]}" for column in words],
            handleInvalid="keep",
        )
        frame = indexer.transform(frame)
    nan = sf.lit(float("nan"))
    numbers = {}
    for column in columns:
        place = places[column.name]
        if column.kind == CATEGORICAL:
            code = sf.col(f"k{place}")
            number = sf.when(code < len(column.categories), code).otherwise(nan)
        else:
            value = values[column.name]
            text = isinstance(frame.schema[value].dataType, st.StringType)
            is_written = text and column.kind == DATE
            number = as_days(sf.col(value), st.StringType()) if is_written else as_number(sf.col(value), text)
            number = sf.coalesce(number, nan) if missing[place] else number
        numbers[f"c{place}"] = number.cast("double" if wide else "float")
    return frame.withColumns(numbers)


def _as_vector(columns: Sequence[Any]) -> Any:
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as sf

    return array_to_vector(sf.array(*columns).cast("array<double>"))


# libsvm


def _of_libsvm(
    spark: Any, sources: Sources, kind: str, query: DatasetQuery, work: Path, lines: bool
) -> SparkDataset:
    from pyspark.ml.feature import VectorSlicer
    from pyspark.ml.functions import array_to_vector, vector_to_array
    from pyspark.sql import functions as sf

    del work, lines
    if query.target not in (None, LABEL):
        raise unknown("target", query.target, [LABEL])
    refuse_links_of_libsvm(sources, kind, query.groups or query.time)
    frame = read_libsvm(spark, sources)
    first = frame.select(FEATURES).first()
    if first is None:
        raise BadInput(f'"{query.path}" has no rows; give data with at least one row.')
    check_columns(first[FEATURES].size, sources[MAIN][0].name)
    names = [f"f{number}" for number in range(1, first[FEATURES].size + 1)]
    wanted = feature_names(names, query.features, None)
    if wanted != names:
        slicer = VectorSlicer(
            inputCol=FEATURES, outputCol="s", indices=[names.index(name) for name in wanted]
        )
        frame = slicer.transform(frame).select(LABEL, sf.col("s").alias(FEATURES), column_of(ORIGIN))
    features = sf.col(FEATURES)
    if len(wanted) <= _MOST_DENSE:
        features = array_to_vector(vector_to_array(features, "float32").cast("array<double>"))
    label, classes = (
        label_of(frame, LABEL, False, query.domain, LABEL) if query.domain != CLUSTERING else (None, ())
    )
    final = frame.select(
        row_numbers(column_of(ORIGIN)).alias(ROW),
        *([label.alias(LABEL)] if label is not None else []),
        features.alias(FEATURES),
    )
    columns = tuple(Column(name) for name in wanted)
    named = LABEL if label is not None else None
    return _cache(final, columns, classes, named, True, (False,) * len(columns))


def _cache(
    frame: Any,
    columns: tuple[Column, ...],
    classes: tuple[Any, ...],
    target: str | None,
    is_vector: bool,
    missing: tuple[bool, ...],
    wide: bool = False,
) -> SparkDataset:
    """Keep the frame in the cluster's memory; its disks take what does not fit."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as sf

    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    content = [name for name in kept.columns if name not in (ROW, LINK)]
    origin = origin_of(sf.col(ROW))
    *sums, judging, testing = kept.agg(
        sf.count(sf.lit(1)),
        sf.bit_xor(sf.xxhash64(*content)),
        sf.sum(sf.xxhash64(*content).cast("decimal(38,0)")),
        sf.count_if(origin == JUDGING),
        sf.count_if(origin == TESTING),
    ).first()
    if sums[0] == 0:
        raise BadInput("The data have no rows; give data with at least one row.")
    said = repr((tuple(sums), columns, classes))
    fingerprint = hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
    return SparkDataset(
        kept,
        columns,
        classes,
        target,
        int(sums[0]),
        fingerprint,
        is_vector,
        missing,
        (int(judging), int(testing)),
        wide,
    )
