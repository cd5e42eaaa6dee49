"""The sandbox of a process that runs commands of requests: it sees no secrets and cannot write to the home.

Two kinds: the process belongs to another account (`run_as`), or it lives in bubblewrap, where most of the
machine is there to be read, the home and the usual places of credentials are empty, and only the run's own
folder and /tmp can be written. Without either, commands can do whatever the service can.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import prudent
from prudent.core.errors import BadInput
from prudent.core.memory import total_mb
from prudent.service.settings import PREFIX, SECRETS, Settings

ACCOUNT, BUBBLEWRAP = "account", "bubblewrap"
NO_SANDBOX = (
    "Nothing separates the commands of requests from the service: whoever has the role commander can do what "
    "the operator can. Install bubblewrap, or set run_as."
)
PRIVATE = "private"
"""The folder of the run which is PRUDENT_HOME of its processes. The leases of machines are in it: it stays
when a process is gone, so that whoever comes after it finds the machines."""
_HOME = "home"
"""The folder below it in which a command finds its HOME; each process gets a new one."""
_HARMLESS = ("PATH", "LANG", "LANGUAGE", "TZ", "TERM", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV", "JAVA_HOME")
_HARMLESS_BEGINNINGS = ("LC_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "CUDA_", "NVIDIA_", "LD_LIBRARY_")
_CREDENTIALS = (
    ".aws",
    ".azure",
    ".boto",
    ".config",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".netrc",
    ".pgpass",
    ".ssh",
)
CACHE = Path(".cache") / "numba"
"""Where numba looks for what it has compiled, below HOME, if it cannot write beside the source."""
_DEVICES = ("nvidia*", "dri", "kfd")
_OWN = frozenset(f"{PREFIX}{name.upper()}{ending}" for name in SECRETS for ending in ("", "_FILE"))
_POSTGRES = frozenset({"PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE"})
"""Where PostgreSQL's library finds the password of a database whose URL has none."""


@dataclass(frozen=True)
class ProcessLimits:
    """The most that one process of a command may use, and how many there may be of an account."""

    memory_mb: float
    cpu_s: float
    processes: int
    file_mb: float

    def apply(self) -> None:
        """Apply the limits to this process and all that it starts."""
        for kind, most in (
            (resource.RLIMIT_DATA, self.memory_mb * (1 << 20)),
            (resource.RLIMIT_AS, 4 * self.memory_mb * (1 << 20)),  # much is reserved that is never used
            (resource.RLIMIT_CPU, self.cpu_s),
            (resource.RLIMIT_NPROC, self.processes),
            (resource.RLIMIT_FSIZE, self.file_mb * 1e6),
            (resource.RLIMIT_CORE, 0),
        ):
            hard = resource.getrlimit(kind)[1]
            least = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
            resource.setrlimit(kind, (least, least))


