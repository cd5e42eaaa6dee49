"""The tuning part of `prudent demo`: two strategies with the same money, and the workers they tune."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.cli.console import say, write_or_complain
from prudent.cli.demo.digits_worker import CommitteeTask, unpacked
from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.errors import RunFailed
from prudent.core.money import Price
from prudent.core.parameters import Ordinal
from prudent.core.space import Space
from prudent.core.units import format_money
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.trial import Configuration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from prudent.tuning.goal import Goal
    from prudent.tuning.result import Result

OURS, THEIRS = "lynceus", "random"
MACHINE = "p3.2xlarge"
WORKERS = 2
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_START_S = 60.0
_MEMBER_S = 60.0

cluster = MachineParameter("cluster", [MACHINE], range(1, WORKERS + 1))


class DigitsWorkers:
    """Worker processes, started once and used by one run after another.

    They stand for machines that are up: what a run takes is training and the talk between workers, not the
    start of Python. Each has one thread, so that two workers are about twice as fast as one.
    """

    def __init__(self, size: int = WORKERS) -> None:
        self._said: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self._runs = count(1)
        environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "prudent.cli.demo.digits_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
            for _ in range(size)
        ]
        for place in range(size):
            threading.Thread(target=self._listen, args=(place,), daemon=True).start()

    def __enter__(self) -> DigitsWorkers:
        try:
            for _ in self._processes:
                self._truth = self._hear(_START_S)["ready"]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; what they do is not needed any more."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def train(self, configuration: Configuration) -> Generator[dict[str, float], None, None]:
        """One run, shared out among the workers: how far it is, and after each epoch the accuracy."""
        size, _ = cluster.cluster(configuration["cluster"])
        run, epochs, members = next(self._runs), configuration["epochs"], configuration["members"]
        settings = {name: configuration[name] for name in ("hidden", "learning_rate", "batch", "fraction")}
        votes: dict[int, list[Any]] = {}
        steps_done = 0
        try:
            for place in range(size):
                share = tuple(range(place, members, size))
                self._tell(place, CommitteeTask(run, share, epochs=epochs, **settings).line())
            for epoch in range(1, epochs + 1):
                while len(votes.get(epoch, ())) < size:
                    said = self._hear(_MEMBER_S)
                    if said.get("run") != run:
                        continue
                    if "votes" in said:
                        votes.setdefault(said["epoch"], []).append(unpacked(said["votes"]))
                    else:
                        steps_done += 1
                        yield {"progress": steps_done / (members * epochs)}
                right = sum(votes.pop(epoch)).argmax(axis=1) == self._truth
                yield {"accuracy": float(right.mean()), "progress": steps_done / (members * epochs)}
        finally:
            self._rest(size)

    def _rest(self, size: int) -> None:
        """Wait until the workers of a run are idle, lest the next run pay for what is left of it."""
        for place in range(size):
            self._tell(place, "")
        idle = 0
        while idle < size:
            idle += "idle" in self._hear(_MEMBER_S)

    def _tell(self, place: int, line: str) -> None:
        stream = self._processes[place].stdin
        assert stream is not None
        try:
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError) as error:
            raise RunFailed("A worker of the demo has ended; start the demo again.") from error

    def _hear(self, seconds: float) -> dict[str, Any]:
        try:
            _, said = self._said.get(timeout=seconds)
        except queue.Empty:
            raise RunFailed(
                f"A worker of the demo said nothing for {seconds:g} s; try on a machine less busy."
            ) from None
        if said is None:
            raise RunFailed("A worker of the demo has ended; start the demo again.")
        return said

    def _listen(self, place: int) -> None:
        stream = self._processes[place].stdout
        assert stream is not None
        try:
            for line in stream:
                self._said.put((place, json.loads(line)))
        except ValueError:  # closed while being read
            pass
        self._said.put((place, None))


def price(configuration: Configuration) -> Price:
    """The list price of the machines, without the 60 seconds that a cloud bills at least.

    Runs of the demo take seconds; with the minimum every one would cost the same.
    """
    listed = cluster.price(configuration["cluster"])
    return replace(listed, minimum_s=0.0, source=f"{listed.source}, by the second")


def space() -> Space:
    """What may be chosen: the machines, the data, the networks and how they learn."""
    return Space(
        [
            cluster,
            Ordinal("fraction", [0.25, 0.5, 1.0]),
            Ordinal("members", [4, 8, 16], log=True),
            Ordinal("hidden", [16, 64, 256], log=True),
            Ordinal("learning_rate", [0.0003, 0.001, 0.003, 0.01, 0.03], log=True),
            Ordinal("batch", [16, 64, 256], log=True),
            Ordinal("epochs", [4, 8, 16, 32], log=True),
        ]
    )


def digits_job(workers: DigitsWorkers) -> FunctionJob:
    """Training on digits as a job of a study."""
    return FunctionJob(workers.train, space(), ["accuracy"], price, name="digits")


def tuning_demo(
    console: Console | None, goal: Goal, budget_usd: float, folder: Path, seed: int
) -> tuple[list[Result], Path | None]:
    """Both strategies, one after the other, and the report of them; silent without a console."""
    if console is not None:
        _introduce(console, goal, budget_usd)
    results: list[Result] = []
    with DigitsWorkers() as workers:
        job = digits_job(workers)
        for strategy in (OURS, THEIRS):
            results.append(_study(job, goal, budget_usd, strategy, seed, console))
            if results[-1].interrupted:
                break
    written = _report(results, job, folder / "report.html")
    say(console, *_ending(results, written))
    return results, written


def _introduce(console: Console, goal: Goal, budget_usd: float) -> None:
    one = price({"cluster": f"1*{MACHINE}"})
    console.print("[bold]Prudent demo[/]: committees of neural networks that learn to read digits, for real.")
    console.print(f"Goal    {goal}", markup=False)
    console.print(
        f"Space   {space().size:,} configurations: how many machines (1 to {WORKERS}), how much data, "
        "which networks, how they learn",
        markup=False,
    )
    console.print(
        f"Money   {format_money(budget_usd)} for each strategy; a worker process counts as one {MACHINE} at "
        f"${one.usd_per_h:g} an hour\n"
        f"        ({one.date}), by the second and without the minute that a cloud bills at least",
        markup=False,
        style="dim",
    )
    console.print()


def _study(
    job: FunctionJob, goal: Goal, budget_usd: float, strategy: str, seed: int, console: Console | None
) -> Result:
    from prudent.cli.display.study_live import StudyProgress, study_view
    from prudent.tuning.tune import tune

    view = study_view(StudyProgress(job.name, goal, budget_usd, virtual=False), console)
    with view:
        result = tune(job, goal, budget_usd, strategy, seed=seed, watch=view.watch)
    if console is not None:
        console.print()
    return result


def _report(results: list[Result], job: FunctionJob, path: Path) -> Path | None:
    """Write the report; one that cannot be written must not cost the answer."""
    from prudent.reports.tuning import write_tuning_report
    from prudent.tuning.problem import Problem

    first = results[0]
    problem = Problem(job.space, first.goal, job.price, job.measures, job.fraction)
    note = (
        "Every run was really trained on this machine, and its seconds measured; a worker process counts as "
        "one rented machine at its list price, by the second and without the minute that a cloud bills at "
        "least. Random search had the same money and the same time-outs."
    )
    return write_or_complain(lambda: write_tuning_report(first, problem, path, beside=results[1:], note=note))


def _ending(results: list[Result], written: Path | None) -> list[RenderableType]:
    from rich.text import Text

    from prudent.cli.display.study import answer_lines
    from prudent.cli.display.tables import headed_table
    from prudent.core.units import format_duration

    lines: list[RenderableType] = []
    if results[0].interrupted:
        lines.append(Text("Interrupted; this is what was known by then.", style="yellow"))
    if results[0].best is not None or len(results) == 1:
        lines += answer_lines(results[0])[1 if results[0].interrupted else 0 :]
    headings = ("a run costs", "takes", "accuracy", "trials", "spent")
    table = headed_table("Same money", *headings, first_style="", padding=3)
    for result in results:
        best = result.best
        found = (
            ("nothing feasible", "", "")
            if best is None
            else (
                format_money(best.cost_usd),
                format_duration(best.time_s),
                f"{best.measures['accuracy']:.4f}",
            )
        )
        table.add_row(result.strategy, *found, str(len(result.trials)), format_money(result.spent_usd))
    lines += ["", table]
    if written is not None:
        lines += ["", Text.assemble(("Report  ", "bold"), str(written))]
    return lines
