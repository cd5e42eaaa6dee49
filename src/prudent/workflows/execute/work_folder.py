"""The folder in which commands run: fingerprints of its files, and whether inputs and programs are there."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.core.errors import BadInput

if TYPE_CHECKING:
    from prudent.workflows.execute.workers import VmWorkers
    from prudent.workflows.workflow import Workflow

DIGESTED_BYTES = 64_000_000
"""Larger files are known by size and time alone: reading them again would take longer than it is worth."""


Fingerprint = dict[str, Any]
"""`size` and `mtime_ns`, and the `digest` of its content where the file is not too large."""


def fingerprint_of(path: Path) -> Fingerprint | None:
    """The fingerprint of a file, None if it does not exist; of a folder only its existence counts."""
    try:
        seen = path.stat()
    except OSError:
        return None
    if path.is_dir():
        return {"size": 0, "mtime_ns": 0}
    known: Fingerprint = {"size": seen.st_size, "mtime_ns": seen.st_mtime_ns}
    if seen.st_size <= DIGESTED_BYTES:
        known["digest"] = _digest(str(path), seen.st_size, seen.st_mtime_ns, seen.st_ino)
    return known


def fingerprints_of(directory: str, names: Iterable[str]) -> dict[str, Fingerprint]:
    """The fingerprints of those files that exist."""
    found = {name: fingerprint_of(Path(directory, name)) for name in names}
    return {name: known for name, known in found.items() if known is not None}


def same_content(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether two fingerprints are of the same content, as far as they can tell.

    >>> same_content({"size": 3, "mtime_ns": 1, "digest": "a"}, {"size": 3, "mtime_ns": 2, "digest": "a"})
    True
    >>> same_content({"size": 3, "mtime_ns": 1}, {"size": 3, "mtime_ns": 2})
    False
    """
    if "digest" in one and "digest" in other:
        return bool(one["digest"] == other["digest"])
    return (one["size"], one["mtime_ns"]) == (other["size"], other["mtime_ns"])


def change_stamps(directory: str, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Inode and change time (ctime) of those files that exist: any write changes the latter."""
    marks = {}
    for name in names:
        try:
            seen = os.stat(Path(directory, name))
        except OSError:
            continue
        marks[name] = seen.st_ino, seen.st_ctime_ns
    return marks


@lru_cache(maxsize=65536)
def _digest(path: str, size: int, mtime_ns: int, inode: int) -> str:
    """Cached by size, time and inode: a file with many readers is read once."""
    del size, mtime_ns, inode
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def missing_programs(programs: Sequence[str]) -> list[str]:
    """Programs that this machine does not have; those named by a path may still be made by the workflow."""
    return [name for name in programs if "/" not in name and shutil.which(name) is None]


@dataclass(frozen=True)
class WorkFolder:
    """The folder in which commands run, seen from here, or by a worker if the workers are elsewhere."""

    directory: Path
    workers: VmWorkers | None = None
    programs: bool = True
    """Whether programs are checked, too; not if machines are rented later, which have their own."""

    def fingerprints(self, names: Iterable[str]) -> Mapping[str, Fingerprint]:
        """The fingerprints of those files that exist."""
        if self.workers is None or self.workers.copies_files:
            return fingerprints_of(str(self.directory), names)
        found: Mapping[str, Fingerprint] = self.workers.call(
            min(self.workers.vms), fingerprints_of, str(self.directory), list(names)
        )
        return found

    def absent_programs(self, programs: list[str]) -> list[str]:
        """Those of the programs that are missing."""
        if self.workers is None:
            return missing_programs(programs)
        found: list[str] = self.workers.call(min(self.workers.vms), missing_programs, programs)
        return found

    def check(self, workflow: Workflow) -> None:
        """BadInput if an input that no activation writes, or a program, is missing."""
        written = {file.name for activation in workflow.activations for file in activation.outputs}
        needed = {file.name: each.id for each in workflow.activations for file in each.inputs}
        given = sorted(name for name in needed if name not in written)
        found = self.fingerprints(given)
        lost = [name for name in given if name not in found]
        if lost:
            raise BadInput(
                f'Input "{lost[0]}" of "{needed[lost[0]]}" is not in {self.directory}'
                f"{f', nor are {len(lost) - 1} others' if len(lost) > 1 else ''}; put it there, or name the "
                "folder with --directory."
            )
        if self.programs:
            self.check_programs(workflow)

    def check_programs(self, workflow: Workflow) -> None:
        """BadInput if a program is missing."""
        absent = self.absent_programs(list(dict.fromkeys(each.command[0] for each in workflow.activations)))
        if absent:
            raise BadInput(
                f'The program "{absent[0]}" is not on the PATH where it should run; install it, or rehearse '
                "the plan with --replay."
            )
