"""A model as one file: its folder as a zip, or the ONNX graph alone."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 1 << 16


class _Sink(io.RawIOBase):
    """Takes what a zip writes, until somebody wants it; cannot seek, so that nothing is kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        block = bytes(data)  # type: ignore[call-overload]
        self._parts.append(block)
        return len(block)

    def take(self) -> bytes:
        found = b"".join(self._parts)
        self._parts.clear()
        return found


def zipped(folder: Path, name: str) -> Iterator[bytes]:
    """The folder's files as a zip, piece by piece: a large model does not fill the memory."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            fact = zipfile.ZipInfo.from_file(path, f"{name}/{path.relative_to(folder).as_posix()}")
            fact.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(fact, "w") as entry, path.open("rb") as file:
                while block := file.read(_BLOCK):
                    entry.write(block)
                    if ready := sink.take():
                        yield ready
    yield sink.take()
