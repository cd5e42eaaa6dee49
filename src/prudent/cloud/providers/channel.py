"""The contract of a way into a machine: run commands, move files; asking several at once."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, Self, TypeVar

from prudent.core.errors import BadInput, PrudentError

T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 16


class RemoteProcess(Protocol):
    """A command under way on a machine. Its output is read by the caller, as bytes, as it comes."""

    @property
    def stdout(self) -> IO[bytes]: ...

    @property
    def stderr(self) -> IO[bytes]: ...

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code (negative for a signal); None if it still runs. -256 if the machine was lost."""

    def end(self, grace_s: float) -> None:
        """Ask it and everything it started to end, kill what is left after `grace_s`; waits for it."""


LOST = -256
"""The exit code of a command whose machine is gone."""


class Channel(Protocol):
    """One machine, entered. Thread-safe."""

    @property
    def workspace(self) -> str:
        """A folder on the machine that is this cluster's own, removed when the machine is given back."""

    def start(
        self, command: str, environment: Mapping[str, str] | None = None, directory: str | None = None
    ) -> RemoteProcess:
        """Run a shell command, in `directory` under the workspace (or the workspace itself)."""

    def run(
        self, command: str, environment: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> tuple[int, str, str]:
        """Run a short command to its end: exit code, output, errors."""

    def put(self, source: Path, target: str, exclude: Sequence[str] = ()) -> int:
        """Bring a file or a folder to `target` under the workspace; answers the bytes moved.

        What is there already with the same size and time is not moved again; see `excluded`.
        """

    def get(self, source: str, target: Path) -> int:
        """Fetch a file or folder from under the workspace; no path out of `target` is written."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def inside(path: str) -> str:
    """A path under the workspace, checked; BadInput if it leads out of it.

    >>> inside("results/./a"), inside("")
    ('results/a', '.')
    >>> inside("../secret")
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: "../secret" leads out of the workspace; give a path below it.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise BadInput(f'"{path}" leads out of the workspace; give a path below it.')
    return str(pure)


def excluded(name: str, patterns: Sequence[str]) -> bool:
    """Whether a path is not to be brought to a machine.

    A pattern means a path from the folder on (`data/*.csv`), or a name anywhere in it (`*.pyc`, `.git`).

    >>> excluded("src/.git/config", [".git"]), excluded("data/a.csv", ["data/*"]), excluded("a.csv", ["b*"])
    (True, True, False)
    """
    parts = name.split("/")
    for pattern in patterns:
        bare = pattern.rstrip("/")
        if fnmatch.fnmatchcase(name, bare) or any(fnmatch.fnmatchcase(part, bare) for part in parts):
            return True
    return False


def concurrently(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The answers in order; it is other machines that work, so all are asked side by side."""
    if len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as several:
        return list(several.map(work, items))


def attempts(work: Callable[[T], R], items: Sequence[T]) -> list[R | PrudentError]:
    """The answers in order, side by side; where the work failed, the answer is its error."""

    def attempt(item: T) -> R | PrudentError:
        try:
            return work(item)
        except PrudentError as error:
            return error

    return concurrently(attempt, items)


def on_all(work: Callable[[T], object], items: Sequence[T]) -> None:
    """Do the work on every item, side by side; then raise the first error, if there was one."""
    for answer in attempts(work, items):
        if isinstance(answer, PrudentError):
            raise answer
