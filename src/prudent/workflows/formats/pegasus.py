"""Pegasus 5 YAML: `workflow.yml` with the catalogs that are in the file; reads it and writes it.

Run times, cores and memory are profiles, of a job or of its transformation: `pegasus: {runtime, cores,
memory}` or `condor: {request_cpus, request_memory}`, memory in MB of 2^20 bytes. What the format has no place
for is kept under `x-prudent`, since it allows extensions that begin with `x-`.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import yaml

from prudent.core.errors import BadInput
from prudent.workflows.activation import Activation, File, Usage
from prudent.workflows.workflow import Workflow

MB = 1024.0**2

_LINKS = ("input", "output", "inout", "checkpoint", "none")
_UNSAFE = re.compile(r"[^0-9A-Za-z_-]")
_NUMBER = re.compile(r"\s*\d+(\.\d+)?\s*")


def parse(text: str, name: str = "workflow") -> Workflow:
    """Build the workflow that a Pegasus 5 document describes."""
    try:
        document = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  a safe loader
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise BadInput(f'"{name}" is not valid YAML ({where}); give a Pegasus 5 workflow.') from None
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list) or not document["jobs"]:
        raise BadInput(f'"{name}" has no list of "jobs"; give a Pegasus 5 workflow (workflow.yml).')
    try:
        return _workflow(document, name)
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise BadInput(
            f'"{name}" does not follow the Pegasus 5 format ({type(error).__name__}: {error}); write it with '
            "Pegasus' own API."
        ) from None


def _workflow(document: Mapping[str, Any], name: str) -> Workflow:
    own = document.get("x-prudent") or {}
    transformations: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for entry in (document.get("transformationCatalog") or {}).get("transformations") or []:
        transformations[_key(entry)] = entry
    sizes = _sizes(document)
    activations, timeless = [], 0
    for job in document["jobs"]:
        transformation = transformations.get(_key(job), {})
        activation, timed = _activation(
            job, transformation, sizes, (own.get("jobs") or {}).get(job["id"]) or {}
        )
        activations.append(activation)
        timeless += not timed
    ids = {_word(job["id"]): each.id for job, each in zip(document["jobs"], activations, strict=True)}
    edges = [
        (ids.get(_word(entry["id"]), _word(entry["id"])), ids.get(_word(child), _word(child)))
        for entry in document.get("jobDependencies") or []
        for child in entry.get("children") or []
    ]
    notes = []
    if timeless:
        notes.append(
            f"{timeless} of {len(activations)} jobs have no run time, and count as none: give the Pegasus "
            'profile "runtime" (seconds), or learn it from a run'
        )
    gathered = frozenset(own.get("gathered") or ())
    title = _word(own.get("name") or document.get("name") or name)
    return Workflow(title, tuple(activations), tuple(edges), gathered, tuple(notes))


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return _word(entry.get("namespace")), _word(entry.get("name")), _word(entry.get("version"))


def _word(value: Any) -> str:
    """A scalar as text: what is nested is no name, and may be huge once it is written out."""
    if isinstance(value, list | dict):
        raise TypeError("a list or a mapping where a word belongs")
    return "" if value is None else str(value)


def _sizes(document: Mapping[str, Any]) -> dict[str, float]:
    """Sizes by logical name: those of the replica catalog, then those that any job declares."""
    sizes: dict[str, float] = {}
    uses = (use for job in document["jobs"] for use in job.get("uses") or [])
    replicas = (document.get("replicaCatalog") or {}).get("replicas") or []
    for entry in (*replicas, *uses):
        size = entry.get("size", (entry.get("metadata") or {}).get("size"))
        if size is not None:
            sizes.setdefault(_word(entry["lfn"]), float(size))
    return sizes


def _activation(
    job: Mapping[str, Any],
    transformation: Mapping[str, Any],
    sizes: Mapping[str, float],
    own: Mapping[str, Any],
) -> tuple[Activation, bool]:
    """A job, and whether its run time is known."""
    name = _word(own.get("id") or job["id"])
    inputs, outputs = [], []
    for use in job.get("uses") or []:
        link, lfn = _word(use.get("type")), _word(use["lfn"])
        if link not in _LINKS:
            raise BadInput(f'Job "{name}" uses "{lfn}" as "{link}"; say "input", "output" or "inout".')
        size = use.get("size", (use.get("metadata") or {}).get("size", sizes.get(lfn, 0.0)))
        if link in {"input", "inout"}:
            inputs.append(File(lfn, float(size)))
        if link in {"output", "inout"}:
            outputs.append(File(lfn, float(size)))
    sites = transformation.get("sites") or [{}]
    profiles = [each.get("profiles") or {} for each in (job, transformation, sites[0])]
    runtime_s = _profile(profiles, ("pegasus", "runtime"))
    activation = Activation(
        name,
        _word(job.get("name") or job.get("file") or name),
        runtime_s or 0.0,
        tuple(inputs),
        tuple(outputs),
        _command(job, sites[0].get("pfn")),
        {str(machine): float(run_s) for machine, run_s in (own.get("runtimes_s") or {}).items()},
        tuple(own.get("members") or ()),
        _profile(profiles, ("pegasus", "cores"), ("condor", "request_cpus")) or 0.0,
        (_profile(profiles, ("pegasus", "memory"), ("condor", "request_memory")) or 0.0) * MB,
        Usage(**own.get("usage", {})),
    )
    return activation, runtime_s is not None


def _profile(profiles: Iterable[Mapping[str, Any]], *keys: tuple[str, str]) -> float | None:
    """The first number under one of these keys: the job's own, else its transformation's.

    Expressions of Condor, which are known only when the job is submitted, are passed over.
    """
    for profile in profiles:
        for namespace, key in keys:
            value = (profile.get(namespace) or {}).get(key)
            if value is not None and _NUMBER.fullmatch(_word(value)):
                return float(value)
    return None


def _command(job: Mapping[str, Any], pfn: str | None) -> tuple[str, ...]:
    """The program and its arguments, if the transformation catalog says where the program is."""
    if pfn is None:
        return ()
    words = (
        _word(pfn).removeprefix("file://"),
        *shlex.split(" ".join(map(_word, job.get("arguments") or []))),
    )
    ends = (("<", job.get("stdin")), (">", job.get("stdout")), ("2>", job.get("stderr")))
    joints = [f"{sign} {shlex.quote(_word(file))}" for sign, file in ends if file]
    return ("sh", "-c", " ".join([shlex.join(words), *joints])) if joints else words


def render(workflow: Workflow) -> str:
    """The workflow as a Pegasus 5 document, with its programs as a transformation catalog."""
    ids = _safe_ids(activation.id for activation in workflow.activations)
    programs: dict[tuple[str, str], str] = {}
    jobs, own = [], {}
    for activation in workflow.activations:
        name, pfn = activation.program or activation.id, (*activation.command, "")[0]
        spaces = [place for (known, _), place in programs.items() if known == name]
        # Two programs of one name need a namespace to be told apart.
        space = programs.setdefault((name, pfn), f"n{len(spaces) + 1}" if spaces else "")
        jobs.append(_job(activation, ids[activation.id], name, space))
        if kept := _own(activation, ids[activation.id]):
            own[ids[activation.id]] = kept
    document: dict[str, Any] = {"pegasus": "5.0", "name": _UNSAFE.sub("_", workflow.name) or "workflow"}
    extension = {"name": workflow.name, "gathered": sorted(workflow.gathered), "jobs": own}
    document["x-prudent"] = {key: value for key, value in extension.items() if value}
    document["transformationCatalog"] = {
        "transformations": [
            {
                **({"namespace": space} if space else {}),
                "name": name,
                "sites": [{"name": "local", "pfn": pfn, "type": "installed"}],
            }
            for (name, pfn), space in programs.items()
            if pfn
        ]
    }
    if not document["transformationCatalog"]["transformations"]:
        del document["transformationCatalog"]
    document["jobs"] = jobs
    children: defaultdict[str, list[str]] = defaultdict(list)
    for parent, child in workflow.edges:
        children[ids[parent]].append(ids[child])
    if children:
        document["jobDependencies"] = [{"id": one, "children": each} for one, each in children.items()]
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110))


def _job(activation: Activation, safe_id: str, name: str, space: str) -> dict[str, Any]:
    job: dict[str, Any] = {"type": "job", "name": name, "id": safe_id}
    if space:
        job["namespace"] = space
    if safe_id != activation.id:
        job["nodeLabel"] = activation.id
    job["arguments"] = [shlex.quote(word) for word in activation.command[1:]]
    written = {file.name for file in activation.outputs}
    read = {file.name for file in activation.inputs}
    files = {file.name: file for file in (*activation.inputs, *activation.outputs)}
    job["uses"] = [
        {
            "lfn": file.name,
            "type": "inout" if file.name in written & read else "input" if file.name in read else "output",
            "size": _whole(file.size_bytes),
        }
        for file in files.values()
    ]
    profile = {"runtime": _whole(activation.runtime_s)}
    if activation.cores:
        profile["cores"] = _whole(activation.cores)
    if activation.memory_bytes:
        profile["memory"] = _whole(activation.memory_bytes / MB)
    return job | {"profiles": {"pegasus": profile}}


def _own(activation: Activation, safe_id: str) -> dict[str, Any]:
    """What Pegasus has no place for."""
    kept: dict[str, Any] = {} if safe_id == activation.id else {"id": activation.id}
    if activation.runtimes_s:
        kept["runtimes_s"] = dict(activation.runtimes_s)
    if activation.members:
        kept["members"] = list(activation.members)
    if activation.usage != Usage():
        kept["usage"] = asdict(activation.usage)
    return kept


def _safe_ids(names: Iterable[str]) -> dict[str, str]:
    """An id of letters, digits, "-" and "_" for every activation, as Pegasus wants them."""
    safe: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        word, number = _UNSAFE.sub("_", name), 1
        while word in taken:
            number += 1
            word = f"{_UNSAFE.sub('_', name)}-{number}"
        taken.add(word)
        safe[name] = word
    return safe


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value
