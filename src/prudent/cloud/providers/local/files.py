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

    >>> inside(Path("/srv"), "data/part-1").as_posix()
    '/srv/data/part-1'
    >>> inside(Path("/srv"), "../secret")
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: "../secret" leads out of the workspace; give a path inside it.
    """
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise BadInput(f'"{path}" leads out of the workspace; give a path inside it.')
    return folder / parts


def copy(source: Path, target: Path, exclude: Sequence[str] = (), follow: bool = True) -> int:
    """Bring a file or folder to `target`; answers the bytes that had to be moved.

    Links that stay inside the source come along as links. Those that lead out of it bring what they
    lead to, or, without `follow`, are left out: what a job has made may lead anywhere. Nothing is
    written through a link that is at the target already.
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
        if any(fnmatch.fnmatch(name, one) for one in exclude for name in (entry.name, relative)):
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
