"""Which rows train and which rows judge: hold-out, k-fold and sub-samples, each a function of its seed.

All of them are stratified where the labels are numbers of classes (integers): every class has its share
everywhere, as far as its rows go. Rows that are linked (`RowLinks`) are split otherwise: a group stays whole,
and what comes later judges what was learned before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.seeds import rng_for

RowNumbers = NDArray[np.int64]

HOLD_OUT_SHARE = 0.3
"""The share of the rows that judge, as in Zygarde."""
FEW_ROWS = 300
"""Up to so many rows a clustering is fitted and judged on all, unless the request says how to split them."""


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers, ascending; no row is in both, but for `every_row`."""

    train: RowNumbers
    validation: RowNumbers


@dataclass(frozen=True, eq=False)
class RowLinks:
    """What ties rows of a data set to each other: a group for each row, or a time; neither, as a rule."""

    groups: NDArray[Any] | None = None
    times: NDArray[Any] | None = None


UNLINKED = RowLinks()


def hold_out(rows: int, y: NDArray[Any] | None, seed: int, share: float = HOLD_OUT_SHARE) -> Split:
    """Keep a share of the rows for judging. A class with a single row stays among those that train.

    >>> split = hold_out(10, np.array([0] * 6 + [1] * 4), seed=7)
    >>> len(split.train), len(split.validation)
    (7, 3)
    """
    if not 0 < share < 1:
        raise BadInput(f"A hold-out share is between 0 and 1, not {share:g}; 0.3 is usual.")
    if rows < 2:
        raise BadInput("One row cannot be split into training and validation; give more rows.")
    labels = _labels(rows, y)
    order, place, size = _shuffled(labels, rng_for(seed, "hold-out"))
    # The last of each class, in shuffled order, judge; the first never do, so that every class is learned.
    key = (place + 0.5) / size[labels[order]]
    key[place == 0] = -1.0
    count = min(max(round(share * rows), 1), rows - 1)
    ranked = order[np.argsort(key, kind="stable")]
    return Split(np.sort(ranked[: rows - count]), np.sort(ranked[rows - count :]))


def every_row(rows: int) -> Split:
    """All rows train and judge: a few rows have no clusters to spare, and nothing that could be learned by
    heart.
    """
    return Split(np.arange(rows), np.arange(rows))


def k_folds(rows: int, y: NDArray[Any] | None, seed: int, folds: int) -> list[Split]:
    """Every row judges in exactly one of the splits; their sizes differ by one at most.

    >>> [len(split.validation) for split in k_folds(10, None, seed=7, folds=3)]
    [4, 3, 3]
    """
    if not 2 <= folds <= rows:
        raise BadInput(
            f"{rows} rows cannot be split into {folds} folds; choose between 2 and the number of rows."
        )
    order, _, _ = _shuffled(_labels(rows, y), rng_for(seed, "k-folds"))
    fold = np.empty(rows, np.int64)
    fold[order] = np.arange(rows) % folds  # class after class, dealt like cards
    return [Split(np.flatnonzero(fold != each), np.flatnonzero(fold == each)) for each in range(folds)]


def split_rows(
    rows: RowNumbers, y: NDArray[Any] | None, seed: int, share: float, links: RowLinks = UNLINKED
) -> Split:
    """`hold_out` among some rows (row numbers; `y` and `links` are of the whole data set).

    >>> split = split_rows(np.arange(6), None, 7, 0.3, RowLinks(times=np.array([3, 1, 2, 9, 8, 7])))
    >>> split.train.tolist(), split.validation.tolist()
    ([0, 1, 2, 5], [3, 4])
    """
    if (linked := _linked_values(rows, links)) is not None:
        value, sizes = linked
        judges = judging_values(sizes, links.times is not None, seed, share)[value]
        return Split(np.sort(rows[~judges]), np.sort(rows[judges]))
    found = hold_out(len(rows), None if y is None else np.asarray(y)[rows], seed, share)
    return Split(np.sort(rows[found.train]), np.sort(rows[found.validation]))


def fold_rows(
    rows: RowNumbers, y: NDArray[Any] | None, seed: int, folds: int, links: RowLinks = UNLINKED
) -> list[Split]:
    """`k_folds` among some rows. Of times, each fold is judged by what was learned from all before it.

    >>> times = RowLinks(times=np.arange(6))
    >>> [(len(each.train), len(each.validation)) for each in fold_rows(np.arange(6), None, 7, 2, times)]
    [(2, 2), (4, 2)]
    """
    if (linked := _linked_values(rows, links)) is not None:
        (value, sizes), ordered = linked, links.times is not None
        fold = fold_values(sizes, ordered, seed, folds)[value]
        return [
            Split(np.sort(rows[learns_before(fold, each, ordered)]), np.sort(rows[fold == each]))
            for each in range(int(fold.max()) + 1)
        ]
    found = k_folds(len(rows), None if y is None else np.asarray(y)[rows], seed, folds)
    return [Split(np.sort(rows[each.train]), np.sort(rows[each.validation])) for each in found]


