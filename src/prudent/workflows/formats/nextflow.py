"""Nextflow: what a run took (`trace.txt`, raw or for people), and its DAG (`dag.dot` or `dag.mmd`).

Nextflow draws processes, not tasks. So which task reads from which is inferred: a task reads from those tasks
of the process before it that carry its tag, or from all where tags do not agree, and never from one that
ended after it was submitted. The workflow's notes say so.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from prudent.core.errors import BadInput
from prudent.workflows.activation import Activation, Usage
from prudent.workflows.formats.nextflow_dag import process_edges
from prudent.workflows.workflow import Workflow

DONE = ("COMPLETED", "CACHED")

_UNITS = {"B": 1.0, "KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30, "TB": 2.0**40, "PB": 2.0**50}
_TIMES = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_NEEDED = ("status", "realtime")


@dataclass(frozen=True)
class Task:
    """One successful task of a trace: an activation, its process and tag, and when it was there."""

    activation: Activation
    process: str
    tag: str
    submit_s: float | None
    complete_s: float | None


def is_trace(text: str) -> bool:
    """Whether the first line is the header of a trace."""
    header = text.partition("\n")[0].rstrip("\r").split("\t")
    return {"realtime", "status"} <= set(header) or {"task_id", "hash"} <= set(header)


def parse(text: str, name: str, dag: str) -> Workflow:
    """The workflow of a trace and the DAG that Nextflow drew of it."""
    found, notes = tasks(text, name)
    by_process: defaultdict[str, list[Task]] = defaultdict(list)
    for task in found:
        by_process[task.process].append(task)
    edges = [
        (parent.activation.id, child.activation.id)
        for before, after in process_edges(dag, tuple(by_process), name)
        for parent, child in _pairs(by_process[before], by_process[after])
    ]
    notes.append("which task reads from which is inferred from processes, tags and times")
    return Workflow(name, tuple(task.activation for task in found), tuple(edges), notes=tuple(notes))


def tasks(text: str, name: str) -> tuple[list[Task], list[str]]:
    """Every task as its successful attempt took it, and what had to be left out."""
    lines = text.splitlines()
    rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    header = lines[0].split("\t") if lines else []
    missing = [column for column in _NEEDED if column not in header]
    if missing or not {"name", "process"} & set(header):
        column = missing[0] if missing else "name"
        raise BadInput(
            f'The trace "{name}" has no column "{column}"; add it to trace.fields in nextflow.config.'
        )
    done: dict[str, tuple[int, dict[str, str]]] = {}
    failed = 0
    for line, row in enumerate(rows, start=2):
        if _word(row, "status") not in DONE:
            failed += 1
            continue
        key = _word(row, "name") or f"{_word(row, 'process')} ({_word(row, 'tag') or _word(row, 'task_id')})"
        # Attempts that failed are gone by now: two that succeeded are two tasks of one name.
        if key in done:
            key = f"{key} #{_word(row, 'task_id') or line}"
        done[key] = line, row
    if not done:
        raise BadInput(
            f'No task of the trace "{name}" was completed; give the trace of a run that succeeded.'
        )
    notes = [f"{failed} attempts that failed or did not end were left out"] if failed else []
    return [_task(key, row, line, name) for key, (line, row) in done.items()], notes


def _task(key: str, row: Mapping[str, str], line: int, trace: str) -> Task:
    process = _word(row, "process") or re.sub(r"\s*\(.*\)$", "", key)
    tag = _word(row, "tag")
    if not tag and (found := re.search(r"\((.*)\)$", key)):
        tag = found[1]
    try:
        usage = Usage(
            (_number(_word(row, "%cpu").rstrip("%")) or 0.0) / 100.0,
            _bytes(_word(row, "peak_rss")),
            _bytes(_word(row, "rchar")),
            _bytes(_word(row, "wchar")),
        )
        run_s = _seconds(_word(row, "realtime")) or 0.0
        cores, memory = _number(_word(row, "cpus")) or 0.0, _bytes(_word(row, "memory"))
        submit_s, complete_s = _when(_word(row, "submit")), _when(_word(row, "complete"))
        duration_s = _seconds(_word(row, "duration"))
    except ValueError as error:
        raise BadInput(
            f'Line {line} of the trace "{trace}" has {error}; give it as Nextflow wrote it.'
        ) from None
    if complete_s is None and submit_s is not None and duration_s is not None:
        complete_s = submit_s + duration_s
    activation = Activation(key, process, run_s, cores=cores, memory_bytes=memory, usage=usage)
    return Task(activation, process, tag, submit_s, complete_s)


def _pairs(parents: Sequence[Task], children: Sequence[Task]) -> Iterator[tuple[Task, Task]]:
    """Who reads from whom, of two processes of which one feeds the other."""
    tagged: defaultdict[str, list[Task]] = defaultdict(list)
    for parent in parents:
        tagged[parent.tag].append(parent)
    for child in children:
        same = tagged.get(child.tag, []) if child.tag else []
        for parent in same or parents:
            if not _ended_after(parent, child):
                yield parent, child


def _ended_after(parent: Task, child: Task) -> bool:
    """A task is submitted when its inputs are there; a second is allowed for clocks."""
    if parent.complete_s is None or child.submit_s is None:
        return False
    return parent.complete_s > child.submit_s + 1.0


def _word(row: Mapping[str, str], column: str) -> str:
    """The field, empty where Nextflow put a dash."""
    value = (row.get(column) or "").strip()
    return "" if value == "-" else value


def _number(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'"{text}" where a number belongs') from None


def _bytes(text: str) -> float:
    """Bytes; Nextflow's units are binary (1 KB = 1024 B), and a raw trace has plain bytes."""
    number, _, unit = text.partition(" ")
    if not unit:
        return _number(number) or 0.0
    if unit.upper() not in _UNITS:
        raise ValueError(f'"{text}" where a size belongs')
    return (_number(number) or 0.0) * _UNITS[unit.upper()]


def _seconds(text: str) -> float | None:
    """Seconds from "1h 2m 3s" or "350ms"; a raw trace has plain milliseconds."""
    if not text:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text) / 1000.0
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise ValueError(f'"{text}" where a time belongs')
    return sum(float(number) * _TIMES[unit] for number, unit in parts)


def _when(text: str) -> float | None:
    """Seconds since 1970, by a clock without zones: only differences matter."""
    if not text:
        return None
    if re.fullmatch(r"\d+", text):
        return float(text) / 1000.0
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f'"{text}" where a date belongs') from None
