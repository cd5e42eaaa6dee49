"""Which rows train and which rows judge: hold-out, k-fold and sub-samples, each a function of its seed.

All of them are stratified where the labels are numbers of classes (integers): every class has its share
everywhere, as far as its rows go. Rows that are linked (`RowLinks`) are split otherwise: a group stays whole,
and what comes later judges what was learned before.
"""

from __future__ import annotations

import itertools
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
    if links.times is not None:
        edges = _time_edges(links.times[rows], [len(rows) - round(share * len(rows))])
        return _at_edge(rows, links.times[rows], edges[0], len(rows))
    if links.groups is not None:
        group, size = _group_sizes(links.groups[rows], 2)
        order = rng_for(seed, "groups").permutation(len(size))
        reached = np.cumsum(size[order])
        # The fewest groups that make up the share, or one group fewer where that comes nearer.
        last = int(np.argmin(np.abs(reached[:-1] - share * len(rows))))
        judges = np.isin(group, order[: last + 1])
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
    if links.times is not None:
        wanted = [round(len(rows) * number / (folds + 1)) for number in range(1, folds + 1)]
        edges = [*_time_edges(links.times[rows], wanted), len(rows)]
        return [_at_edge(rows, links.times[rows], begin, end) for begin, end in itertools.pairwise(edges)]
    if links.groups is not None:
        group, size = _group_sizes(links.groups[rows], folds)
        order = rng_for(seed, "groups").permutation(len(size))
        fold, filled = np.empty(len(size), np.int64), np.zeros(folds)
        for one in order[np.argsort(-size[order], kind="stable")]:  # the largest first, to the emptiest fold
            fold[one] = int(np.argmin(filled))
            filled[fold[one]] += size[one]
        return [
            Split(np.sort(rows[fold[group] != each]), np.sort(rows[fold[group] == each]))
            for each in range(folds)
        ]
    found = k_folds(len(rows), None if y is None else np.asarray(y)[rows], seed, folds)
    return [Split(np.sort(rows[each.train]), np.sort(rows[each.validation])) for each in found]


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


def repeated(rows: RowNumbers, y: NDArray[Any], weights: Sequence[float], seed: int) -> RowNumbers:
    """Each row as often as its class weighs; of a fraction, that share of the rows once more.

    Every algorithm takes weights in this form, on every engine.

    >>> repeated(np.arange(3), np.array([0, 0, 1]), (1.0, 2.0), 7).tolist()
    [0, 1, 2, 2]
    """
    weight = np.asarray(weights, np.float64)[np.asarray(y)[rows]]
    more = rng_for(seed, "class weights").random(len(rows)) < weight % 1
    return np.repeat(rows, weight.astype(np.int64) + more)


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


def _group_sizes(groups: NDArray[Any], least: int) -> tuple[RowNumbers, RowNumbers]:
    """The number of each row's group, and how many rows each group has."""
    _, number, size = np.unique(groups, return_inverse=True, return_counts=True)
    if len(size) < least:
        raise BadInput(
            f"The rows form {len(size)} group{'s' if len(size) != 1 else ''}, but {least} are needed to keep "
            'each whole; name another column under "groups".'
        )
    return number.reshape(-1).astype(np.int64), size


def _time_edges(times: NDArray[Any], wanted: Sequence[int]) -> list[int]:
    """Places in the order of time where the time changes, near those that are wanted."""
    ordered = np.sort(times, kind="stable")
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    if not len(changes):
        raise BadInput('All rows have the same time; name another column under "time".')
    return sorted({int(changes[np.argmin(np.abs(changes - place))]) for place in wanted})


def _at_edge(rows: RowNumbers, times: NDArray[Any], begin: int, end: int) -> Split:
    order = np.argsort(times, kind="stable")
    return Split(np.sort(rows[order[:begin]]), np.sort(rows[order[begin:end]]))
