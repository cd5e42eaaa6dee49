"""CSV files of measured runs: their rows, and what second files tell of the same runs."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prudent.cloud.readings import Readings
from prudent.core.errors import BadInput, unknown
from prudent.core.parameters import as_number
from prudent.tuning.goal import TIME
from prudent.tuning.jobs.job import ELAPSED, PROGRESS
from prudent.tuning.trial import Progress

Row = Mapping[str, str]


@dataclass(frozen=True)
class CsvTable:
    """The rows of a CSV file, and the names to complain with."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    lines: tuple[int, ...]
    """Where each row ends in the file: a quoted cell may hold several lines, and empty ones are skipped."""

    @classmethod
    def read(cls, path: Path) -> CsvTable:
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file)
                numbered = [(reader.line_num, row) for row in reader]
                columns = tuple(reader.fieldnames or ())
        except FileNotFoundError as error:
            raise BadInput(f'There is no file "{path}"; check the path.') from error
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f'Cannot read "{path}" ({error}); give a CSV file in UTF-8.') from error
        twice = next((column for column in columns if columns.count(column) > 1), None)
        if twice is not None:
            raise BadInput(f'"{path}" has two columns "{twice}"; rename or remove one.')
        if not numbered:
            raise BadInput(f'"{path}" has no rows; give a CSV file with a header and measured runs.')
        for line, row in numbered:
            if None in row or None in row.values():
                raise BadInput(
                    f'Line {line} of "{path}" does not have {len(columns)} fields like the header; '
                    "correct that line."
                )
        return cls(path, columns, tuple(row for _, row in numbered), tuple(line for line, _ in numbered))

    def numbered(self) -> Iterator[tuple[int, Row]]:
        """Every row with the line to complain about."""
        return zip(self.lines, self.rows, strict=True)

    def need(self, column: str) -> None:
        if column not in self.columns:
            raise unknown(f"column of {self.path.name}", column, self.columns)

    def names_rows(self, columns: Sequence[str]) -> bool:
        """Whether these columns together are different in every row."""
        return len({_cells(row, columns) for row in self.rows}) == len(self.rows)

    def number(self, row: Row, column: str, line: int) -> float | None:
        """A cell as a number; None where it is empty."""
        text = row[column].strip()
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadInput(
                f'Line {line} of "{self.path}", column "{column}": "{text}" is not a number; '
                "correct it, or leave the cell empty where nothing was measured."
            )
        return value


@dataclass(frozen=True)
class ProgressTraces:
    """What runs showed while they ran, by the id that names the run in both files."""

    id_column: str = ""
    by_id: Mapping[str, tuple[Progress, ...]] = field(default_factory=dict)

    def of(self, row: Row) -> tuple[Progress, ...]:
        return self.by_id.get(row[self.id_column].strip(), ()) if self.id_column else ()


def read_traces(
    table: CsvTable, path: Path, measures: Sequence[str], taken: Collection[str] = ()
) -> ProgressTraces:
    """The progress of runs, joined on the column that both files have and that names one run each.

    Of the other columns the declared measures count, and `progress`, how far a run is. `taken` are
    columns that mean something else, such as the time: they may be different in every row by chance.
    """
    other = CsvTable.read(path)
    elapsed = next((c for c in (ELAPSED, TIME) if c in other.columns), None)
    if elapsed is None:
        raise unknown(f"column of {path.name}", ELAPSED, other.columns)
    key = _id_column(table, other, {elapsed, *measures, *taken})
    traces: dict[str, list[Progress]] = {}
    for line, row in other.numbered():
        progress = _progress(other, row, line, elapsed, [m for m in measures if m in other.columns])
        traces.setdefault(row[key].strip(), []).append(progress)
    if not traces.keys() & {row[key].strip() for row in table.rows}:
        raise BadInput(
            f'No run of "{path}" is in "{table.path}" by the column "{key}"; give the progress of these runs.'
        )
    by_time = {name: tuple(sorted(trace, key=lambda p: p.elapsed_s)) for name, trace in traces.items()}
    return ProgressTraces(key, by_time)


