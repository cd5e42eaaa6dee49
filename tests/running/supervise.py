"""Runs a command and fails on what it leaves behind: processes, listening sockets, temporary folders.

    python tests/running/supervise.py pytest -n 3

The command gets a temporary directory of its own. Linux gives every orphan below this process to this process
(a "child subreaper"), so nothing that tests start escapes the count, however it was detached.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

PATIENCE_S = 30.0
"""How long what was told to end may take to be gone; a busy machine needs some of it."""
OWN_NAMES = ("spark-", "blockmgr-", "torch", "prudent", "dask-", "pymp-", "artifacts-")
"""What our programs call their temporary folders where they do not heed TMPDIR (Java does not)."""
_PR_SET_CHILD_SUBREAPER = 36
_RUN_PREFIX = "prudent-tests-"
_KEPT_PREFIX = "pytest-of-"
"""What belongs to the run itself and goes with it."""


def main(command: list[str]) -> int:
    """The command's exit code, or 1 if it was 0 and something is left."""
    system = Path(tempfile.gettempdir())
    others = {path.name for path in system.glob(_RUN_PREFIX + "*")}
    before = set(os.listdir(system))
    temporary = Path(tempfile.mkdtemp(prefix=_RUN_PREFIX))
    temporary.chmod(0o755)  # some tests work as another user
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = _run(command, temporary)
    left = [*_processes_left(), *_folders_left(temporary)]
    beside = sorted(_own_folders(system, before))
    if others or len(list(system.glob(_RUN_PREFIX + "*"))) > 1:
        beside = []  # another run works on this computer: which of the two left these is not known
    left += [f"folder {system / name}" for name in beside if not _in_use(system / name)]
    if code == 0 and not left:
        shutil.rmtree(temporary, ignore_errors=True)
        return 0
    if left:
        print("\nleft behind by the tests:", *(f"  {one}" for one in left), sep="\n", flush=True)
    print(f"the run's temporary directory is kept: {temporary}", flush=True)
    return code or 1


def _run(command: list[str], temporary: Path) -> int:
    # torch keeps a cache beside temporary files for as long as the computer runs: here it is the run's own.
    torch_cache = str(temporary / f"{_KEPT_PREFIX}torch")
    environment = {**os.environ, "TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": torch_cache}
    child = subprocess.Popen(command, env=environment)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Ctrl-C reaches the child through the terminal; the others must be passed on.
        signal.signal(number, lambda n, _: None if n == signal.SIGINT else child.send_signal(n))
    while True:  # as init does: orphans that end are taken note of at once
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status) % 256


def _processes_left() -> list[str]:
    """What still runs after a while, told and ended."""
    deadline = time.monotonic() + PATIENCE_S
    while (alive := _descendants()) and time.monotonic() < deadline:
        time.sleep(0.1)
    told = [" ".join(_words(one)) for one in alive]
    for one in alive:
        one.kill()
    psutil.wait_procs(alive, timeout=PATIENCE_S)
    return told


def _descendants() -> list[psutil.Process]:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            return []
    return [one for one in psutil.Process().children(recursive=True) if _alive(one)]


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _words(process: psutil.Process) -> Iterator[str]:
    try:
        yield f"process {process.pid}: {' '.join(process.cmdline())[:300]}"
        ports = [c.laddr for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        if ports:
            yield "listening on " + ", ".join(f"{port.ip}:{port.port}" for port in ports)
    except psutil.Error:
        yield "(gone meanwhile)"


def _folders_left(temporary: Path) -> list[str]:
    left = (path for path in sorted(temporary.iterdir()) if not path.name.startswith(_KEPT_PREFIX))
    return [f"folder {path}" for path in left]


def _own_folders(system: Path, before: set[str]) -> set[str]:
    new = set(os.listdir(system)) - before
    return {name for name in new if name.startswith(OWN_NAMES) and not name.startswith(_RUN_PREFIX)}


def _in_use(folder: Path) -> bool:
    """Whether a process works with it: none of the run's is left by now, so it is another program's."""
    path = os.fsencode(folder)
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if path in said or (process / "cwd").readlink().is_relative_to(folder):
                return True
        except OSError:  # ended, or of another user
            continue
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
