"""The register of leases: one small file per cluster, written before anything is launched.

A program may die at any moment. What it was about to launch is on disk before the first request
leaves, so that whoever comes after it knows where to look.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from prudent.cloud.home_folder import default_home
from prudent.cloud.leases.lease import RELEASED, UP, Lease, LeasedMachine
from prudent.core.errors import BadInput, PrudentError, RunFailed
from prudent.core.files import write_whole

KEPT_S = 30 * 24 * 3600.0
"""For how long a released lease is remembered: bills are looked at once a month."""

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,99}")


class LeaseLost(RunFailed):
    """The lease was released by somebody else (the reaper, after it was over); its machines are gone."""


class LeaseRegister:
    """All leases of one home folder. Safe for several threads and processes at once."""

    def __init__(self, home: Path | str | None = None) -> None:
        self.home = Path(home).absolute() if home is not None else default_home()
        self.folder = self.home / "leases"
        self._mutex = threading.Lock()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(self.folder, error) from error

    @property
    def owner(self) -> str:
        """The word that marks machines of this register; it is made once and never changes."""
        path = self.folder / "owner"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text(encoding="ascii").strip()
        with self._locked():
            if not path.exists():
                self._write(path, f"prudent-{secrets.token_hex(8)}\n")
            return path.read_text(encoding="ascii").strip()

    def add(self, lease: Lease) -> Lease:
        """Record a lease; on disk when this returns. The same cluster cannot be wanted twice."""
        with self._locked():
            path = self._path(lease.cluster)
            if path.exists():
                raise BadInput(f"There is a lease of {lease.cluster} already; give the cluster another name.")
            self._write(path, _text(lease))
        return lease

    def record_machines(self, cluster: str, machines: Iterable[LeasedMachine]) -> Lease:
        """Record which machines came of a lease."""
        known = tuple(machines)
        return self._change(cluster, lambda lease: replace(lease.with_machines(known), state=UP))

    def record_ends(self, cluster: str, ends_s: Mapping[str, float]) -> Lease:
        """Record when machines of it were gone, by their ids; see `Lease.with_ends`."""
        return self._change(cluster, lambda lease: lease.with_ends(ends_s), even_released=True)

    def renew(self, cluster: str, lease_end_s: float) -> Lease:
        """Record a later end; `LeaseLost` if it was released in the meantime."""
        return self._change(cluster, lambda lease: replace(lease, lease_end_s=lease_end_s))

    def release(
        self,
        cluster: str,
        released_s: float,
        why: str = "",
        machines: Iterable[LeasedMachine] = (),
        ends_s: Mapping[str, float] | None = None,
    ) -> Lease:
        """Record that no machine of it is left; see `Lease.ended`. `ends_s`: when some were gone before."""
        found, ends = tuple(machines), ends_s or {}
        return self._change(
            cluster, lambda lease: lease.ended(released_s, why, found, ends), even_released=True
        )

    def read(self, cluster: str) -> Lease | None:
        """A lease; None where there is no record. A damaged record is `BadInput`."""
        return self._read(self._path(cluster))

    def leases(self) -> tuple[Lease, ...]:
        """Every record that can be read, oldest first."""
        return self.survey()[0]

    def survey(self) -> tuple[tuple[Lease, ...], tuple[str, ...]]:
        """Every record that can be read, and a sentence for each that cannot."""
        found, complaints = [], []
        for path in sorted(self.folder.glob("*.json")):
            try:
                if (lease := self._read(path)) is not None:
                    found.append(lease)
            except PrudentError as error:
                complaints.append(str(error))
        return tuple(sorted(found, key=lambda lease: lease.wanted_s)), tuple(complaints)

    def forget(self, before_s: float) -> None:
        """Drop what was released before a moment."""
        for lease in self.leases():
            if lease.state == RELEASED and (lease.released_s or 0.0) < before_s:
                with contextlib.suppress(OSError):
                    self._path(lease.cluster).unlink()

    def _change(self, cluster: str, change: Callable[[Lease], Lease], even_released: bool = False) -> Lease:
        with self._locked():
            path = self._path(cluster)
            lease = self._read(path)
            if lease is None:
                raise LeaseLost(f"There is no lease of {cluster} any more; launch it again.")
            if lease.state == RELEASED and not even_released:
                why = f" ({lease.why})" if lease.why else ""
                raise LeaseLost(f"The lease of {cluster} was released by another process{why}; launch again.")
            changed = change(lease)
            if changed != lease:
                self._write(path, _text(changed))
            return changed

    def _path(self, cluster: str) -> Path:
        if not _NAME.fullmatch(cluster):
            raise BadInput(f'"{cluster}" is not a name of a cluster: use letters, digits, "-", "_" and ".".')
        return self.folder / f"{cluster}.json"

    def _read(self, path: Path) -> Lease | None:
        try:
            return Lease.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFailed(f"Cannot read {path} ({error.strerror}); see who may read it.") from error
        except (ValueError, BadInput) as error:
            raise BadInput(f"The lease in {path} is damaged; remove the file, then reap.") from error

    def _write(self, path: Path, text: str) -> None:
        """All or nothing, and on the disk before it returns."""
        try:
            write_whole(path, text, durable=True)
        except OSError as error:
            raise _cannot_write(path, error) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time; the kernel gives the lock back when its holder dies."""
        try:
            handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise _cannot_write(self.folder, error) from error
        try:
            with self._mutex:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
        finally:
            os.close(handle)


def _text(lease: Lease) -> str:
    return json.dumps(lease.to_dict(), indent=1, allow_nan=False) + "\n"


def _cannot_write(path: Path, error: OSError) -> RunFailed:
    return RunFailed(
        f"Cannot write {path} ({error.strerror}), and no cluster is launched without a lease on disk; "
        "free some disk space, or name another folder with PRUDENT_HOME."
    )