def _id_column(table: CsvTable, other: CsvTable, taken: Collection[str]) -> str:
    for column in (column for column in other.columns if column in table.columns):
        if column not in taken and table.names_rows((column,)):
            return column
    raise BadInput(
        f'"{other.path}" shares no id column with "{table.path}"; both need one column that names the run.'
    )


def _progress(table: CsvTable, row: Row, line: int, elapsed: str, measures: Sequence[str]) -> Progress:
    seconds = table.number(row, elapsed, line)
    if seconds is None or seconds < 0:
        raise BadInput(
            f'Line {line} of "{table.path}" has "{row[elapsed]}" as {elapsed}; give seconds of 0 or more.'
        )
    values = {name: table.number(row, name, line) for name in measures}
    shown = {name: value for name, value in values.items() if value is not None}
    done = table.number(row, PROGRESS, line) if PROGRESS in table.columns else None
    return Progress(seconds, shown, done if done is not None and 0 <= done <= 1 else None)


@dataclass(frozen=True)
class TableReadings:
    """What runs did to their machines: in columns of their table, or in a second file, by the run's key."""

    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    by_key: Mapping[tuple[str, ...], Readings | None] = field(default_factory=dict)

    def of(self, table: CsvTable, row: Row, line: int) -> Readings | None:
        if self.key:
            return self.by_key.get(_cells(row, self.key))
        return readings_in(table, row, line, self.columns)


def readings_in(table: CsvTable, row: Row, line: int, columns: Sequence[str]) -> Readings | None:
    """Those in some columns of a row; an empty cell tells nothing."""
    values = {name: table.number(row, name, line) for name in columns}
    return Readings.of(_with_cpu_share({name: v for name, v in values.items() if v is not None}))


def _with_cpu_share(values: Mapping[str, float]) -> Mapping[str, float]:
    """Readings as sar gives them, per cent of all cores for users and for the system, tell the share as well.

    >>> _with_cpu_share({"cpu_user_mean": 60.0, "cpu_system_mean": 5.0})["cpu_share"]
    0.65
    """
    for ending in ("", "_mean", "_pct"):
        user, system = values.get(f"cpu_user{ending}"), values.get(f"cpu_system{ending}")
        if user is not None and system is not None and "cpu_share" not in values:
            return {"cpu_share": (user + system) / 100, **values}
    return values


def read_readings(table: CsvTable, said: str | Path | Sequence[str], taken: Collection[str]) -> TableReadings:
    """The readings of runs, from columns of their table or from a second file.

    The file has one row for each run. The id column that both files have names the run; where no column does
    that alone, all that both have together do. All other columns are readings. `taken` are columns that mean
    something else, as in `read_traces`.
    """
    if not isinstance(said, (str, Path)):
        for column in said:
            table.need(column)
        return TableReadings(columns=tuple(dict.fromkeys(said)))
    other = CsvTable.read(Path(said))
    shared = tuple(c for c in other.columns if c in table.columns and c not in taken)
    alone = ((c,) for c in shared if table.names_rows((c,)) and other.names_rows((c,)))
    key = next(alone, shared)
    if not key or not other.names_rows(key):
        raise BadInput(
            f'The columns that "{other.path}" shares with "{table.path}" do not name one run in each row; '
            "give both files an id column."
        )
    columns = [column for column in other.columns if column not in shared and column not in taken]
    found = {_cells(row, key): readings_in(other, row, line, columns) for line, row in other.numbered()}
    if not found.keys() & {_cells(row, key) for row in table.rows}:
        raise BadInput(
            f'No run of "{other.path}" is in "{table.path}" by {" and ".join(key)}; '
            "give the readings of these runs."
        )
    return TableReadings(key=key, by_key=found)


def _cells(row: Row, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(row[column].strip() for column in columns)


def cell_value(table: CsvTable, row: Row, line: int, column: str) -> Any:
    """A cell of a parameter column: the finite number it spells, or its text."""
    text = row[column].strip()
    if not text:
        raise BadInput(
            f'Line {line} of "{table.path}", column "{column}": the parameter has no value; fill it in.'
        )
    number = as_number(text)
    return text if number is None or not math.isfinite(number) else number
