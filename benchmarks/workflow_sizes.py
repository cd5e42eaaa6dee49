"""Memory wasted by what runs are given: `prudent workflow size` against the usual rules, on recorded runs.

PRUDENT_DATA=/path/to/data python benchmarks/workflow_sizes.py [--half choose|report]

Every trace with memory is replayed in the order of its tasks, those of one application one after the other: a
task is given memory by what is known of earlier runs of its program, then its recorded peak becomes known.
One that gets too little fails at its end and is run again: by the usual rules with twice as much, by Prudent
with what it says, then with twice that. Wasted is what a run held and did not use, and all that a failed
attempt held, in MB x hours. The first run of a program, for which nobody knows anything, is the same for all
and left out. The traces hold no request of a user, so there is none to compare with.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from prudent.workflows import Workflow
from prudent.workflows.sizing.predictor import SizePredictor
from prudent.workflows.sizing.runs import RunSample, samples_of

HALVES = {
    "choose": (
        "airrflow-dirt02-001", "blast-chameleon-large-001", "blast-chameleon-large-003",
        "cutandrun-dirt02-001", "helloworld-chain-5-chameleon", "methylseq-dirt02-001",
        "montage-chameleon-2mass-005d-001", "montage-chameleon-2mass-01d-001", "viralrecon-dirt02-001",
    ),
    "report": (
        "bacass-dirt02-001", "blast-chameleon-large-002", "blast-chameleon-large-004",
        "helloworld-forkjoin-10-chameleon", "hic-dirt02-001", "montage-chameleon-2mass-015d-001",
        "montage-chameleon-2mass-025d-001", "sarek-dirt02-001", "smrnaseq-dirt02-001",
    ),
}  # fmt: skip
"""The first half was looked at while rules were chosen; figures are those of the second."""

Give = Callable[[list[RunSample], RunSample], float]


def percentile(share: float) -> Give:
    """A percentile of the peaks of the program so far."""
    return lambda past, _: float(np.quantile([run.memory_bytes for run in past], share))


def linear(offset: str) -> Give:
    """A line through input sizes, raised by a deviation of its errors, or by the worst of them."""

    def give(past: list[RunSample], run: RunSample) -> float:
        inputs = np.array([each.input_bytes for each in past])
        peaks = np.array([each.memory_bytes for each in past])
        centred, slope = inputs - inputs.mean(), 0.0
        if np.ptp(inputs) > 1e-9 * max(inputs.max(), 1.0):
            slope = float(centred @ peaks / (centred @ centred))
        residuals = peaks - peaks.mean() - slope * centred
        raised = residuals.std() if offset == "deviation" else max(residuals.max(), 0.0)
        line = peaks.mean() + slope * (run.input_bytes - inputs.mean())
        # Two inputs that hardly differ make any slope: no rule gives more than twice what was ever seen.
        return float(np.clip(line + raised, peaks.min(), 2 * peaks.max()))

    return give


BASELINES: dict[str, Give] = {
    **{f"percentile {share:g}": percentile(share) for share in (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)},
    "percentile 1 + 10 %": lambda past, _: 1.1 * max(run.memory_bytes for run in past),
    "linear + deviation": linear("deviation"),
    "linear + worst": linear("worst"),
}


def data_folder() -> Path:
    """The traces: PRUDENT_DATA, or the folder next to the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("PRUDENT_DATA", default)) / "wfinstances"


def waste(given: float, retry: float, run: RunSample) -> tuple[float, int]:
    """MB x hours that were held and not used, and how often the run had to be made again."""
    held, retries = 0.0, 0
    while given < run.memory_bytes:
        held, retries, given, retry = held + given, retries + 1, retry, retry * 2
    return (held + given - run.memory_bytes) / 1e6 * run.runtime_s / 3600, retries


def replay(runs: list[RunSample], give: Give | None, **options: float) -> tuple[float, int, int]:
    """Waste, retries and the number of runs that were predicted; without a rule, by Prudent's predictor."""
    past: defaultdict[str, list[RunSample]] = defaultdict(list)
    predictor = SizePredictor(**options)
    total, again, counted = 0.0, 0, 0
    for run in runs:
        known = past[run.program]
        if known:
            told = predictor.predict(run.program, run.input_bytes)
            assert told is not None
            first = give(known, run) if give else told.given
            wasted, retries = waste(first, 2 * first if give else told.retry, run)
            total, again, counted = total + wasted, again + retries, counted + 1
        known.append(run)
        predictor.observe(run.program, run.input_bytes, run.memory_bytes)
    return total, again, counted


def applications(half: str) -> Iterator[tuple[str, list[RunSample]]]:
    """The runs of each application of this half, in order."""
    found: defaultdict[str, list[RunSample]] = defaultdict(list)
    for name in HALVES[half]:
        workflow = Workflow.read(data_folder() / f"{name}.json")
        found[name.split("-")[0]] += [run for run in samples_of(workflow) if run.memory_bytes]
    yield from found.items()


def main() -> None:
    """A line for every rule, then a line for every application."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=list(HALVES), default="report")
    half = parser.parse_args().half
    found = dict(applications(half))
    rows = {}
    for name, give in (*BASELINES.items(), ("prudent", None)):
        parts = {app: replay(runs, give) for app, runs in found.items()}
        rows[name] = parts
        wasted, again, counted = (sum(part[at] for part in parts.values()) for at in range(3))
        print(f"{name:22} {wasted:10.1f} MB h  {again:5d} retries of {counted} runs")
    totals = {name: sum(part[0] for part in parts.values()) for name, parts in rows.items()}
    best = min(BASELINES, key=lambda name: totals[name])
    print(
        f"\nagainst {best}, the best of the usual rules: {totals['prudent'] / totals[best]:.3f} of its waste"
    )
    for app in found:
        mine, theirs = rows["prudent"][app], rows[best][app]
        least = min(rows[name][app][0] for name in BASELINES)
        print(f"  {app:12} {mine[0]:9.2f} against {theirs[0]:9.2f} MB h (best there: {least:9.2f}),", end=" ")
        print(f"{mine[1]} against {theirs[1]} retries of {mine[2]}")


if __name__ == "__main__":
    main()
