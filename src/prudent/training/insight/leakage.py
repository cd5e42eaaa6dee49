"""Signs that a score is too good: columns that know the answer, copies of rows, columns that number rows.

Each finding is a sentence that ends with what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import CATEGORICAL, DATE, Column, Matrix
from prudent.training.data.encoding import MOST_CATEGORIES
from prudent.training.engines.engine import UnseenRows
from prudent.training.models.metrics import confusion, mcc, r2

_NEARLY_PERFECT_MCC, _NEARLY_PERFECT_R2 = 0.98, 0.99
_NEIGHBOURS = 5
_FEWEST_ROWS, _MOST_ROWS = 40, 4000
_TWINS, _BEYOND_CHANCE = 0.01, 3.0
_ID_NAME = re.compile(r"(^|[\W_])(id|uuid|guid|key|index|idx|row|rownum|nr|no)$|[a-z0-9]I[dD]$", re.I)
_DIFFERENT = 0.9  # copies of rows have the same number
_NAMED = 3  # columns that a sentence names


def leakage_warnings(
    learned: UnseenRows,
    judged: UnseenRows,
    columns: Sequence[Column],
    powers: Mapping[int, float] | None = None,
) -> tuple[str, ...]:
    """What is suspicious about rows that models learned from and others that judged them.

    `powers` are those of `column_powers`, where they are known already.
    """
    some = thinned(learned)
    found = [_twin_warning(learned, judged), _id_warning(some, columns)]
    ids = set(id_columns(some, columns))
    telling = [
        (columns[place].name, power)
        for place, power in (powers or dict(column_powers(some, columns))).items()
        if power >= (_NEARLY_PERFECT_MCC if _has_classes(some) else _NEARLY_PERFECT_R2)
        and columns[place].name not in ids
    ]
    return tuple(said for said in (_telling_warning(telling, _has_classes(some)), *found) if said)


def _telling_warning(telling: Sequence[tuple[str, float]], has_classes: bool) -> str:
    if not telling:
        return ""
    one, power = len(telling) == 1, max(power for _, power in telling)
    predict, are, them = ("predicts", "it is", "it") if one else ("predict", "they are", "them")
    return (
        f"{_listed([name for name, _ in telling])} alone {predict} the target almost perfectly "
        f"({'MCC' if has_classes else 'R²'} {power:.3f}): if {are} not known before the target is, leave "
        f'{them} out with "features".'
    )


def column_powers(
    rows: UnseenRows, columns: Sequence[Column], is_over: Callable[[], bool] = lambda: False
) -> Iterator[tuple[int, float]]:
    """What each column alone predicts on rows held back from it: MCC of classes, R² of values.

    By category, or by the five nearest values of a number; a missing value is one of its own.
    """
    if len(rows) < _FEWEST_ROWS:
        return
    half = np.arange(len(rows)) % 2 == 0
    order = np.random.default_rng(0).permutation(len(rows))
    first, second = order[half], order[~half]
    classes = int(rows.y.max()) + 1 if _has_classes(rows) else 0
    for place, column in enumerate(columns):
        if is_over():
            return
        values = rows.X[:, place].astype(np.float64)
        said = (_by_category if column.kind == CATEGORICAL else _by_neighbours)(
            values[first], _targets(rows.y[first], classes), values[second]
        )
        actual = rows.y[second]
        if classes:
            yield place, mcc(confusion(actual, said.argmax(axis=1), classes))
        else:
            yield place, r2(actual, said[:, 0])


def _targets(actual: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """A column for each class, or one of values."""
    if not classes:
        return actual.astype(np.float64)[:, None]
    found: NDArray[np.float64] = np.eye(classes)[actual]
    return found


def _by_category(
    known: NDArray[Any], targets: NDArray[np.float64], asked: NDArray[Any]
) -> NDArray[np.float64]:
    """The mean target of the rows of the same category; of one never seen, of all rows."""
    codes, asked_codes = (np.nan_to_num(values, nan=-1.0).astype(np.int64) + 1 for values in (known, asked))
    size = int(max(codes.max(), asked_codes.max())) + 1
    counts = np.bincount(codes, minlength=size)
    sums = np.stack([np.bincount(codes, weights=column, minlength=size) for column in targets.T], axis=1)
    means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], targets.mean(axis=0))
    return np.asarray(means[asked_codes])


def _by_neighbours(
    known: NDArray[Any], targets: NDArray[np.float64], asked: NDArray[Any]
) -> NDArray[np.float64]:
    """The mean target of the rows with the nearest values."""
    below = np.nanmin(known) - 1 if not np.isnan(known).all() else 0.0
    known, asked = (np.nan_to_num(values, nan=below) for values in (known, asked))
    order = np.argsort(known, kind="stable")
    sums = np.concatenate([np.zeros((1, targets.shape[1])), np.cumsum(targets[order], axis=0)])
    reach = min(_NEIGHBOURS, len(known))
    middle = (
        np.searchsorted(known[order], asked, "left") + np.searchsorted(known[order], asked, "right")
    ) // 2
    start = np.clip(middle - reach // 2, 0, len(known) - reach)
    return np.asarray((sums[start + reach] - sums[start]) / reach)


# Copies


def _twin_warning(learned: UnseenRows, judged: UnseenRows) -> str:
    """Judged rows that are copies of others, where there are more of them than chance makes."""
    twins = copies(learned, judged)
    expected = _expected_copies(learned, judged)
    if twins < 2 or twins < max(_TWINS * len(judged), _BEYOND_CHANCE * expected):
        return ""
    return (
        f"{twins:,} of {len(judged):,} rows that judge models ({100 * twins / len(judged):.3g} %) are copies "
        "of rows that models learned from, so scores are too good: remove copies, or keep them together."
    )


def copies(learned: UnseenRows, judged: UnseenRows) -> int:
    """How many judged rows have the same features and target as another row that was learned from."""
    seen, asked = _row_hashes(learned), _row_hashes(judged)
    found = np.isin(asked, seen)
    if found.any():  # a row that both hold (it judged in one fold, and was learned from in others) is no copy
        both = np.isin(judged.rows, learned.rows)
        different, counts = np.unique(seen, return_counts=True)
        found[found] = counts[np.searchsorted(different, asked[found])] > both[found]
    return int(found.sum())


def _row_hashes(rows: UnseenRows) -> NDArray[np.uint64]:
    """A number for each row; the same only for the same features (missing ones too) and target."""
    rng = np.random.default_rng(0)
    hashed: NDArray[Any] = np.zeros(len(rows), np.uint64)
    for column in (*rows.X.T, rows.y):
        values = np.nan_to_num(np.asarray(column, np.float64), nan=-1.2345e300) + 0.0  # -0 is 0
        mixed = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        factor = np.uint64(rng.integers(2**63)) | np.uint64(1)
        hashed = hashed * np.uint64(3) + (mixed ^ (mixed >> np.uint64(29))) * factor
    return hashed


def _expected_copies(learned: UnseenRows, judged: UnseenRows) -> float:
    """How many copies there would be if columns knew nothing of each other."""
    alike = 1.0
    for column in (*learned.X.T, learned.y):
        counts = np.unique(column, return_counts=True, equal_nan=True)[1]
        alike *= float(np.square(counts / len(learned)).sum())
        if alike * len(learned) < 1e-6:
            return 0.0
    return len(judged) * -float(np.expm1(-len(learned) * alike))


# Row numbers


def _id_warning(rows: UnseenRows, columns: Sequence[Column]) -> str:
    found = id_columns(rows, columns)
    if not found:
        return ""
    name, them = ("numbers or names", "it") if len(found) == 1 else ("number or name", "them")
    return (
        f"{_listed(found)} {name} the rows (a different value in each), which says nothing about new ones: "
        f'leave {them} out with "features".'
    )


def id_columns(rows: UnseenRows, columns: Sequence[Column]) -> list[str]:
    """Columns with a different value in every row: words, or whole numbers that count or are called so."""
    if len(rows) < _FEWEST_ROWS:
        return []
    return [column.name for place, column in enumerate(columns) if _is_id(rows, column, rows.X[:, place])]


def _is_id(rows: UnseenRows, column: Column, values: Matrix) -> bool:
    known = values[~np.isnan(values)]
    # Of words the most frequent are kept as categories, and the others are missing.
    enough = _FEWEST_ROWS if len(column.categories) >= MOST_CATEGORIES else 0.9 * len(rows)
    if column.kind == DATE or len(known) < enough or len(np.unique(known)) < _DIFFERENT * len(known):
        return False
    if column.kind == CATEGORICAL:
        return True
    if (known % 1 != 0).any():
        return False
    spread = float(known.max() - known.min())
    numbers = rows.rows[~np.isnan(values)]
    in_order = known[np.argsort(numbers, kind="stable")]
    rising = float((np.diff(in_order) > 0).mean())
    counts = max(rising, 1 - rising) >= _DIFFERENT
    dense = spread <= 3 * float(numbers.max() - numbers.min() + 1)
    return bool(_ID_NAME.search(column.name)) or (dense and counts)


def thinned(rows: UnseenRows, most: int = _MOST_ROWS) -> UnseenRows:
    """Some of the rows, evenly spread."""
    places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64))
    return rows.at(places)


def _has_classes(rows: UnseenRows) -> bool:
    return rows.y.dtype.kind in "iu"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more columns" if len(names) > _NAMED else "")
