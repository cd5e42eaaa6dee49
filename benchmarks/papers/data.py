"""Measured runs from the repositories that the papers' authors published, as tables for Prudent.

    python benchmarks/papers/data.py OUT                  # git clone each, convert, write checksums
    python benchmarks/papers/data.py --from CLONES OUT    # of clones that are there already
    python benchmarks/papers/data.py --from CLONES --check TABLES OUT   # and say which agree with other
    tables

OUT gets `tuning/*.csv`, `workflows/*.xml` and `checksums.txt`; PRUDENT_DATA=OUT lets the benchmarks find
them. A repository that is missing is named, and the others are converted. What each holds, its licence and
its oddities: docs/explanation/papers.md.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Row = dict[str, object]

SIZES = ("t2.small", "t2.medium", "t2.xlarge", "t2.2xlarge")
USD_PER_H = {"t2.small": 0.023, "t2.medium": 0.0464, "t2.xlarge": 0.1856, "t2.2xlarge": 0.3712}
"""Ohio, on demand, 2018, as in the authors' code."""
VCPUS = {"t2.small": 1, "t2.medium": 2, "t2.xlarge": 4, "t2.2xlarge": 8}
RAM_GB = {"t2.small": 2, "t2.medium": 4, "t2.xlarge": 16, "t2.2xlarge": 32}
LONGEST_S, TARGET, CHECK_S = 600.0, 0.85, 30.0
IMAGES = 60_000
SCOUT_USD_PER_H = {
    "c4": (0.100, 0.199, 0.398), "m4": (0.100, 0.200, 0.400), "r4": (0.133, 0.266, 0.532),
}  # fmt: skip
SCOUT_SIZES = {"large": 0, "xlarge": 1, "2xlarge": 2}
SCOUT_LONGEST_S = 7200.0


@dataclass(frozen=True)
class Source:
    """A repository of the authors, and what makes tables of it."""

    address: str
    licence: str
    convert: Callable[[Path, Path], Iterator[Path]]

    @property
    def name(self) -> str:
        return self.address.rsplit("/", 1)[1]


# Lynceus: one run of each configuration until an accuracy of 0.85 or ten minutes


def lynceus(clone: Path, out: Path) -> Iterator[Path]:
    """`files/t2_*.csv`, one row a run, to a table and what the runs showed on the way."""
    for source in sorted((clone / "files").glob("t2_*.csv")):
        name = source.stem.removeprefix("t2_").removesuffix("_intermediate_values")
        table, traces = lynceus_rows(read(source))
        yield write(out / "tuning" / f"lynceus_{name}.csv", table)
        yield write(out / "tuning" / f"lynceus_{name}_progress.csv", traces)


def lynceus_rows(runs: Iterable[dict[str, str]]) -> tuple[list[Row], list[Row]]:
    """The rows of both tables; a run cut at ten minutes takes time x 0.85 / accuracy to the target."""
    table: list[Row] = []
    traces: list[Row] = []
    for number, run in enumerate(sorted(runs, key=place)):
        size, workers = run["vm_flavor"], int(run["n_workers"])
        usd_per_h = (workers + int(run["n_ps"]) + 1) * USD_PER_H[size]
        time_s, accuracy = float(run["training_time"]), float(run["acc"])
        timed_out, reached = time_s > LONGEST_S, accuracy >= TARGET
        whole_s = time_s * TARGET / accuracy if timed_out and not reached else time_s
        table.append({
            "config_id": number, **configuration(run),
            "price_usd_per_h": short(usd_per_h), "time_s": short(time_s),
            "cost_usd": short(usd_per_h * time_s / 3600), "accuracy": short(accuracy, 4),
            "timed_out": int(timed_out), "reached_target": int(reached),
            "time_to_target_s": short(whole_s), "cost_to_target_usd": short(usd_per_h * whole_s / 3600),
            "total_iterations": int(float(run["total_iterations"])),
        })  # fmt: skip
        seen = [float(value) for value in run["intermediate_acc_values"].split()]
        traces += [
            {
                "config_id": number, "check": check, "elapsed_s": round(time_s * check / len(seen), 2),
                "elapsed_nominal_s": round(CHECK_S * check), "accuracy": value,
            }
            for check, value in enumerate(seen, start=1)
        ]  # fmt: skip
    return table, traces


# TrimTuner: three runs of each configuration at five sizes of the data


def trimtuner(clone: Path, out: Path) -> Iterator[Path]:
    """`dataset_NN_Tensorflow/*.csv`, means of three runs, to a table and the trace of one run of each."""
    for source in sorted((clone / "dataset_NN_Tensorflow").glob("*.csv")):
        table, traces = trimtuner_rows(read(source))
        yield write(out / "tuning" / f"trimtuner_{source.stem.lower()}.csv", table)
        yield write(out / "tuning" / f"trimtuner_{source.stem.lower()}_progress.csv", traces)


