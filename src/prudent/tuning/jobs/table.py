"""A table of measured runs, replayed: to learn from, to test strategies, to plan without paying."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import TIME
from prudent.tuning.jobs.declared import declared_measures
from prudent.tuning.jobs.records import (
    Recorded,
    Table,
    Traces,
    cell_value,
    check_fraction,
    mean_of,
    read_traces,
    recorded,
)
from prudent.tuning.jobs.reports import seen_until
from prudent.tuning.trial import CUT, FINISHED, Configuration, Outcome, Progress


class ReplayedRun:
    """A recorded run played back; the clock is whatever the caller says it is."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._seen = 0

    def next(self, until_s: float) -> Progress | Outcome | None:
        recorded = self._recorded
        if self._seen < len(recorded.progress):
            upcoming = recorded.progress[self._seen]
            if upcoming.elapsed_s > until_s:
                return None
            self._seen += 1
            return upcoming
        if recorded.time_s > until_s:
            return None
        return Outcome(FINISHED, recorded.time_s, recorded.measures)

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome(CUT, at_s, seen_until(self._recorded.progress, at_s), why)


class TableJob:
    """Measured runs as a job: every configuration in the table can be "run", and costs what it cost.

    Cost is price x time as it stands in the table, without a billing minimum. Where a
    configuration was measured several times the mean counts.
    """

    virtual = True

    def __init__(
        self,
        runs: Mapping[str, Recorded],
        space: Space,
        measures: Sequence[str],
        fraction: str | None = None,
        source: str = "table",
        price_date: str = "",
    ) -> None:
        self.space = space
        self.measures = tuple(measures)
        self.fraction = fraction
        self.name = source
        self._runs = dict(runs)
        self._price_date = price_date

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
    ) -> TableJob:
        """Read a CSV with one row per measured run.

        `fraction` is the column with the share of the data used, one more parameter. `progress` is
        a second CSV with rows (id, elapsed_s, measures…), joined on the id column that both have.
        """
        table = Table.read(Path(path))
        names = [*parameters, *([fraction] if fraction and fraction not in parameters else [])]
        if not names:
            raise BadInput("A job needs at least one parameter; name the columns that can be chosen.")
        measures = declared_measures(measures)
        for column in (*names, time, price, *measures):
            table.need(column)
        both = next((name for name in names if name in (time, price, *measures)), None)
        if both is not None:
            raise BadInput(f'"{both}" cannot be chosen and measured; keep it as a parameter or as a measure.')
        traces = Traces()
        if progress is not None:
            traces = read_traces(table, Path(progress), measures, (time, price))
        points: list[Configuration] = []
        runs: list[Recorded] = []
        for line, row in table.numbered():
            point = {name: cell_value(table, row, line, name) for name in names}
            if fraction is not None:
                check_fraction(point[fraction], table.path, line, fraction)
            run = recorded(table, row, line, time, price, measures, traces)
            if run is not None:
                points.append(point)
                runs.append(run)
        if not points:
            raise BadInput(f'No row of "{path}" has a time in column "{time}"; give measured runs.')
        space = Space.from_points(points, names)
        grouped: dict[str, list[Recorded]] = {}
        for point, run in zip(points, runs, strict=True):
            # By the space's key: 8 and 8.0 in two rows are one configuration.
            grouped.setdefault(space.key(point), []).append(run)
        means = {key: mean_of(rows) for key, rows in grouped.items()}
        return cls(means, space, measures, fraction, source=Path(path).name)

    def price(self, configuration: Configuration) -> Price:
        return Price(self._at(configuration).usd_per_h, self._price_date, f"table {self.name}")

    def start(self, configuration: Configuration, number: int) -> ReplayedRun:
        del number
        return ReplayedRun(self._at(configuration))

    def recorded(self, configuration: Configuration) -> Recorded:
        """The measured run behind a configuration; for judging an answer, never for finding it."""
        return self._at(configuration)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.measures}|{self.fraction}".encode())
        for key, run in sorted(self._runs.items()):
            shown = [(p.elapsed_s, sorted(p.measures.items()), p.done) for p in run.progress]
            measured = sorted(run.measures.items())
            digest.update(f"{key}|{run.time_s!r}|{run.usd_per_h!r}|{measured}|{shown}".encode())
        return f"table {digest.hexdigest()[:16]}"

    def _at(self, configuration: Configuration) -> Recorded:
        key = self.space.key(configuration)
        if key not in self._runs:
            raise BadInput(f"{self.name} has no run at {key}; choose a configuration that was measured.")
        return self._runs[key]
