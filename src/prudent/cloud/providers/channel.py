"""The contract of a way into a machine: run commands, move files; asking several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Protocol, Self, TypeVar

from prudent.core.errors import PrudentError

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

        What is there already with the same size and time is not moved again.
        """

    def get(self, source: str, target: Path) -> int:
        """Fetch a file or folder from under the workspace; no path out of `target` is written."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


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