def trimtuner_rows(runs: Iterable[dict[str, str]]) -> tuple[list[Row], list[Row]]:
    """The rows of both tables; one more helper of the workers' type and a t2.2xlarge are paid for."""
    table: list[Row] = []
    traces: list[Row] = []
    configurations: dict[tuple[float, ...], int] = {}
    ordered = sorted(runs, key=lambda run: (place(run), int(run["training_set_size"])))
    for number, run in enumerate(ordered):
        config = configurations.setdefault(place(run), len(configurations))
        size, workers, images = run["vm_flavor"], int(run["n_workers"]), int(run["training_set_size"])
        usd_per_h = (workers + 1) * USD_PER_H[size] + USD_PER_H["t2.2xlarge"]
        time_s, accuracy = float(run["training_time"]), float(run["acc"])
        table.append({
            "run_id": number, "config_id": config, **configuration(run),
            "data_fraction": round(images / IMAGES, 6), "training_set_size": images,
            "price_usd_per_h": round(usd_per_h, 4), "time_s": round(time_s, 4),
            "cost_usd": round(usd_per_h * time_s / 3600, 8), "accuracy": round(accuracy, 6),
            "timed_out": int(time_s > LONGEST_S), "reached_target": int(accuracy >= TARGET),
            "time_std_s": round(float(run["standard deviation time"]), 4),
            "accuracy_std": round(float(run["standard deviation accuarcy"]), 6),
            "total_iterations": round(float(run["total_iterations"]), 3),
            "iterations_std": round(float(run["standard deviation iteration"]), 3),
        })  # fmt: skip
        traces += trimtuner_trace(number, run)
    return table, traces


def trimtuner_trace(number: int, run: dict[str, str]) -> Iterator[Row]:
    """Checks back to back: each is known when the durations up to its own are over."""
    durations = [float(value) for value in run["intermediate_test_durations"].split()]
    iterations = run["intermediate_no_interations"].split()
    elapsed_s = 0.0
    seen = run["intermediate_acc_values"].split()
    for check, (lasted_s, iteration, accuracy) in enumerate(
        zip(durations, iterations, seen, strict=False), 1
    ):
        elapsed_s += lasted_s
        yield {
            "run_id": number, "check": check, "elapsed_s": round(elapsed_s, 2), "iterations": int(iteration),
            "accuracy": float(accuracy),
        }  # fmt: skip


# Scout: big-data jobs on clusters of EC2


def scout(clone: Path, out: Path) -> Iterator[Path]:
    """`dataset/osr_multiple_nodes/N_TYPE_WORKLOAD_FRAMEWORK_SIZE_RUN/report.json` to one table."""
    reports = sorted((clone / "dataset" / "osr_multiple_nodes").glob("*/report.json"))
    rows = [scout_row(path.parent.name, json.loads(path.read_text())) for path in reports]
    rows.sort(key=lambda row: tuple(str(row[key]) for key in ("workload", "framework", "datasize")))
    if rows:
        yield write(out / "tuning" / "scout_multi_node.csv", rows)


def scout_row(folder: str, report: dict[str, object]) -> Row:
    """One run; without the readings of sar."""
    machines, vm_type = folder.split("_")[:2]
    family, size = vm_type.split(".")
    usd_per_h = int(machines) * SCOUT_USD_PER_H[family][SCOUT_SIZES[size]]
    time_s, completed = float(str(report["elapsed_time"])), bool(report["completed"])
    return {
        "workload": report["workload"], "framework": report["framework"], "datasize": report["datasize"],
        "vm_type": vm_type, "n_vms": int(machines), "price_usd_per_h": short(usd_per_h),
        "time_s": time_s, "cost_usd": round(usd_per_h * time_s / 3600, 6), "completed": int(completed),
        "timed_out": int(not completed and time_s >= SCOUT_LONGEST_S), "input_bytes":
        report.get("input_size", ""),
    }  # fmt: skip


def workflows(clone: Path, out: Path) -> Iterator[Path]:
    """The DAX traces of the Pegasus gallery, as they are."""
    folder = out / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted((clone / "config" / "dax").glob("*.xml")):
        yield Path(shutil.copyfile(source, folder / source.name))


SOURCES = (
    Source("https://github.com/marialcasimiro/Lynceus-ICDCS", "none stated", lynceus),
    Source("https://github.com/pedrogbmendes/TrimTuner", "MIT", trimtuner),
    Source("https://github.com/oxhead/scout", "MIT", scout),
    Source("https://github.com/WorkflowSim/WorkflowSim-1.0", "LGPL v3", workflows),
)


