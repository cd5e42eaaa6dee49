"""Snakemake: the folder where it ran, or the table that `snakemake --detailed-summary` prints.

Snakemake keeps a record of every file it made in `.snakemake/metadata`: its rule, its inputs, the command,
and when the job began and ended. A rule with `benchmark:` also leaves a table of what it used; with
`--benchmark-extended` (or a name that ends in .jsonl) that table says which job it is of.
"""

from __future__ import annotations

import ast
import base64
import binascii
import csv
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.workflows.activation import Activation, File, Usage
from prudent.workflows.workflow import Workflow

MIB = 1024.0**2

_MB = 1e6
_METADATA = Path(".snakemake", "metadata")


@dataclass
class _Job:
    """One job of a run: the records of its output files together."""

    rule: str
    inputs: tuple[str, ...]
    command: str | None
    outputs: list[str] = field(default_factory=list)
    start_s: float = 0.0
    end_s: float = 0.0


def is_summary(text: str) -> bool:
    """Whether the first line is the header of `snakemake --detailed-summary`."""
    return text.startswith("output_file\t")


def read(folder: Path) -> Workflow:
    """The workflow that ran in a folder, with run times, sizes, and what benchmarks measured."""
    return _workflow(folder, None)


def read_summary(path: Path, text: str) -> Workflow:
    """The jobs that a summary lists; their run times are in the metadata of the folder where it lies."""
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    listed = [row["output_file"] for row in rows]
    if not (path.parent / _METADATA).is_dir():
        raise BadInput(
            f'The summary "{path}" has no run times; put it into the folder where Snakemake ran, beside '
            ".snakemake, or name that folder."
        )
    return _workflow(path.parent, listed)


def _workflow(folder: Path, listed: Sequence[str] | None) -> Workflow:
    if not (folder / _METADATA).is_dir():
        raise BadInput(
            f'"{folder}" has no .snakemake/metadata; name the folder where Snakemake ran, or a workflow file.'
        )
    jobs, left_out = _jobs(folder / _METADATA, listed)
    if not jobs:
        raise BadInput(f'Snakemake has finished no job in "{folder}"; run the workflow first.')
    measured, nameless = _benchmarks(folder)
    activations = tuple(
        _activation(job, folder, measured.get((job.rule, frozenset(job.inputs)), ())) for job in jobs
    )
    notes = []
    if left_out:
        notes.append(f"{left_out} files that Snakemake did not finish were left out")
    if nameless:
        notes.append(
            f"{nameless} benchmark files do not say which job they are of and were left out: run Snakemake "
            "with --benchmark-extended"
        )
    return Workflow(folder.resolve().name, activations, notes=tuple(notes))


def _jobs(metadata: Path, listed: Sequence[str] | None) -> tuple[list[_Job], int]:
    wanted = None if listed is None else set(listed)
    jobs: dict[tuple[Any, ...], _Job] = {}
    left_out, found = 0, set()
    for output, record in _records(metadata):
        if wanted is not None and output not in wanted:
            continue
        found.add(output)
        if record.get("incomplete") or not record.get("rule") or record.get("endtime") is None:
            left_out += 1
            continue
        inputs = tuple(str(name) for name in record.get("input") or ())
        key = record["rule"], record.get("job_hash"), inputs, record.get("shellcmd")
        start_s, end_s = float(record.get("starttime") or record["endtime"]), float(record["endtime"])
        job = jobs.setdefault(
            key, _Job(str(record["rule"]), inputs, record.get("shellcmd"), [], start_s, end_s)
        )
        job.outputs.append(output)
        job.start_s, job.end_s = min(job.start_s, start_s), max(job.end_s, end_s)
    return list(jobs.values()), left_out + len((wanted or set()) - found)


