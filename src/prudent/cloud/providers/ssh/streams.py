"""Bytes between the event loop and a thread that reads or writes them like a file."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

FULL = 1 << 20
"""Whoever reads slowly slows the command down: more than so many bytes are not kept waiting."""


class Inlet(io.RawIOBase):
    """What a command prints. The loop feeds it, a thread reads it: `read(n)` answers what there is.

    `hold` is called with True when it is full, with False when it was emptied again.
    """

    def __init__(self, hold: Callable[[bool], None]) -> None:
        super().__init__()
        self._hold = hold
        self._held = False
        self._buffer = bytearray()
        self._ended = False
        self._changed = threading.Condition()

    def feed(self, data: bytes) -> None:
        with self._changed:
            if self.closed or self._ended:
                return
            self._buffer += data
            full = len(self._buffer) > FULL and not self._held
            self._held = self._held or full
            self._changed.notify_all()
        if full:
            self._hold(True)

    def finish(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int:
        place = memoryview(into).cast("B")
        with self._changed:
            while not self._buffer and not self._ended and not self.closed:
                self._changed.wait()
            taken = min(len(place), len(self._buffer))
            place[:taken] = self._buffer[:taken]
            del self._buffer[:taken]
            freed = self._held and len(self._buffer) <= FULL // 2
            self._held = self._held and not freed
        if freed:
            self._hold(False)
        return taken

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line, without asking for every byte of it."""
        most = -1 if size is None else size
        line = b""
        while most < 0 or len(line) < most:
            with self._changed:
                while not self._buffer and not self._ended and not self.closed:
                    self._changed.wait()
                at = self._buffer.find(b"\n") + 1
                wanted = at or len(self._buffer)
            part = self.read(wanted if most < 0 else min(wanted, most - len(line))) if wanted else b""
            line += part or b""
            if not part or line.endswith(b"\n"):
                break
        return line

    def close(self) -> None:
        """What comes from now on is thrown away, so that the command is not held up."""
        with self._changed:
            held, self._held = self._held, False
            self._buffer.clear()
            super().close()
            self._changed.notify_all()
        if held:
            self._hold(False)


class Outlet(io.RawIOBase):
    """What a command reads; `send` returns when it has been taken."""

    def __init__(self, send: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._send = send

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        content = bytes(data)
        self._send(content)
        return len(content)