@dataclass(frozen=True)
class Sandbox:
    """How a process that runs commands is started."""

    kind: str
    """`ACCOUNT` or `BUBBLEWRAP`."""
    limits: ProcessLimits
    home: Path
    readable: tuple[Path, ...] = ()
    """Data folders."""
    hidden: tuple[Path, ...] = ()
    """What is not there in bubblewrap beside the home; a folder is empty and a file too."""
    account: str = ""
    passed: tuple[str, ...] = ()
    """Variables that the operator passes to commands."""

    def prepare(self, folder: Path) -> None:
        """Make the run's folder, with permissions for the sandboxed process."""
        private = folder / PRIVATE
        for path in (private, private / _HOME):
            if path.is_symlink() or path.is_file():  # left by a command, to have us write elsewhere
                path.unlink()
        shutil.rmtree(private / _HOME, ignore_errors=True)
        (private / _HOME).mkdir(parents=True)
        copy_compiled(private / _HOME)
        if self.kind == ACCOUNT:
            owner = pwd.getpwnam(self.account)
            for path in (self.home, folder.parent):
                _share(path, owner.pw_gid, 0o710)  # to pass through, not to look around
            for path in self.readable:
                _share(path, owner.pw_gid, 0o750)
            for path in (folder, *folder.rglob("*")):
                os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)

    def clear(self, folder: Path) -> None:
        """End what a process that is gone has left of a run; no note that a command could forge is heeded.

        Bubblewrap ends everything with itself.
        """
        if self.kind == ACCOUNT:
            _end(pwd.getpwnam(self.account).pw_uid, f"PRUDENT_HOME={folder / PRIVATE}".encode())

    def close(self, folder: Path) -> None:
        """Give the run's folder back to the service's account."""
        if self.kind == ACCOUNT and folder.is_dir():
            os.chown(folder, os.geteuid(), -1)
            folder.chmod(0o700)

    def command(self, words: Sequence[str], folder: Path) -> list[str]:
        return [*self._bubblewrap(folder), *words] if self.kind == BUBBLEWRAP else list(words)

    def options(self) -> dict[str, Any]:
        """Keyword arguments for `subprocess.Popen`."""
        if self.kind != ACCOUNT:
            return {}
        owner = pwd.getpwnam(self.account)
        return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": [], "umask": 0o077}

    def environment(self, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
        """What is known to be harmless, and what the operator passes; homes are folders of the run.

        Python finds this installation of Prudent.
        """
        kept = {name: value for name, value in environment.items() if self._passes(name)}
        installed = str(Path(prudent.__file__).parents[1])
        path = os.pathsep.join(part for part in (installed, os.environ.get("PYTHONPATH", "")) if part)
        homes = {"HOME": str(folder / PRIVATE / _HOME), "PRUDENT_HOME": str(folder / PRIVATE)}
        return {**kept, **homes, "PYTHONPATH": path}

    def _passes(self, name: str) -> bool:
        harmless = name in _HARMLESS or name.startswith(_HARMLESS_BEGINNINGS)
        return (harmless and name != "NUMBA_CACHE_DIR") or name in self.passed

    def _bubblewrap(self, folder: Path) -> Iterator[str]:
        yield from ("bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL")
        yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        for pattern in _DEVICES:
            for path in sorted(Path("/dev").glob(pattern)):
                yield from ("--dev-bind-try", str(path), str(path))
        yield from ("--tmpfs", "/tmp", "--tmpfs", "/run")
        yield from ("--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve")
        for path in _installed():
            yield from ("--ro-bind-try", str(path), str(path))
        for path in (*self.hidden, self.home):
            yield from _hide(path)
        for path in self.readable:
            yield from ("--ro-bind-try", str(path), str(path))
        yield from ("--bind", str(folder), str(folder), "--remount-ro", str(self.home.resolve()))
        yield from ("--chdir", str(folder), "--")


def sandbox_of(settings: Settings) -> Sandbox | None:
    """The sandbox that the settings ask for; None without one. BadInput if it cannot be had, or if it would
    let the service's own secrets through."""
    _check_passed(settings, os.environ)
    limits = ProcessLimits(
        settings.command_memory_mb or total_mb(),
        settings.command_cpu_s,
        settings.command_processes,
        settings.command_file_mb,
    )
    home, passed = settings.home.absolute(), settings.command_environment
    if settings.run_as is not None:
        account = _checked(settings.run_as)
        return Sandbox(ACCOUNT, limits, home, (home / "data",), account=account, passed=passed)
    if not settings.bubblewrap or not has_bubblewrap():
        return None
    readable = tuple(folder.absolute() for folder in settings.data_folders)
    return Sandbox(BUBBLEWRAP, limits, home, readable, tuple(_secrets(settings)), passed=passed)


@cache
def has_bubblewrap() -> bool:
    """Whether bubblewrap is here and works; some kernels and containers do not let it."""
    found = shutil.which("bwrap")
    if found is None:
        return False
    asked = [found, "--unshare-pid", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return subprocess.run(asked, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 0


def _check_passed(settings: Settings, environment: Mapping[str, str]) -> None:
    """Refuse to pass a secret of the service to commands, under its own name or another."""
    own = _OWN if settings.database.startswith("sqlite") else _OWN | _POSTGRES
    said = (getattr(settings, name) for name in SECRETS)
    secrets = {part for value in said if value for part in (value, _password(value)) if part}
    for name in settings.command_environment:
        value = environment.get(name, "")
        if name in own or not secrets.isdisjoint((value, _password(value))):
            raise BadInput(
                f"command_environment passes {name} to commands, a secret of the service; leave it out, "
                "and give commands credentials of their own."
            )


def _password(url: str) -> str:
    """The password in an address, as it is when it is not quoted; empty if there is none."""
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:
        return ""


def _checked(name: str) -> str:
    try:
        owner = pwd.getpwnam(name)
    except KeyError:
        raise BadInput(f'There is no account "{name}" for commands; create it, or change run_as.') from None
    if owner.pw_uid == os.geteuid() or owner.pw_uid == 0:
        raise BadInput(f'run_as is "{name}", who can do what the service can; name another account.')
    if os.geteuid() != 0:
        raise BadInput(
            f'Only root can run commands as "{name}"; start the service as root, or leave out run_as and '
            "install bubblewrap."
        )
    if not _runs_python(owner):
        raise BadInput(
            f'"{name}" cannot run {sys.executable} with Prudent, as commands would have to; let that account '
            "read it, or change run_as."
        )
    return name


def _runs_python(owner: pwd.struct_passwd) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", "import prudent"],
            user=owner.pw_uid,
            group=owner.pw_gid,
            extra_groups=[],
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _secrets(settings: Settings) -> Iterator[Path]:
    """The paths to hide: places of secrets, and documents and results of others."""
    yield from (Path.home() / name for name in _CREDENTIALS)
    yield from settings.secret_files
    for folder in (settings.tokens, settings.watch):
        if folder is not None:
            yield folder
    for place in (settings.artifacts, settings.queue):
        if place is not None and urlsplit(place).scheme in ("", "file"):
            yield Path(unquote(urlsplit(place).path))
    if settings.database.startswith("sqlite:///"):
        for url in (settings.database, settings.engine_database):
            file = Path(url.removeprefix("sqlite:///"))
            yield from (file.with_name(file.name + ending) for ending in ("", "-wal", "-shm"))


def _hide(path: Path) -> tuple[str, ...]:
    path = path.resolve()
    if path.is_dir():
        return ("--tmpfs", str(path))
    return ("--ro-bind", "/dev/null", str(path)) if path.exists() else ()


def _installed() -> list[Path]:
    """Where Python and its packages are, for those in a folder that is hidden."""
    said = [sys.prefix, sys.base_prefix, *sys.path, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    found = dict.fromkeys(Path(path).absolute() for path in said if path)
    return [path for path in found if path.is_relative_to("/tmp") or path.is_relative_to("/run")]


def _end(owner: int, sign: bytes) -> None:
    """Kill the processes of an account that have this variable."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == owner and sign in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def _share(folder: Path, group: int, mode: int) -> None:
    os.chown(folder, -1, group)
    folder.chmod(mode)


def copy_compiled(home: Path) -> None:
    """Copy what numba has compiled for the service into the HOME of a sandboxed process.

    Numba uses a cache only where it can write to it, and in the sandbox nothing but the run's own folder is
    such a place; to compile everything again takes a minute. A cache that runs share would let one change
    what the next one runs. Without a copy, functions are compiled when they are first called.
    """
    user_wide = Path.home() / CACHE
    with contextlib.suppress(OSError):
        if user_wide.is_dir() and not (home / CACHE).exists():
            shutil.copytree(user_wide, home / CACHE)
        for folder in Path(prudent.__file__).parent.rglob("__pycache__"):
            for path in (*folder.glob("*.nbi"), *folder.glob("*.nbc")):
                to = home / CACHE / _name(folder.parent)
                to.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to / path.name)


def _name(folder: Path) -> str:
    """The name that numba gives to the cache of a source folder."""
    digest = hashlib.sha1(str(folder.absolute()).encode(), usedforsecurity=False).hexdigest()
    return f"{folder.name}_{digest}"
