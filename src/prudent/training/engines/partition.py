"""How the rows of a request are parted: the test part first, then who trains and who judges.

The same on every engine: row numbers are those of the data set as it was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.training.data.splitting import (
    FEW_ROWS,
    UNLINKED,
    RowLinks,
    RowNumbers,
    Split,
    every_row,
    fold_rows,
    split_rows,
)
from prudent.training.request.limits import ValidationMethod

TEST_ROWS, TEST_SHARE = 500, 0.2
"""From so many rows on, this share of them is a test part unless the request says otherwise."""
FOLDS = 5
FOLD_ROWS, FOLD_CELLS = 20_000, 2_000_000
"""Up to so many rows and cells models are judged in folds; beyond, held-out rows are enough to tell them
apart."""
REPEAT_ROWS = 1_000
"""Fewer rows than this are dealt into folds more than once."""
MOST_REPEATS = 2
INNER_SHARE = 0.2
"""The share of the training rows that iterative algorithms watch."""


@dataclass(frozen=True, eq=False)
class Partition:
    """`test` rows (none, where there is no such part), and the splits of all other rows."""

    test: RowNumbers
    splits: tuple[Split, ...]

    @classmethod
    def of(
        cls,
        y: NDArray[Any] | None,
        rows: int,
        columns: int,
        validation: ValidationMethod,
        seed: int,
        test_share: float = 0.0,
        links: RowLinks = UNLINKED,
        apart: tuple[int, int] = (0, 0),
    ) -> Partition:
        """The parts of a data set, as a request says; `test_share` 0 for none.

        `apart` are the last rows: so many from a file for validation, then so many from one for the test.
        """
        judging, testing = apart
        numbers, test = np.arange(rows - judging - testing), np.arange(rows - testing, rows)
        if test_share > 0:
            taken = split_rows(numbers, y, seed_of(seed, "test"), test_share, links)
            numbers, test = taken.train, taken.validation
        if judging:
            return cls(test, (Split(numbers, np.arange(rows - judging - testing, rows - testing)),))
        if y is None and rows <= FEW_ROWS and not validation.given:
            return cls(test, (every_row(len(numbers)),))
        folds, repeats = _folds(validation, len(numbers), columns, y is not None)
        if not folds:
            return cls(test, (split_rows(numbers, y, seed, validation.share, links),))
        if links.times is not None:
            repeats = 1
        splits = [
            split
            for repeat in range(repeats)
            for split in fold_rows(numbers, y, seed if not repeat else seed_of(seed, repeat), folds, links)
        ]
        return cls(test, tuple(splits))


def share_for_test(said: Any, rows: int, supervised: bool) -> float:
    """The share of the rows that is the test part: what the request says, or what suits the data.

    >>> share_for_test(None, 499, True), share_for_test(None, 500, True), share_for_test(0.1, 50, True)
    (0.0, 0.2, 0.1)
    """
    if not supervised or said is False:
        return 0.0
    if said is None:
        return TEST_SHARE if rows >= TEST_ROWS else 0.0
    return float(said)


def inner_split(
    rows: RowNumbers, y: NDArray[Any] | None, seed: int, links: RowLinks = UNLINKED
) -> Split | None:
    """Training rows parted into those to learn from and those to watch; None where they are too few."""
    if len(rows) < 2 or (links.groups is not None and len(np.unique(links.groups[rows])) < 2):
        return None
    if links.times is not None and len(np.unique(links.times[rows])) < 2:
        return None
    return split_rows(rows, y, seed_of(seed, "inner"), INNER_SHARE, links)


def _folds(validation: ValidationMethod, rows: int, columns: int, supervised: bool) -> tuple[int, int]:
    """How many folds (0: rows are held out), and how often."""
    if validation.folds is not None:
        return validation.folds, 1
    large = rows > FOLD_ROWS or rows * columns > FOLD_CELLS
    if validation.holdout is not None or not supervised or large or rows < 2 * FOLDS:
        return 0, 1
    return FOLDS, min(MOST_REPEATS, max(1, REPEAT_ROWS // rows))


def seed_of(seed: int, *names: str | int) -> int:
    """The seed of one of the splits of a request, such as that of its test part."""
    return int(rng_for(seed, "partition", *names).integers(2**31 - 1))