# What all of them share


def place(run: dict[str, str]) -> tuple[float, ...]:
    """The order of the configurations: machine, workers, learning rate, batch size, asynchronous first."""
    return (
        SIZES.index(run["vm_flavor"]), int(run["n_workers"]), float(run["learning_rate"]),
        int(run["batch_size"]), float(run["synchronism"] == "sync"),
    )  # fmt: skip


def configuration(run: dict[str, str]) -> Row:
    """What was chosen, and what follows from it."""
    size, workers = run["vm_flavor"], int(run["n_workers"])
    return {
        "vm_type": size, "n_workers": workers, "n_param_servers": int(run["n_ps"]),
        "vcpus_per_vm": VCPUS[size], "ram_gb_per_vm": RAM_GB[size],
        "total_worker_cores": workers * VCPUS[size], "learning_rate": float(run["learning_rate"]),
        "batch_size": int(run["batch_size"]), "synchronous": int(run["synchronism"] == "sync"),
    }  # fmt: skip


def short(number: float, digits: int = 7) -> float:
    """A number to so many significant digits."""
    return float(f"{number:.{digits}g}")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def cloned(source: Source, folder: Path) -> str:
    """Clone a repository; the reason why not, or nothing."""
    command = ["git", "clone", "--quiet", "--depth", "1", source.address, str(folder / source.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["git failed"])[-1]


def convert(clones: Path, out: Path) -> list[Path]:
    """Every table that the clones give; a repository that is not there is named."""
    written: list[Path] = []
    for source in SOURCES:
        if not (clones / source.name).is_dir():
            print(f"{source.name} is missing: clone {source.address} into {clones}.")
            continue
        made = list(source.convert(clones / source.name, out))
        print(f"{source.name} ({source.licence}): {', '.join(path.name for path in made) or 'nothing found'}")
        written += made
    return written


def checksums(out: Path, written: Iterable[Path]) -> Path:
    """A line for each file, as sha256sum writes and checks it."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}" for path in written]
    target = out / "checksums.txt"
    target.write_text("".join(f"{line}\n" for line in sorted(lines, key=lambda line: line[66:])))
    return target


def difference(ours: Path, theirs: Path) -> str:
    """How two tables differ in the columns and rows that both have; nothing where they agree.

    Numbers agree within a ten-thousandth. A table may have fewer rows: then each of its rows must be found.
    """
    if ours.suffix != ".csv":
        return "" if ours.read_bytes() == theirs.read_bytes() else "the files differ"
    one, other = read(ours), read(theirs)
    columns = [column for column in one[0] if column in other[0]]
    if len(one) == len(other):
        pairs = list(zip(one, other, strict=True))
    else:
        keys = [c for c in ("workload", "framework", "datasize", "vm_type", "n_vms") if c in columns]
        by_key = {tuple(row[c] for c in keys): row for row in other}
        if not keys or any(tuple(row[c] for c in keys) not in by_key for row in one):
            return f"{len(one)} rows against {len(other)}"
        pairs = [(row, by_key[tuple(row[c] for c in keys)]) for row in one]
    for number, (row, wanted) in enumerate(pairs, start=1):
        for column in columns:
            if not alike(row[column], wanted[column]):
                return f"row {number}, {column}: {row[column]} against {wanted[column]}"
    return ""


def alike(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-4, abs_tol=1e-6)
    except ValueError:
        return one == other


def check(out: Path, written: Iterable[Path], tables: Path) -> bool:
    """Say of each table whether it agrees with the one of the same name; whether all do."""
    all_agree = True
    for path in written:
        theirs = tables / path.relative_to(out)
        if not theirs.exists():
            print(f"{path.name}: there is none to compare with.")
            continue
        told, rows = difference(path, theirs), f"{len(read(path))} rows" if path.suffix == ".csv" else "bytes"
        print(f"{path.name}: {f'differs, {told}' if told else f'agrees ({rows})'}")
        all_agree = all_agree and not told
    return all_agree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="where the tables go")
    parser.add_argument("--from", dest="clones", type=Path, help="clones that are there already")
    parser.add_argument("--check", type=Path, metavar="TABLES", help="compare with the tables in this folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clones = given.clones or Path(folder)
        if given.clones is None:
            for source in SOURCES:
                why = cloned(source, clones)
                if why:
                    print(f"{source.address} cannot be cloned: {why}.")
        written = convert(clones, given.out)
    if not written:
        sys.exit("Nothing was converted; give clones of the repositories with --from.")
    print(f"{len(written)} files, {checksums(given.out, written)}")
    if given.check and not check(given.out, written, given.check):
        sys.exit(1)


if __name__ == "__main__":
    main()
