"""The way into a machine on this computer: commands there, and copies of files that differ."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from prudent.cloud.leases import dead_mans_switch
from prudent.cloud.process_sampler import ProcessSampler
from prudent.cloud.processes import (
    COOKIE,
    OlderProcesses,
    ProcessInfo,
    end_processes,
    processes_of_run,
    signal_processes,
)
from prudent.cloud.providers.channel import LOST, excluded, inside
from prudent.cloud.providers.local.machine import LocalMachine
from prudent.core.errors import RunFailed

_NOTHING = Path(os.devnull)
_under_way: set[subprocess.Popen[bytes]] = set()
"""Held until they end: a command goes on when nobody looks at it any more, and must be counted then."""


class _Output(io.BufferedReader):
    """The reading end of a pipe that closes itself without complaint: callers may have read enough."""

    def __del__(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.close()


class LocalProcess:
    """A command on a local machine; processes that it leaves behind live until the machine ends."""

    def __init__(
        self, machine: LocalMachine, popen: subprocess.Popen[bytes], cookie: str, outputs: Sequence[IO[bytes]]
    ) -> None:
        self.stdout, self.stderr = outputs
        self._machine = machine
        self._popen = popen
        self._cookie = cookie
        self._lock = threading.Lock()
        self._code: int | None = None

    def wait(self, timeout_s: float | None = None) -> int | None:
        try:
            code = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        with self._lock:
            if self._code is None:
                # Asked once, at its end: a machine that ends later has taken nothing from it.
                self._code = code if self._machine.alive else LOST
            return self._code

    def end(self, grace_s: float) -> None:
        end_processes(self._members, self._signal, grace_s)
        self.wait()

    def sampler(self) -> ProcessSampler:
        """Readings of it alone: the computer is not its own."""
        return ProcessSampler(None, self._members)

    def _members(self, older: OlderProcesses | None = None) -> list[ProcessInfo]:
        running = self._popen.poll() is None
        return processes_of_run(self._cookie, self._popen.pid if running else None, older)

    def _signal(self, members: list[ProcessInfo], number: signal.Signals) -> None:
        grouped = self._popen.poll() is None
        if grouped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)
        # The group got it in one stroke; a second one would make many programs give up their clean-up.
        signal_processes([one for one in members if not (grouped and one.group == self._popen.pid)], number)


class LostProcess:
    """What comes of a command for a machine that is gone: nothing."""

    def __init__(self) -> None:
        self.stdout: IO[bytes] = _NOTHING.open("rb")
        self.stderr: IO[bytes] = _NOTHING.open("rb")

    def wait(self, timeout_s: float | None = None) -> int:
        return LOST

    def end(self, grace_s: float) -> None:
        pass


class LocalChannel:
    """A machine on this computer, entered."""

    def __init__(self, machine: LocalMachine, cluster: str) -> None:
        self._machine = machine
        self._cluster = cluster

    @property
    def workspace(self) -> str:
        return str(self._machine.workspace)

    def start(
        self, command: str, environment: Mapping[str, str] | None = None, directory: str | None = None
    ) -> LocalProcess | LostProcess:
        pipes = [os.pipe(), os.pipe()]
        outputs = [_Output(io.FileIO(reading, "rb")) for reading, _ in pipes]
        try:
            popen = self._popen(command, environment, directory, *(writing for _, writing in pipes))
        finally:
            for _, writing in pipes:
                os.close(writing)
        return LostProcess() if popen is None else LocalProcess(self._machine, *popen, outputs)

    def run(
        self, command: str, environment: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> tuple[int, str, str]:
        # Files, not pipes: a daemon that the command starts would keep a pipe open, and us waiting.
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
            popen = self._popen(command, environment, None, said, complained)
            if popen is None:
                return LOST, "", f"The machine {self._machine.id} is gone."
            started = LocalProcess(self._machine, *popen, (said, complained))
            try:
                code = started.wait(timeout_s)
            except BaseException:
                started.end(grace_s=0.0)
                raise
            if code is None:
                started.end(grace_s=0.0)
                raise RunFailed(f'"{command}" did not end within {timeout_s:g} s on {self._machine.id}.')
            return code, _text(said), _text(complained)

    def put(self, source: Path, target: str, exclude: Sequence[str] = ()) -> int:
        place = self._machine.workspace / inside(target)
        self._must_be_there()
        return copy_changed(source, place, exclude)

    def get(self, source: str, target: Path) -> int:
        place = self._machine.workspace / inside(source)
        self._must_be_there()
        if not place.exists():
            raise RunFailed(f"There is no {source} on the machine {self._machine.id}; check what wrote it.")
        return copy_changed(place, target, follow=False)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _must_be_there(self) -> None:
        if not self._machine.alive:
            raise RunFailed(f"The machine {self._machine.id} is gone; launch another one.")

    def _popen(
        self, command: str, environment: Mapping[str, str] | None, directory: str | None, out: Any, err: Any
    ) -> tuple[subprocess.Popen[bytes], str] | None:
        """The command under way, and the word it is known by; None if the machine is gone."""
        if not self._machine.alive:
            return None
        place = self._machine.workspace / inside(directory or "")
        cookie = secrets.token_hex(16)
        try:
            popen = subprocess.Popen(
                self._machine.limits.arguments(command),
                cwd=place,
                env=self._environment(environment or {}, cookie),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except (OSError, RunFailed) as error:
            if not self._machine.alive:
                return None
            raise RunFailed(f'Cannot start "{command}" in {place} ({error}).') from error
        _under_way.difference_update([one for one in tuple(_under_way) if one.poll() is not None])
        _under_way.add(popen)
        return popen, cookie

    def _environment(self, given: Mapping[str, str], cookie: str) -> dict[str, str]:
        outer = os.environ.get(COOKIE)
        vcpus = str(self._machine.vcpus)
        own = {
            **dead_mans_switch.cluster_environment(self._cluster, self._machine.id, os.environ),
            COOKIE: f"{outer}:{cookie}" if outer else cookie,
            "PRUDENT_VCPUS": vcpus,
        }
        # Programs that count the computer's cores instead of the machine's would only hinder themselves.
        return {"OMP_NUM_THREADS": vcpus, **os.environ, **given, **own}


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def copy_changed(source: Path, target: Path, exclude: Sequence[str] = (), follow: bool = True) -> int:
    """Bring a file or folder to `target`; answers the bytes that had to be moved.

    Links that stay inside the source are copied as links. Of those that lead out of it the target is
    copied; without `follow` they are left out, since a link that a job has made may lead anywhere. Nothing
    is written through a link that is at the target already.
    """
    if not source.exists():
        raise RunFailed(f"There is no {source} to copy; check the path.")
    try:
        if source.is_dir():
            return _copy_folder(source, target, exclude, follow)
        target.parent.mkdir(parents=True, exist_ok=True)
        return _copy_file(source, target)
    except OSError as error:
        raise RunFailed(f"Cannot copy {source} ({error.strerror}); make room or check rights.") from error


def _copy_folder(source: Path, target: Path, exclude: Sequence[str], follow: bool) -> int:
    moved = 0
    root = source.resolve()
    _make_folder(target)
    for entry, relative in _walk(source, "", exclude):
        place, path = target / relative, Path(entry.path)
        if entry.is_symlink():
            if _stays_inside(path, root):
                _clear(place)
                place.symlink_to(os.readlink(path))
            elif follow and path.is_dir() and path.resolve() not in (root, *root.parents):
                moved += _copy_folder(path, place, exclude, follow)
            elif follow and path.is_file():
                moved += _copy_file(path, place)
        elif entry.is_dir():
            _make_folder(place)
        elif entry.is_file():
            moved += _copy_file(path, place)
    return moved


def _stays_inside(link: Path, root: Path) -> bool:
    leads_to = link.resolve()
    return not os.path.isabs(os.readlink(link)) and (root == leads_to or root in leads_to.parents)


def _walk(folder: Path, before: str, exclude: Sequence[str]) -> Iterator[tuple[os.DirEntry[str], str]]:
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        relative = f"{before}{entry.name}"
        if excluded(relative, exclude):
            continue
        yield entry, relative
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{relative}/", exclude)


def _make_folder(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        target.unlink()
    target.mkdir(parents=True, exist_ok=True)


def _copy_file(source: Path, target: Path) -> int:
    there = source.stat()
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    if target.is_file() and not target.is_symlink():
        here = target.stat()
        if (here.st_size, here.st_mtime_ns) == (there.st_size, there.st_mtime_ns):
            return 0
    fresh = target.with_name(f".{target.name[:200]}.{os.getpid()}.new")
    try:
        shutil.copy2(source, fresh)
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    return there.st_size


def _clear(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
