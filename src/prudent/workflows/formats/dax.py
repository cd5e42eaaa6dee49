"""Pegasus DAX, versions 2 and 3: `job` with its `uses`, then `child`/`parent` edges."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from xml.etree import ElementTree

from prudent.core.errors import BadInput
from prudent.workflows.activation import Activation, File
from prudent.workflows.workflow import Workflow

SHORTEST_RUN_S = 0.1
"""Traces round short runs down to nothing; WorkflowSim counts them as 0.1 s at 1000 MIPS, and so do we."""


_GENERATOR_STAMP = {"version", "count", "index", "jobCount", "fileCount", "childCount"}


@dataclass
class _DaxParts:
    """What the reader has collected from the elements so far."""

    generated: bool
    activations: list[Activation] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)
    mended: int = 0
    short: int = 0


def parse(text: str, name: str = "workflow") -> Workflow:
    """Build the workflow that a DAX document describes.

    The generator of the public gallery has faults. They are mended only in files that bear its stamp (DAX 2
    with its five counters), and the workflow's notes tell what was mended. Run times below zero are taken as
    the shortest. Sizes below zero lose their sign where writer and readers agree on them. All Montage
    activations write a `fit.txt` of their own under one name: such files become `gathered`. Edges are taken
    as declared, without those that shared files would add.
    """
    try:
        root = ElementTree.fromstring(text.encode())
    except ElementTree.ParseError as error:
        raise BadInput(f'"{name}" is not well-formed XML ({error}); give a DAX file.') from None
    if _local(root.tag) != "adag":
        raise BadInput(f'"{name}" starts with <{_local(root.tag)}>, not <adag>; give a DAX file.')
    stamped = set(root.attrib) >= _GENERATOR_STAMP and root.get("version", "").startswith("2.")
    trace = _DaxParts(stamped)
    agreed = _agreed_negative(root) if stamped else set()
    for element in root:
        tag = _local(element.tag)
        if tag in {"job", "dag", "dax"}:
            trace.activations.append(_activation(element, trace, agreed))
        elif tag == "child":
            child = _needed(element, "ref")
            trace.edges += [
                (_needed(parent, "ref"), child) for parent in element if _local(parent.tag) == "parent"
            ]
    return _finish(trace, name)


def _finish(trace: _DaxParts, name: str) -> Workflow:
    several = _several_writers(trace.activations) if trace.generated else frozenset()
    gathered = several | (_undeclared(trace) if trace.generated else frozenset())
    notes = []
    if trace.mended:
        notes.append(f"{trace.mended} file sizes below zero were taken without their sign")
    if trace.short:
        notes.append(f"{trace.short} run times below zero were taken as {SHORTEST_RUN_S} s")
    if several:
        notes.append(f"files with several writers, one copy each: {', '.join(sorted(several))}")
    return Workflow(name, tuple(trace.activations), tuple(trace.edges), gathered, tuple(notes))


def _activation(job: ElementTree.Element, trace: _DaxParts, agreed: set[str]) -> Activation:
    name = _needed(job, "id")
    runtime = job.get("runtime")
    command: tuple[str, ...] = ()
    inputs: list[File] = []
    outputs: list[File] = []
    for element in job:
        tag = _local(element.tag)
        if tag == "uses":
            file, link = _uses(element, name, trace, agreed)
            if link in {"input", "inout"}:
                inputs.append(file)
            if link in {"output", "inout"}:
                outputs.append(file)
        elif tag == "argument":
            words = "".join(_argument_text(element))
            command = (job.get("name", name), *shlex.split(words))
        elif tag == "profile" and runtime is None and (element.get("key") or "").lower() == "runtime":
            runtime = element.text
    least = -math.inf if trace.generated else 0.0
    runtime_s = _number(runtime or "0", f'run time of job "{name}"', least)
    trace.short += runtime_s < 0
    runtime_s = max(runtime_s, SHORTEST_RUN_S)
    return Activation(name, job.get("name", ""), runtime_s, tuple(inputs), tuple(outputs), command)


def _uses(element: ElementTree.Element, job: str, trace: _DaxParts, agreed: set[str]) -> tuple[File, str]:
    name = element.get("name") or element.get("file")
    if not name:
        raise BadInput(f'Job "{job}" uses a file without a name; give it a "name" or "file" attribute.')
    link = (element.get("link") or "").lower()
    if link not in {"input", "output", "inout", "none", "checkpoint"}:
        raise BadInput(f'Job "{job}" uses "{name}" with link "{link}"; say "input", "output" or "inout".')
    size = float(_number(element.get("size") or "0", f'size of "{name}" in job "{job}"', least=-math.inf))
    if size < 0 and name in agreed:
        trace.mended += 1
        size = -size
    return File(name, size), link


def _agreed_negative(root: ElementTree.Element) -> set[str]:
    """Files that the workflow writes itself, whose one size for writer and readers is below zero."""
    sizes: defaultdict[str, set[str]] = defaultdict(set)
    written: set[str] = set()
    for element in root.iter():
        if _local(element.tag) == "uses":
            name = element.get("name") or element.get("file") or ""
            sizes[name].add(element.get("size") or "0")
            if element.get("link") == "output":
                written.add(name)
    return {name for name in written if len(sizes[name]) == 1 and next(iter(sizes[name])).startswith("-")}


def _several_writers(activations: list[Activation]) -> frozenset[str]:
    counts = Counter(
        name for activation in activations for name in {file.name for file in activation.outputs}
    )
    return frozenset(name for name, count in counts.items() if count > 1)


def _undeclared(trace: _DaxParts) -> frozenset[str]:
    """Files that would add an edge that is not declared: a trace of a real run knows what ran before what."""
    edges = set(trace.edges)
    writer = {file.name: activation.id for activation in trace.activations for file in activation.outputs}
    return frozenset(
        name
        for activation in trace.activations
        for name in activation.staged()
        if name in writer and (writer[name], activation.id) not in edges
    )


def _argument_text(element: ElementTree.Element) -> list[str]:
    """The argument's words; `<filename file="x"/>` inside it stands for the file's name."""
    parts = [element.text or ""]
    for inner in element:
        parts += [inner.get("name") or inner.get("file") or "", inner.tail or ""]
    return parts


def _needed(element: ElementTree.Element, attribute: str) -> str:
    value = element.get(attribute)
    if not value:
        raise BadInput(f'A <{_local(element.tag)}> has no "{attribute}"; add the attribute.')
    return value


def _number(text: str, what: str, least: float = 0.0) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f'The {what} is "{text}"; give a number.') from None
    if not value >= least or math.isinf(value):
        raise BadInput(f"The {what} is {text}; give a finite number of zero or more.")
    return value


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
