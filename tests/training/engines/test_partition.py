"""How rows are parted by default: folds where they are few, held-out rows where they are many."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.training.data.splitting import RowLinks
from prudent.training.engines.partition import Partition, inner_split
from prudent.training.request.limits import ValidationMethod


@pytest.mark.parametrize(
    ("rows", "columns", "splits"),
    [(8, 3, 1), (300, 5, 10), (700, 5, 5), (20_000, 100, 5), (20_001, 5, 1), (20_000, 101, 1)],
)
def test_few_rows_are_folded_and_many_held_out(rows: int, columns: int, splits: int) -> None:
    y = np.arange(rows) % 2
    found = Partition.of(y, rows, columns, ValidationMethod(), 3)
    assert len(found.splits) == splits
    assert not len(found.test)


def test_repeats_deal_the_rows_anew_and_never_those_of_the_test() -> None:
    y = np.arange(400) % 2
    found = Partition.of(y, 400, 5, ValidationMethod(), 3, test_share=0.2)
    assert (len(found.test), int(y[found.test].sum())) == (80, 40)
    first, second = found.splits[0].validation, found.splits[5].validation
    assert not np.array_equal(first, second)
    for begin in (0, 5):
        judged = np.concatenate([split.validation for split in found.splits[begin : begin + 5]])
        assert sorted([*judged, *found.test]) == list(range(400))
    again = Partition.of(y, 400, 5, ValidationMethod(), 3, test_share=0.2)
    assert all(np.array_equal(a.train, b.train) for a, b in zip(found.splits, again.splits, strict=True))


def test_the_latest_rows_are_the_test_and_the_latest_of_the_others_are_watched() -> None:
    times = RowLinks(times=np.random.default_rng(0).permutation(1000))
    found = Partition.of(np.zeros(1000), 1000, 5, ValidationMethod(), 3, 0.2, times)
    assert set(times.times[found.test]) == set(range(800, 1000))
    train = found.splits[-1].train
    inner = inner_split(train, None, 3, times)
    assert times.times[inner.train].max() < times.times[inner.validation].min()
    assert sorted([*inner.train, *inner.validation]) == sorted(train)


def test_nothing_is_watched_where_rows_cannot_be_parted() -> None:
    assert inner_split(np.arange(1), None, 3) is None
    assert inner_split(np.arange(5), None, 3, RowLinks(groups=np.zeros(5))) is None
