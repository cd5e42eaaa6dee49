"""Lines out of a stream of bytes that may hold anything."""

from __future__ import annotations

import re

_LONGEST = 1 << 20  # a line of a million bytes is no report
_BREAK = re.compile(rb"[\r\n]")


class LineSplitter:
    """Cuts chunks into lines; a carriage return ends one too, for progress bars use it.

    >>> lines = Lines()
    >>> lines.feed(b"first\\nsec"), lines.feed(b"ond\\rthird"), lines.rest()
    (['first'], ['second'], ['third'])
    """

    def __init__(self) -> None:
        self._partial = bytearray()
        self._too_long = False

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that this chunk completes."""
        *ended, rest = _BREAK.split(chunk)
        lines = []
        for part in ended:
            self._extend(part)
            lines += self.rest()
        self._extend(rest)
        return lines

    def rest(self) -> list[str]:
        """The line that nothing ended, if there is one."""
        text, dropped = self._partial.decode(errors="replace"), self._too_long
        self._partial.clear()
        self._too_long = False
        return [] if dropped or not text else [text]

    def _extend(self, part: bytes) -> None:
        if self._too_long or len(self._partial) + len(part) > _LONGEST:
            self._partial.clear()
            self._too_long = True
        else:
            self._partial += part
