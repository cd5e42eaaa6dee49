"""Needs in the words of an engine: a `nextflow.config`, or the profile of Snakemake."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from prudent.core.errors import BadInput
from prudent.workflows.sizing.needs import ProgramNeeds
from prudent.workflows.sizing.predictor import Prediction

_ATTEMPTS, _LEAST_MB = 3, 64
_MIB, _MB = 2.0**20, 1e6


def write_settings(needs: Sequence[ProgramNeeds], path: Path) -> Path:
    """Write `*.config` for Nextflow; `*.yaml`, or a folder for a `config.yaml`, for Snakemake."""
    if path.suffix == ".config":
        text = nextflow_config(needs)
    elif path.suffix in {".yaml", ".yml", ""}:
        path, text = path if path.suffix else path / "config.yaml", snakemake_profile(needs)
    else:
        raise BadInput(
            f'"{path}" names no engine: end it in ".config" for Nextflow, or in ".yaml" for Snakemake.'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def nextflow_config(needs: Sequence[ProgramNeeds]) -> str:
    """A configuration with cpus, memory and time of every process; what runs out of memory gets more."""
    lines = [
        "// What each process needs, as earlier runs measured it: prudent workflow size",
        "process {",
        "    errorStrategy = { task.exitStatus in ((130..145) + 104 + 247) ? 'retry' : 'finish' }",
        f"    maxRetries = {_ATTEMPTS - 1}",
    ]
    for each in needs:
        name = each.program.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"    withName: '{name}' {{")
        if each.cores:
            lines.append(f"        cpus = {each.cores}")
        if each.memory:
            first, then = _attempts(each.memory, _MIB)
            more = f"{then}.MB * (2 ** (task.attempt - 2))"
            lines.append(f"        memory = {{ task.attempt == 1 ? {first}.MB : {more} }}")
        if each.runtime:
            lines.append(f"        time = {{ {_minutes(each)}.min * task.attempt }}")
        lines.append("    }")
    return "\n".join([*lines, "}", ""])


def snakemake_profile(needs: Sequence[ProgramNeeds]) -> str:
    """A profile with threads, memory and run time of every rule; a rule's `threads` are an upper limit."""
    resources: dict[str, dict[str, Any]] = {}
    for each in needs:
        own: dict[str, Any] = {}
        if each.memory:
            first, then = _attempts(each.memory, _MB)
            own["mem_mb"] = f"{first} if attempt == 1 else {then} * 2 ** (attempt - 2)"
        if each.runtime:
            own["runtime"] = f"{_minutes(each)} * attempt"
        if own:
            resources[each.program] = own
    document: dict[str, Any] = {"retries": _ATTEMPTS - 1}
    if threads := {each.program: each.cores for each in needs if each.cores}:
        document["set-threads"] = threads
    if resources:
        document["set-resources"] = resources
    head = "# What each rule needs, as earlier runs measured it: prudent workflow size\n"
    return head + str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110))


def _attempts(memory: Prediction, unit: float) -> tuple[int, int]:
    """Memory of the first attempt and of the second, in whole units; engines and containers need some too."""
    first = max(math.ceil(memory.given / unit), _LEAST_MB)
    return first, max(math.ceil(memory.retry / unit), first + 1)


def _minutes(needs: ProgramNeeds) -> int:
    return math.ceil(needs.time_limit_s / 60.0)