def _records(metadata: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every record with the file it is about, whose name is that of the record in base64."""
    for path in sorted(metadata.rglob("*")):
        if not path.is_file():
            continue
        word = "".join(part.removeprefix("@") for part in path.relative_to(metadata).parts)
        try:
            output = base64.urlsafe_b64decode(word).decode()
            record = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, binascii.Error) as error:
            raise BadInput(
                f'"{path}" is not a record of Snakemake ({error}); run '
                "`snakemake --cleanup-metadata` for its file."
            ) from None
        if isinstance(record, dict):
            yield output, record


def _activation(job: _Job, folder: Path, benchmarks: Sequence[Mapping[str, Any]]) -> Activation:
    sizes: dict[str, float] = {}
    for row in benchmarks:
        sizes |= {str(name): _number(size) * MIB for name, size in _mapping(row, "input_size_mb").items()}
    outputs = sorted(job.outputs)
    run_s = max(job.end_s - job.start_s, 0.0)
    if benchmarks:
        run_s = _mean(_number(row.get("s")) for row in benchmarks)
    resources = _mapping(benchmarks[0], "resources") if benchmarks else {}
    return Activation(
        f"{job.rule}:{outputs[0]}",
        job.rule,
        run_s,
        tuple(File(name, _size(folder / name, sizes.get(name, 0.0))) for name in dict.fromkeys(job.inputs)),
        tuple(File(name, _size(folder / name, 0.0)) for name in outputs),
        ("bash", "-euo", "pipefail", "-c", job.command) if job.command else (),
        cores=_number(benchmarks[0].get("threads")) if benchmarks else 0.0,
        memory_bytes=_number(resources.get("mem_mb")) * _MB,
        usage=_usage(benchmarks),
    )


def _usage(benchmarks: Sequence[Mapping[str, Any]]) -> Usage:
    """The highest peak, and means of the rest, over the repetitions of a benchmark."""
    if not benchmarks:
        return Usage()
    busy_s, run_s = (sum(_number(row.get(key)) for row in benchmarks) for key in ("cpu_time", "s"))
    return Usage(
        busy_s / run_s if run_s else 0.0,
        max(_number(row.get("max_rss")) for row in benchmarks) * MIB,
        _mean(_number(row.get("io_in")) for row in benchmarks) * MIB,
        _mean(_number(row.get("io_out")) for row in benchmarks) * MIB,
    )


def _benchmarks(folder: Path) -> tuple[dict[tuple[str, frozenset[str]], list[Mapping[str, Any]]], int]:
    """Rows of benchmark files by rule and inputs, and how many files do not say whose they are.

    They are looked for in folders whose name begins with "bench", as Snakemake's own documents name them.
    """
    found: defaultdict[tuple[str, frozenset[str]], list[Mapping[str, Any]]] = defaultdict(list)
    nameless = 0
    for path in _benchmark_files(folder):
        rows = _rows(path)
        if rows and "rule_name" not in rows[0]:
            nameless += 1
            continue
        for row in rows:
            found[str(row["rule_name"]), frozenset(map(str, _mapping(row, "input_size_mb")))].append(row)
    return found, nameless


def _benchmark_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if any(part.lower().startswith("bench") for part in Path(place).relative_to(folder).parts):
            yield from (Path(place, name) for name in sorted(files))


def _rows(path: Path) -> list[Mapping[str, Any]]:
    """The rows of a benchmark file, none if the file is none."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
            return rows if all(isinstance(row, dict) and "max_rss" in row for row in rows) else []
    except (OSError, ValueError):
        return []
    if not text.startswith("s\th:m:s\tmax_rss"):
        return []
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def _mapping(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A table writes mappings as Python does, JSON as mappings."""
    value = row.get(key)
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float:
    """Zero where nothing was collected ("NA", "-"): the job was over too soon."""
    try:
        return max(float(value), 0.0)
    except (TypeError, ValueError):
        return 0.0


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


def _size(path: Path, otherwise: float) -> float:
    try:
        return float(path.stat().st_size) if path.is_file() else otherwise
    except OSError:
        return otherwise
