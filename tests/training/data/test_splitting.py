"""Splits and sub-samples hold what they promise for any labels, seed and share."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.training.data.splitting import RowLinks, fold_rows, hold_out, k_folds, split_rows, subsample

labels = st.lists(st.integers(0, 4), min_size=2, max_size=120).map(lambda found: np.array(found, np.int64))
seeds = st.integers(0, 2**32)
shares = st.floats(0.05, 0.95)


@given(labels, seeds, shares)
def test_hold_out_uses_every_row_once_and_keeps_the_shares(y: np.ndarray, seed: int, share: float) -> None:
    split = hold_out(len(y), y, seed, share)
    assert sorted([*split.train, *split.validation]) == list(range(len(y)))
    assert len(split.validation) == min(max(round(share * len(y)), 1), len(y) - 1)
    everywhere = len(split.train) >= len(set(y))
    for label in np.unique(y):
        size, judging = int((y == label).sum()), int((y[split.validation] == label).sum())
        assert judging <= share * size + len(np.unique(y)) + 1
        assert judging >= share * size - len(np.unique(y)) - 1
        if everywhere:
            assert judging < size, "every class must be learned"


@given(labels, seeds, st.data())
def test_every_row_judges_once_in_k_folds(y: np.ndarray, seed: int, data: st.DataObject) -> None:
    folds = data.draw(st.integers(2, len(y)))
    splits = k_folds(len(y), y, seed, folds)
    assert sorted(np.concatenate([split.validation for split in splits])) == list(range(len(y)))
    sizes = [len(split.validation) for split in splits]
    assert max(sizes) - min(sizes) <= 1
    for split in splits:
        assert sorted([*split.train, *split.validation]) == list(range(len(y)))
    for label in np.unique(y):
        counts = [int((y[split.validation] == label).sum()) for split in splits]
        assert max(counts) - min(counts) <= 1


@given(labels, seeds, shares, shares)
def test_sub_samples_are_nested_and_stratified(y: np.ndarray, seed: int, one: float, other: float) -> None:
    rows = np.arange(3, 3 + len(y))
    target = np.concatenate([np.zeros(3, np.int64), y])
    small, large = (subsample(rows, target, share, seed) for share in sorted((one, other)))
    assert set(small) <= set(large) <= set(rows)
    assert len(set(small)) == len(small) >= min(one, other) * len(rows) - 1e-6
    for label in np.unique(y):
        size, taken = int((y == label).sum()), int((target[small] == label).sum())
        assert taken >= 1
        assert abs(taken - len(small) * size / len(rows)) <= len(np.unique(y)) + 1
    np.testing.assert_array_equal(subsample(rows, target, 1.0, seed), rows)


@given(st.integers(2, 300), seeds, shares)
def test_values_and_missing_targets_are_not_strata(rows: int, seed: int, share: float) -> None:
    values = np.linspace(0, 1, rows)
    for y in (None, values):
        assert len(subsample(np.arange(rows), y, share, seed)) == max(math.ceil(share * rows - 1e-9), 1)
    one, other = hold_out(rows, None, seed, share), hold_out(rows, values, seed, share)
    np.testing.assert_array_equal(one.validation, other.validation)


def test_the_seed_decides() -> None:
    y = np.arange(200) % 3
    first, again, other = (hold_out(200, y, seed).validation.tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 60
    rows = np.arange(200)
    assert subsample(rows, y, 0.2, 1).tolist() == subsample(rows, y, 0.2, 1).tolist()
    assert subsample(rows, y, 0.2, 1).tolist() != subsample(rows, y, 0.2, 2).tolist()


def test_what_cannot_be_split() -> None:
    for call in (
        lambda: hold_out(1, None, 0),
        lambda: hold_out(10, None, 0, 1.0),
        lambda: k_folds(3, None, 0, 4),
        lambda: k_folds(3, None, 0, 1),
        lambda: subsample(np.arange(3), None, 0.0, 0),
        lambda: subsample(np.arange(3), None, 1.5, 0),
    ):
        with pytest.raises(BadInput):
            call()


@given(st.lists(st.integers(0, 9), min_size=12, max_size=80).map(np.array), seeds, shares)
def test_groups_stay_whole(groups: np.ndarray, seed: int, share: float) -> None:
    rows, links = np.arange(len(groups)), RowLinks(groups=groups)
    if len(set(groups)) < 3:
        with pytest.raises(BadInput, match="name another column"):
            fold_rows(rows, None, seed, 3, links)
        return
    for split in [split_rows(rows, None, seed, share, links), *fold_rows(rows, None, seed, 3, links)]:
        assert sorted([*split.train, *split.validation]) == list(rows)
        assert not {*groups[split.train]} & {*groups[split.validation]}
        assert min(len(split.train), len(split.validation)) > 0


@given(st.lists(st.integers(0, 50), min_size=2, max_size=80).map(np.array), seeds, shares)
def test_what_is_later_judges_what_was_learned_before(times: np.ndarray, seed: int, share: float) -> None:
    rows, links = np.arange(len(times)), RowLinks(times=times)
    if len(set(times)) == 1:
        with pytest.raises(BadInput, match="the same time"):
            split_rows(rows, None, seed, share, links)
        return
    for split in [split_rows(rows, None, seed, share, links), *fold_rows(rows, None, seed, 3, links)]:
        assert times[split.train].max() < times[split.validation].min()
