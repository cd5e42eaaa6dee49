"""A table of measured runs, replayed: to learn from, to test strategies, to plan without paying."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import TIME
from prudent.tuning.jobs.declared import declared_measures, declared_seconds
from prudent.tuning.jobs.records import (
    CsvTable,
    MeasuredRun,
    ProgressTraces,
    cell_value,
    check_fraction,
    mean_of,
    measured_run,
    read_traces,
)
from prudent.tuning.jobs.reports import seen_until
from prudent.tuning.trial import CUT, FINISHED, Configuration, Outcome, Progress


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
        for column in (*names, time, price, *measures):
            table.need(column)
        both = next((name for name in names if name in (time, price, *measures)), None)
        if both is not None:
            raise BadInput(f'"{both}" cannot be chosen and measured; keep it as a parameter or as a measure.')
        traces = ProgressTraces()
        if progress is not None:
            traces = read_traces(table, Path(progress), measures, (time, price))
        points: list[Configuration] = []
        runs: list[MeasuredRun] = []
        for line, row in table.numbered():
            point = {name: cell_value(table, row, line, name) for name in names}
            if fraction is not None:
                check_fraction(point[fraction], table.path, line, fraction)
            run = measured_run(table, row, line, time, price, measures, traces)
            if run is not None:
                points.append(point)
                runs.append(run)
        if not points:
            raise BadInput(f'No row of "{path}" has a time in column "{time}"; give measured runs.')
        space = Space.from_points(points, names)
        grouped: dict[str, list[MeasuredRun]] = {}
        for point, run in zip(points, runs, strict=True):
            # By the space's key: 8 and 8.0 in two rows are one configuration.
            grouped.setdefault(space.key(point), []).append(run)
        means = {key: mean_of(rows) for key, rows in grouped.items()}
        return cls(
            means, space, measures, fraction, source=Path(path).name, minimum_s=minimum_s, boot_s=boot_s
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
