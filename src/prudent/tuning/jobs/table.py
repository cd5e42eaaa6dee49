"""A table of measured runs, read from CSV files and replayed: to learn from, to test strategies, to plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from prudent.cloud.readings import Readings
from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import TIME
from prudent.tuning.jobs.csv_table import (
    CsvTable,
    ProgressTraces,
    Row,
    TableReadings,
    cell_value,
    read_readings,
    read_traces,
)
from prudent.tuning.jobs.job import declared_measures, declared_seconds
from prudent.tuning.jobs.run_output import seen_until
from prudent.tuning.trial import CUT, FINISHED, Configuration, Outcome, Progress

_ROUNDING_S = 0.01  # tables give times with two decimals


@dataclass(frozen=True)
class MeasuredRun:
    """One measured run: how long, at what price, with what result, what it showed and did to machines."""

    time_s: float
    usd_per_h: float
    measures: Mapping[str, float]
    progress: tuple[Progress, ...] = ()
    readings: Readings | None = None


def measured_run(
    table: CsvTable,
    row: Row,
    line: int,
    time: str,
    price: str,
    measures: Iterable[str],
    traces: ProgressTraces,
    readings: TableReadings,
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
    shown = tuple(_until(time_s, traces.of(row)))
    return MeasuredRun(time_s, usd_per_h, known, shown, readings.of(table, row, line))


def _until(time_s: float, trace: Iterable[Progress]) -> Iterator[Progress]:
    """What was shown while the run lasted; a check at its very end may have been rounded beyond it."""
    for progress in trace:
        if progress.elapsed_s <= time_s + _ROUNDING_S:
            yield replace(progress, elapsed_s=min(progress.elapsed_s, time_s))


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
        readings=Readings.mean(run.readings for run in runs),
    )


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
        lasted_s, did = recorded.time_s + boot_s, recorded.readings
        return Outcome(FINISHED, lasted_s, recorded.measures, overhead_s=boot_s, readings=did)

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
        readings: str | Path | Sequence[str] = (),
    ) -> TableJob:
        """Read a CSV with one row per measured run.

        `fraction` is the column with the share of the data used, one more parameter. `progress` is
        a second CSV with rows (id, elapsed_s, measures…), joined on the id column that both have. `readings`
        are columns that tell what runs did to their machines, or a second CSV with them, joined likewise.
        """
        table = CsvTable.read(Path(path))
        names = [*parameters, *([fraction] if fraction and fraction not in parameters else [])]
        if not names:
            raise BadInput("A job needs at least one parameter; name the columns that can be chosen.")
        measures = declared_measures(measures)
        columns = () if isinstance(readings, (str, Path)) else tuple(readings)
        _check_columns(table, names, (time, price, *measures, *columns))
        traces = ProgressTraces()
        if progress is not None:
            traces = read_traces(table, Path(progress), measures, (time, price))
        did = read_readings(table, readings, (time, price, *measures))
        rows: list[tuple[Configuration, MeasuredRun]] = []
        for line, row in table.numbered():
            point = {name: cell_value(table, row, line, name) for name in names}
            if fraction is not None:
                check_fraction(point[fraction], table.path, line, fraction)
            run = measured_run(table, row, line, time, price, measures, traces, did)
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
            if run.readings is not None:
                digest.update(repr(sorted(run.readings.to_dict().items())).encode())
        if self.minimum_s or self.boot_s:
            digest.update(f"{self.minimum_s!r}|{self.boot_s!r}".encode())
        return f"table {digest.hexdigest()[:16]}"

    def _at(self, configuration: Configuration) -> MeasuredRun:
        key = self.space.key(configuration)
        if key not in self._runs:
            raise BadInput(f"{self.name} has no run at {key}; choose a configuration that was measured.")
        return self._runs[key]
