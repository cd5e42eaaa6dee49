"""WfFormat, the JSON format of WfCommons: reads versions 1.4 (files inside tasks) and 1.5, writes 1.5.

What the format has no place for is kept under the key `prudent`, since it allows additional properties.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from prudent.core.errors import BadInput
from prudent.workflows.activation import Activation, File, Usage
from prudent.workflows.workflow import Workflow

_NUMBERED = re.compile(r"_(ID)?\d{4,}$")


@dataclass
class _Task:
    """One task's parts, gathered from the specification and from the execution."""

    id: str
    name: str
    program: str
    inputs: list[File] = field(default_factory=list)
    outputs: list[File] = field(default_factory=list)
    relatives: list[tuple[str, str]] = field(default_factory=list)
    runtime_s: float = 0.0
    command: tuple[str, ...] = ()
    cores: float = 0.0
    usage: Usage = field(default_factory=Usage)
    own: dict[str, Any] = field(default_factory=dict)


def parse(text: str, name: str = "workflow") -> Workflow:
    """Build the workflow that a WfFormat document describes."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f'"{name}" is not valid JSON ({error}); give a WfFormat file.') from None
    body = document.get("workflow")
    if not isinstance(body, dict):
        raise BadInput(f'"{name}" has no "workflow" object; give a WfFormat 1.4 or 1.5 file.')
    try:
        if "specification" in body:
            tasks = _tasks_of_15(body)
        else:
            tasks = [_task_of_14(task) for task in _list(body, "tasks", "workflow")]
        own = body.get("prudent", {})
        activations = tuple(_activation(task) for task in tasks)
        gathered = frozenset(own.get("gathered", ()))
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise BadInput(
            f'"{name}" does not follow WfFormat ({error}); give a WfFormat 1.4 or 1.5 file.'
        ) from None
    return Workflow(document.get("name") or name, activations, tuple(_edges(tasks)), gathered)


def render(workflow: Workflow) -> str:
    """The workflow as a WfFormat 1.5 document."""
    sizes: dict[str, float] = {}
    for activation in workflow.activations:
        for file in (*activation.outputs, *activation.inputs):
            sizes.setdefault(file.name, file.size_bytes)
    specification = {
        "tasks": [_specified(workflow, activation, sizes) for activation in workflow.activations],
        "files": [{"id": name, "sizeInBytes": _whole(size)} for name, size in sizes.items()],
    }
    execution = {
        "makespanInSeconds": 0,
        "executedAt": "1970-01-01T00:00:00+00:00",
        "tasks": [_executed(activation) for activation in workflow.activations],
    }
    body: dict[str, Any] = {"specification": specification, "execution": execution}
    if workflow.gathered:
        body["prudent"] = {"gathered": sorted(workflow.gathered)}
    return json.dumps({"name": workflow.name, "schemaVersion": "1.5", "workflow": body}, indent=1) + "\n"


def _specified(workflow: Workflow, activation: Activation, sizes: dict[str, float]) -> dict[str, Any]:
    task: dict[str, Any] = {
        "name": activation.program or activation.id,
        "id": activation.id,
        "parents": workflow.parents[activation.id],
        "children": workflow.children[activation.id],
        "inputFiles": [file.name for file in activation.inputs],
        "outputFiles": [file.name for file in activation.outputs],
    }
    own: dict[str, Any] = {}
    for key, files in (("inputSizes", activation.inputs), ("outputSizes", activation.outputs)):
        if any(file.size_bytes != sizes[file.name] for file in files):
            own[key] = [_whole(file.size_bytes) for file in files]
    if activation.runtimes_s:
        own["runtimesInSeconds"] = dict(activation.runtimes_s)
    if activation.members:
        own["members"] = list(activation.members)
    if activation.memory_bytes:
        own["askedMemoryInBytes"] = _whole(activation.memory_bytes)
    return task | ({"prudent": own} if own else {})


def _executed(activation: Activation) -> dict[str, Any]:
    task: dict[str, Any] = {"id": activation.id, "runtimeInSeconds": activation.runtime_s}
    if activation.command:
        task["command"] = {"program": activation.command[0], "arguments": list(activation.command[1:])}
    usage = activation.usage
    measured = {
        "coreCount": activation.cores,
        "avgCPU": usage.cores * 100.0,
        "memoryInBytes": usage.memory_bytes,
        "readBytes": usage.read_bytes,
        "writtenBytes": usage.written_bytes,
    }
    return task | {key: _whole(value) for key, value in measured.items() if value}


def _whole(size: float) -> float | int:
    return int(size) if float(size).is_integer() else size


def _tasks_of_15(body: dict[str, Any]) -> list[_Task]:
    specification = body["specification"]
    sizes = {str(file["id"]): _size(file) for file in specification.get("files", [])}
    tasks = []
    for entry in _list(specification, "tasks", "specification"):
        task = _task(entry)
        own = entry.get("prudent", {})
        task.own = own
        task.inputs = _files(entry.get("inputFiles") or [], sizes, own.get("inputSizes"), task.id)
        task.outputs = _files(entry.get("outputFiles") or [], sizes, own.get("outputSizes"), task.id)
        tasks.append(task)
    by_id = {task.id: task for task in tasks}
    for entry in (body.get("execution") or {}).get("tasks", []):
        if entry["id"] not in by_id:
            raise BadInput(
                f'The execution names task "{entry["id"]}", which is not specified; add or remove it.'
            )
        _add_run(by_id[entry["id"]], entry)
    return tasks


def _task_of_14(entry: dict[str, Any]) -> _Task:
    task = _task(entry)
    for use in entry.get("files") or []:
        file = File(str(use["name"]), _size(use))
        if use["link"] not in {"input", "output"}:
            raise BadInput(f'Task "{task.id}" has a file with link "{use["link"]}"; say "input" or "output".')
        (task.inputs if use["link"] == "input" else task.outputs).append(file)
    _add_run(task, entry)
    return task


def _task(entry: dict[str, Any]) -> _Task:
    name = str(entry.get("name") or entry["id"])
    task = _Task(str(entry.get("id") or name), name, str(entry.get("category") or ""))
    task.program = task.program or _program(name, task.id)
    task.relatives = [(str(parent), task.id) for parent in entry.get("parents") or []]
    task.relatives += [(task.id, str(child)) for child in entry.get("children") or []]
    return task


def _program(name: str, task_id: str) -> str:
    """Traces of Pegasus and Makeflow name a task after its program and its number: both are in its id."""
    number = _NUMBERED.search(name)
    return (
        name[: number.start()]
        if number and number.start() and task_id.endswith(number[0].lstrip("_"))
        else name
    )


def _add_run(task: _Task, entry: dict[str, Any]) -> None:
    runtime_s = entry.get("runtimeInSeconds", entry.get("runtime", 0.0)) or 0.0
    task.runtime_s = float(runtime_s)
    command = entry.get("command")
    if isinstance(command, dict) and command.get("program"):
        task.command = (str(command["program"]), *(str(word) for word in command.get("arguments") or []))
    task.cores = float(entry.get("coreCount") or 0.0)
    task.usage = Usage(
        float(entry.get("avgCPU") or 0.0) / 100.0,
        float(entry.get("memoryInBytes") or 0.0),
        float(entry.get("readBytes") or 0.0),
        float(entry.get("writtenBytes") or 0.0),
    )


def _files(names: list[str], sizes: dict[str, float], own: list[float] | None, task: str) -> list[File]:
    missing = [name for name in names if name not in sizes]
    if missing:
        raise BadInput(f'Task "{task}" uses file "{missing[0]}", which "files" does not list; add it there.')
    return [File(name, own[at] if own else sizes[name]) for at, name in enumerate(names)]


def _size(file: dict[str, Any]) -> float:
    size = float(file.get("sizeInBytes", file.get("size", 0)) or 0)
    if size < 0 or not math.isfinite(size):
        name = file.get("id", file.get("name"))
        raise BadInput(f'File "{name}" has size {size:g} bytes; give a size of zero or more.')
    return size


def _activation(task: _Task) -> Activation:
    return Activation(
        task.id,
        task.program,
        task.runtime_s,
        tuple(task.inputs),
        tuple(task.outputs),
        task.command,
        {str(machine): float(run_s) for machine, run_s in task.own.get("runtimesInSeconds", {}).items()},
        tuple(task.own.get("members", ())),
        task.cores,
        float(task.own.get("askedMemoryInBytes", 0.0)),
        task.usage,
    )


def _edges(tasks: list[_Task]) -> Iterable[tuple[str, str]]:
    """Version 1.4 refers to relatives by name, 1.5 by id; take whichever is meant."""
    ids = {task.id for task in tasks}
    by_name = {task.name: task.id for task in tasks}
    for task in tasks:
        for parent, child in task.relatives:
            yield (
                parent if parent in ids else by_name.get(parent, parent),
                child if child in ids else by_name.get(child, child),
            )


def _list(body: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    entries = body.get(key)
    if not isinstance(entries, list) or not entries:
        raise BadInput(f'The {where} has no list of "{key}"; give a WfFormat file with at least one.')
    return entries
