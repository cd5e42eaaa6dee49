"""The list of tests that are known to fail by chance; it should be empty."""

from __future__ import annotations

import functools
from pathlib import Path

LIST = Path(__file__).with_name("quarantine.txt")


@functools.cache
def quarantined(file: Path = LIST) -> frozenset[str]:
    """The tests whose failure does not count."""
    lines = (line.split("#")[0].strip() for line in file.read_text().splitlines())
    return frozenset(filter(None, lines))
