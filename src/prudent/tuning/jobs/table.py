"""A table of measured runs, read from CSV files and replayed: to learn from, to test strategies, to plan."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from prudent.core.errors import BadInput, unknown
from prudent.core.money import Price
from prudent.core.parameters import as_number
from prudent.core.space import Space
from prudent.tuning.goal import TIME
from prudent.tuning.jobs.job import ELAPSED, PROGRESS, declared_measures, declared_seconds
from prudent.tuning.jobs.run_output import seen_until
from prudent.tuning.trial import CUT, FINISHED, Configuration, Outcome, Progress

Row = Mapping[str, str]

_ROUNDING_S = 0.01  # tables give times with two decimals


@dataclass(frozen=True)
class MeasuredRun:
    """One measured run: how long, at what price, with what result, and what it showed on the way."""

    time_s: float
    usd_per_h: float
    measures: Mapping[str, float]
    progress: tuple[Progress, ...] = ()


@dataclass(frozen=True)
class ProgressTraces:
    """What runs showed while they ran, by the id that names the run in both files."""

    id_column: str = ""
    by_id: Mapping[str, tuple[Progress, ...]] = field(default_factory=dict)

    def of(self, row: Row) -> tuple[Progress, ...]:
        return self.by_id.get(row[self.id_column].strip(), ()) if self.id_column else ()


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


def measured_run(
    table: CsvTable,
    row: Row,
    line: int,
    time: str,
    price: str,
    measures: Iterable[str],
    traces: ProgressTraces,
) -> MeasuredRun | None:
    """The run in one row; None where no time was measured, for that run told nothing."""
    time_s, usd_per_h = table.number(row, time, line), table.number(row, price, line)
    if time_s is None:
        return None
    if time_s < 0 or usd_per_h is None or usd_per_h < 0:
        raise BadInput(
            f'Line {line} of "{table.path}": time "{row[time]}" and price "{row[price]}" must be '
            "numbers of 0 or more; correct that line."
        )
    values = {name: table.number(row, name, line) for name in measures}
    known = {name: value for name, value in values.items() if value is not None}
    return MeasuredRun(time_s, usd_per_h, known, tuple(_until(time_s, traces.of(row))))


def _until(time_s: float, trace: Iterable[Progress]) -> Iterator[Progress]:
    """What was shown while the run lasted; a check at its very end may have been rounded beyond it."""
    for progress in trace:
        if progress.elapsed_s <= time_s + _ROUNDING_S:
            yield replace(progress, elapsed_s=min(progress.elapsed_s, time_s))


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
        if column not in taken and len({row[column].strip() for row in table.rows}) == len(table.rows):
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


def mean_of(runs: Sequence[MeasuredRun]) -> MeasuredRun:
    """Several runs of one configuration as one: means over the runs that measured the thing.

    Progress cannot be averaged, so the mean of several runs has none.
    """
    if len(runs) == 1:
        return runs[0]
    names = dict.fromkeys(name for run in runs for name in run.measures)
    return MeasuredRun(
        fmean(run.time_s for run in runs),
        fmean(run.usd_per_h for run in runs),
        {name: fmean(run.measures[name] for run in runs if name in run.measures) for name in names},
    )


def cell_value(table: CsvTable, row: Row, line: int, column: str) -> Any:
    """A cell of a parameter column: the finite number it spells, or its text."""
    text = row[column].strip()
    if not text:
        raise BadInput(
            f'Line {line} of "{table.path}", column "{column}": the parameter has no value; fill it in.'
        )
    number = as_number(text)
    return text if number is None or not math.isfinite(number) else number


def check_fraction(value: Any, path: Path, line: int, column: str) -> None:
    """Refuse a share of the data outside (0, 1]."""
    if not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise BadInput(
            f'Line {line} of "{path}": the fraction "{value}" in column "{column}" is not in (0, 1]; '
            "write shares of the data, 1 for all."
        )


class ReplayedRun:
    """A recorded run played back; the clock is whatever the caller says it is, and starts with the boot."""

    def __init__(self, recorded: MeasuredRun, price: Price) -> None:
        self._recorded, self._price = recorded, price
        self._seen = 0

    @property
    def overhead_s(self) -> float:
        return self._price.boot_s

    def lasts_s(self, usd: float) -> float:
        return self._price.boot_s + self._price.lasts_s(usd)

    def next(self, until_s: float) -> Progress | Outcome | None:
        recorded, boot_s = self._recorded, self._price.boot_s
        if self._seen < len(recorded.progress):
            upcoming = recorded.progress[self._seen]
            if upcoming.elapsed_s + boot_s > until_s:
                return None
            self._seen += 1
            return replace(upcoming, elapsed_s=upcoming.elapsed_s + boot_s) if boot_s else upcoming
        if recorded.time_s + boot_s > until_s:
            return None
        return Outcome(FINISHED, recorded.time_s + boot_s, recorded.measures, overhead_s=boot_s)

    def cut(self, at_s: float, why: str) -> Outcome:
        boot_s = min(self._price.boot_s, at_s)
        seen = seen_until(self._recorded.progress, at_s - boot_s)
        return Outcome(CUT, at_s, seen, why, overhead_s=boot_s)


def _check_columns(table: CsvTable, names: Sequence[str], measured: Sequence[str]) -> None:
    """Refuse a table without one of these columns, and a column that is both chosen and measured."""
    for column in (*names, *measured):
        table.need(column)
    both = next((name for name in names if name in measured), None)
    if both is not None:
        raise BadInput(f'"{both}" cannot be chosen and measured; keep it as a parameter or as a measure.')


def _means(space: Space, rows: Sequence[tuple[Configuration, MeasuredRun]]) -> dict[str, MeasuredRun]:
    """One run for each configuration: the mean of those that were measured."""
    grouped: dict[str, list[MeasuredRun]] = {}
    for point, run in rows:
        # By the space's key: 8 and 8.0 in two rows are one configuration.
        grouped.setdefault(space.key(point), []).append(run)
    return {key: mean_of(rows) for key, rows in grouped.items()}


class TableJob:
    """Measured runs as a job: every configuration in the table can be "run", and costs what it cost.

    Cost is price x time as it stands in the table. With `minimum_s` and `boot_s` runs are billed as a cloud
    bills: at least so many seconds, and each machine from its order on. Where a configuration was measured
    several times the mean counts.
    """

    virtual = True

    def __init__(
        self,
        runs: Mapping[str, MeasuredRun],
        space: Space,
        measures: Sequence[str],
        fraction: str | None = None,
        source: str = "table",
        price_date: str = "",
        minimum_s: float = 0.0,
        boot_s: float = 0.0,
    ) -> None:
        self.space = space
        self.measures = tuple(measures)
        self.fraction = fraction
        self.name = source
        self._runs = dict(runs)
        self._price_date = price_date
        self.minimum_s = declared_seconds("The billing minimum", minimum_s)
        self.boot_s = declared_seconds("The boot time", boot_s)

    @classmethod
    def read_csv(
        cls,
        path: str | Path,
        parameters: Sequence[str],
        time: str = TIME,
        price: str = "price_usd_per_h",
        measures: Sequence[str] = (),
        fraction: str | None = None,
        progress: str | Path | None = None,
        minimum_s: float = 0.0,
        boot_s: float = 0.0,
    ) -> TableJob:
        """Read a CSV with one row per measured run.

        `fraction` is the column with the share of the data used, one more parameter. `progress` is
        a second CSV with rows (id, elapsed_s, measures…), joined on the id column that both have.
        """
        table = CsvTable.read(Path(path))
        names = [*parameters, *([fraction] if fraction and fraction not in parameters else [])]
        if not names:
            raise BadInput("A job needs at least one parameter; name the columns that can be chosen.")
        measures = declared_measures(measures)
        _check_columns(table, names, (time, price, *measures))
        traces = ProgressTraces()
        if progress is not None:
            traces = read_traces(table, Path(progress), measures, (time, price))
        rows: list[tuple[Configuration, MeasuredRun]] = []
        for line, row in table.numbered():
            point = {name: cell_value(table, row, line, name) for name in names}
            if fraction is not None:
                check_fraction(point[fraction], table.path, line, fraction)
            run = measured_run(table, row, line, time, price, measures, traces)
            if run is not None:
                rows.append((point, run))
        if not rows:
            raise BadInput(f'No row of "{path}" has a time in column "{time}"; give measured runs.')
        space, source = Space.from_points([point for point, _ in rows], names), Path(path).name
        return cls(
            _means(space, rows), space, measures, fraction, source=source, minimum_s=minimum_s, boot_s=boot_s
        )

    def price(self, configuration: Configuration) -> Price:
        usd_per_h, source = self._at(configuration).usd_per_h, f"table {self.name}"
        return Price(usd_per_h, self._price_date, source, self.minimum_s, boot_s=self.boot_s)

    def start(self, configuration: Configuration, number: int) -> ReplayedRun:
        del number
        return ReplayedRun(self._at(configuration), self.price(configuration))

    def recorded(self, configuration: Configuration) -> MeasuredRun:
        """The measured run behind a configuration; for judging an answer, never for finding it."""
        return self._at(configuration)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.measures}|{self.fraction}".encode())
        for key, run in sorted(self._runs.items()):
            shown = [(p.elapsed_s, sorted(p.measures.items()), p.done) for p in run.progress]
            measured = sorted(run.measures.items())
            digest.update(f"{key}|{run.time_s!r}|{run.usd_per_h!r}|{measured}|{shown}".encode())
        if self.minimum_s or self.boot_s:
            digest.update(f"{self.minimum_s!r}|{self.boot_s!r}".encode())
        return f"table {digest.hexdigest()[:16]}"

    def _at(self, configuration: Configuration) -> MeasuredRun:
        key = self.space.key(configuration)
        if key not in self._runs:
            raise BadInput(f"{self.name} has no run at {key}; choose a configuration that was measured.")
        return self._runs[key]
