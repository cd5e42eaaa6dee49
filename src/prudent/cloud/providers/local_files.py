"""Copies of files and folders that stay inside a folder, and are made again only where they differ."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from prudent.core.errors import BadInput, RunFailed


def inside(folder: Path, path: str) -> Path:
    """A place under a folder, by its relative path.

    >>> inside(Path("/work"), "data/part-1").as_posix()
    '/work/data/part-1'
    >>> inside(Path("/work"), "../secret")
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: "../secret" leads out of the workspace; give a path inside it.
    """
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise BadInput(f'"{path}" leads out of the workspace; give a path inside it.')
    return folder / parts


def copy(source: Path, target: Path, exclude: Sequence[str] = (), root: Path | None = None) -> int:
    """Bring a file or folder to `target`; answers the bytes that had to be moved.

    Nothing is written through a link that is at the target already. Links in the source come along
    as links if they stay inside `root` (or the source), and are left out if they do not.
    """
    if not source.exists():
        raise RunFailed(f"There is no {source} to copy; check the path.")
    try:
        if not source.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            return _copy_file(source, target)
        moved = 0
        _make_folder(target)
        for entry, relative in _walk(source, "", exclude):
            moved += _copy_entry(entry, target / relative, (root or source).resolve())
    except OSError as error:
        raise RunFailed(f"Cannot copy {source} ({error.strerror}); make room or check rights.") from error
    return moved


def _walk(folder: Path, before: str, exclude: Sequence[str]) -> Iterator[tuple[os.DirEntry[str], str]]:
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        relative = f"{before}{entry.name}"
        if any(fnmatch.fnmatch(name, one) for one in exclude for name in (entry.name, relative)):
            continue
        yield entry, relative
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{relative}/", exclude)


def _copy_entry(entry: os.DirEntry[str], target: Path, root: Path) -> int:
    if entry.is_symlink():
        leads_to = Path(entry.path).resolve()
        if root == leads_to or root in leads_to.parents:
            _clear(target)
            target.symlink_to(os.readlink(entry.path))
        return 0
    if entry.is_dir():
        _make_folder(target)
        return 0
    return _copy_file(Path(entry.path), target) if entry.is_file() else 0


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
