"""Files between this machine and another, as tar streams of what differs."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from prudent.cloud.providers.channel import excluded
from prudent.core.errors import BadInput

FileStamp = tuple[int, float]
"""Size, and time of the last change in seconds."""

LISTING = "find . -type f -printf '%s %T@ %P\\0' 2>/dev/null || find . -type f -exec stat -c '%s %Y %n' {} +"
"""Lists the files of a folder: size, time, path. The second form is for machines without GNU find."""

_BLOCK = 512 * 512
_SAME_S = 1e-4  # times pass through decimal text; finer differences are rounding


@dataclass(frozen=True)
class LocalFile:
    """A file to bring: where it is, and its path at the other end."""

    path: Path
    name: str
    stamp: FileStamp
    bare: bool = False
    """A link, or a folder with nothing in it: only its name is brought."""


def local_files(source: Path, exclude: Sequence[str] = ()) -> Iterator[LocalFile]:
    """All files of a folder, or the one file, without those that are `excluded`.

    Links to places outside the folder are followed, so that their content is there at the other end; others
    are brought as links.
    """
    if source.is_file():
        yield _file(source, source.name)
        return
    if not source.is_dir():
        raise BadInput(f'There is no file or folder "{source}" to bring to a machine; check its path.')
    yield from _walk(source.resolve(), source.resolve(), "", tuple(exclude), frozenset())


def _walk(
    root: Path, folder: Path, prefix: str, exclude: tuple[str, ...], above: frozenset[Path]
) -> Iterator[LocalFile]:
    real = folder.resolve()
    if real in above:
        return
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    if not entries and prefix:
        yield LocalFile(folder, prefix.rstrip("/"), (0, folder.stat().st_mtime), bare=True)
    for entry in entries:
        name, path = f"{prefix}{entry.name}", Path(entry.path)
        if excluded(name, exclude):
            continue
        inside = entry.is_symlink() and path.resolve().is_relative_to(root)
        if inside or (entry.is_symlink() and not path.exists()):
            yield LocalFile(path, name, (0, path.lstat().st_mtime), bare=True)
        elif entry.is_dir():
            yield from _walk(root, path, f"{name}/", exclude, above | {real})
        elif entry.is_file():
            yield _file(path, name)


def parse_listing(said: bytes) -> dict[str, FileStamp]:
    """What `LISTING` printed.

    >>> parse_listing(b"3 17.5 a b\\0" + b"4 18.0 c\\0")
    {'a b': (3, 17.5), 'c': (4, 18.0)}
    """
    found: dict[str, FileStamp] = {}
    for line in said.split(b"\0" if b"\0" in said else b"\n"):
        size, _, rest = line.decode(errors="surrogateescape").partition(" ")
        time_s, _, name = rest.partition(" ")
        if name:
            found[name.removeprefix("./")] = (int(size), float(time_s))
    return found


def differing(files: Sequence[LocalFile], there: Mapping[str, FileStamp]) -> list[LocalFile]:
    """Those that are not there yet with the same size and time."""
    return [file for file in files if not _same(file.stamp, there.get(file.name))]


def pack(files: Sequence[LocalFile], stream: IO[bytes]) -> int:
    """Write files as a tar stream; answers the bytes in them."""
    moved = 0
    with tarfile.open(fileobj=stream, mode="w|", bufsize=_BLOCK, format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            info = tar.gettarinfo(str(file.path), file.name)
            # Owners of this machine mean nothing there; hard links would need their other name.
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if file.bare:
                tar.addfile(info)
                continue
            info.linkname = ""
            with file.path.open("rb") as content:
                here = os.fstat(content.fileno())
                info.type, info.size, info.mtime = tarfile.REGTYPE, here.st_size, here.st_mtime
                info.mode = here.st_mode & 0o777
                tar.addfile(info, content)
            moved += info.size
    return moved


def unpack(stream: IO[bytes], target: Path) -> int:
    """Write the members of a tar stream under `target`; what would land elsewhere is left out."""
    moved = 0
    root = target.resolve()
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            _unlink(root, member.name)
            try:
                safe = tarfile.data_filter(member, str(root))
            except tarfile.FilterError:
                continue
            tar.extract(safe, root, set_attrs=True, filter="data")
            moved += member.size if member.isreg() else 0
    return moved


def _unlink(root: Path, name: str) -> None:
    """Remove a link at the place of a member: the member would be written where the link leads."""
    place = root / name
    if place.is_symlink() and place.parent.resolve().is_relative_to(root):
        place.unlink()


def _file(path: Path, name: str) -> LocalFile:
    known = path.stat()
    return LocalFile(path, name, (known.st_size, known.st_mtime))


def _same(here: FileStamp, there: FileStamp | None) -> bool:
    if there is None or here[0] != there[0]:
        return False
    whole = there[1] == int(there[1])  # that machine may count whole seconds only
    return abs(here[1] - there[1]) < _SAME_S or (whole and int(here[1]) == there[1])