def judging_values(sizes: RowNumbers, ordered: bool, seed: int, share: float) -> NDArray[np.bool_]:
    """Which groups judge, or which times where they are `ordered`; `sizes` are the rows of each.

    >>> judging_values(np.array([5, 1, 2, 2]), True, 7, 0.3).tolist()
    [False, False, True, True]
    """
    if ordered:
        (edge,) = _time_edges(sizes, [sizes.sum() - round(share * sizes.sum())])
        return np.asarray(np.arange(len(sizes)) >= edge)
    _check_groups(sizes, 2)
    order = rng_for(seed, "groups").permutation(len(sizes))
    reached = np.cumsum(sizes[order])
    # The fewest groups that make up the share, or one group fewer where that comes nearer.
    last = int(np.argmin(np.abs(reached[:-1] - share * sizes.sum())))
    return np.isin(np.arange(len(sizes)), order[: last + 1])


def fold_values(sizes: RowNumbers, ordered: bool, seed: int, folds: int) -> RowNumbers:
    """In which fold each group or time judges; -1 for the earliest times, which judge in none.

    >>> fold_values(np.array([1, 1, 1, 2, 1]), True, 7, 2).tolist()
    [-1, -1, 0, 1, 1]
    """
    if ordered:
        wanted = [round(sizes.sum() * number / (folds + 1)) for number in range(1, folds + 1)]
        return np.searchsorted(_time_edges(sizes, wanted), np.arange(len(sizes)), side="right") - 1
    _check_groups(sizes, folds)
    order = rng_for(seed, "groups").permutation(len(sizes))
    fold, filled = np.empty(len(sizes), np.int64), np.zeros(folds)
    for one in order[np.argsort(-sizes[order], kind="stable")]:  # the largest first, to the emptiest fold
        fold[one] = int(np.argmin(filled))
        filled[fold[one]] += sizes[one]
    return fold


def learns_before(fold: Any, number: int, ordered: bool) -> Any:
    """Whether rows of a fold are learned from where fold `number` judges: earlier ones, if there is an order.

    `fold` is anything that is compared with numbers.
    """
    return fold < number if ordered else fold != number


def subsample(rows: RowNumbers, y: NDArray[Any] | None, fraction: float, seed: int) -> RowNumbers:
    """A share of `rows` (row numbers; `y` is the whole target), at least one row of every class.

    With the same seed a larger share contains the smaller one, so that what was seen on little data is still
    there on more.

    >>> rows = np.arange(100)
    >>> small, large = subsample(rows, None, 0.1, 7), subsample(rows, None, 0.5, 7)
    >>> len(small), len(large), bool(np.isin(small, large).all())
    (10, 50, True)
    """
    if not 0 < fraction <= 1:
        raise BadInput(f"A sub-sample is a share above 0 and up to 1 of the data, not {fraction:g}.")
    rows = np.asarray(rows, np.int64)
    if fraction == 1 or not len(rows):
        return np.sort(rows)
    labels = _labels(len(rows), None if y is None else np.asarray(y)[rows])
    order, place, size = _shuffled(labels, rng_for(seed, "sub-sample"))
    key = (place + 0.5) / size[labels[order]]
    key[place == 0] = -1.0
    count = max(int(np.ceil(fraction * len(rows) - 1e-9)), int((place == 0).sum()))
    return np.sort(rows[order[np.argsort(key, kind="stable")[:count]]])


def repeated(y: NDArray[Any], weights: Sequence[float], seed: int) -> RowNumbers:
    """The place of each row as often as its class weighs; of a fraction, that share of the rows once more.

    Every algorithm takes weights in this form.

    >>> repeated(np.array([0, 0, 1]), (1.0, 2.0), 7).tolist()
    [0, 1, 2, 2]
    """
    weight = np.asarray(weights, np.float64)[np.asarray(y)]
    more = rng_for(seed, "class weights").random(len(y)) < weight % 1
    return np.repeat(np.arange(len(y)), weight.astype(np.int64) + more)


def _labels(rows: int, y: NDArray[Any] | None) -> RowNumbers:
    """A class for each row; the same for all where there are no classes."""
    if y is None or np.asarray(y).dtype.kind not in "iub":
        return np.zeros(rows, np.int64)
    return np.unique(y, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _shuffled(labels: RowNumbers, rng: np.random.Generator) -> tuple[RowNumbers, RowNumbers, RowNumbers]:
    """All rows, class after class, shuffled within; the place of each in its class; the classes' sizes."""
    mixed = rng.permutation(len(labels))
    order = mixed[np.argsort(labels[mixed], kind="stable")]
    size = np.bincount(labels, minlength=1)
    starts = np.concatenate([[0], np.cumsum(size)[:-1]])
    place = np.arange(len(labels)) - starts[labels[order]]
    return order, place, size


def _linked_values(rows: RowNumbers, links: RowLinks) -> tuple[RowNumbers, RowNumbers] | None:
    """The number of each row's group or time, and how many rows each of these has; None without links."""
    values = links.groups if links.times is None else links.times
    if values is None:
        return None
    _, number, sizes = np.unique(values[rows], return_inverse=True, return_counts=True)
    return number.reshape(-1).astype(np.int64), sizes


def _check_groups(sizes: RowNumbers, least: int) -> None:
    if len(sizes) < least:
        raise BadInput(
            f"The rows form {len(sizes)} group{'s' if len(sizes) != 1 else ''}, but {least} are needed to "
            'keep each whole; name another column under "groups".'
        )


def _time_edges(sizes: RowNumbers, wanted: Sequence[int]) -> list[int]:
    """Numbers of times before which about so many rows lie as are wanted; `sizes` are the rows of each."""
    before = np.cumsum(sizes)[:-1]
    if not len(before):
        raise BadInput('All rows have the same time; name another column under "time".')
    return sorted({int(np.argmin(np.abs(before - place))) + 1 for place in wanted})
