"""The cells of a comparison of contenders: in which order they are run, and how each is kept.

Every prefix of the order is balanced: it goes through all data sets with the shortest time before it takes a
longer one, and through all times before the next seed, and the contenders of one seed, time and data set come
one after the other. Who is first among them moves on with the seed and the data set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One run: a contender on a data set, with so many seconds and a seed."""

    seed: int
    seconds: float
    data: str
    who: str

    @property
    def file(self) -> str:
        """The name of its file, and of no other cell's.

        >>> Cell(0, 30.0, "r:AER/CPS1988:wage", "flaml").file
        '0 30 r-AER-CPS1988-wage flaml.json'
        """
        data = self.data.replace(":", "-").replace("/", "-")
        return f"{self.seed} {self.seconds:g} {data} {self.who}.json"

    def __str__(self) -> str:
        return f"{self.who} on {self.data}, {self.seconds:g} s, seed {self.seed}"


def in_order(seeds: int, contenders: Mapping[float, Sequence[str]], data: Sequence[str]) -> Iterator[Cell]:
    """All cells; `contenders` has for each time, in seconds, those who run with it.

    >>> [cell.file for cell in in_order(1, {9.0: "a", 3.0: "ab"}, ["k"])]
    ['0 3 k a.json', '0 3 k b.json', '0 9 k a.json']
    """
    for seed in range(seeds):
        for seconds in sorted(contenders):
            who = contenders[seconds]
            for place, name in enumerate(data):
                first = (seed + place) % len(who)
                for each in (*who[first:], *who[:first]):
                    yield Cell(seed, seconds, name, each)


class KeptCells:
    """What ended cells gave: each a line of JSON in a file of its own; without a folder in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._found = folder, dict[str, dict[str, Any]]()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._found = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}

    def __getitem__(self, cell: Cell) -> dict[str, Any] | None:
        return self._found.get(cell.file)

    def keep(self, cell: Cell, found: Mapping[str, Any]) -> None:
        """Write it, whole or not at all."""
        self._found[cell.file] = said = {**vars(cell), **found}
        if self._folder is not None:
            part = self._folder / f".{cell.file}.{os.getpid()}"
            part.write_text(json.dumps(said) + "\n")
            part.replace(self._folder / cell.file)
