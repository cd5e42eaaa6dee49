"""What a model would do in practice, in words and counts: from what it did on rows it had not seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prudent.reports import formatting
from prudent.training.engines.figures import FOLDS, TEST

MOST_CLASSES = 12
"""A confusion matrix of more classes than this is told by its worst confusions instead."""


def _share(part: float) -> str:
    return formatting.share(part).replace(" %", "\N{NO-BREAK SPACE}%")


@dataclass(frozen=True)
class MatrixCell:
    """How many rows of one class were taken for one class; `part` is their share of the actual class."""

    count: int
    part: float
    right: bool


@dataclass(frozen=True)
class ClassRow:
    """A class: the rows of it, how many were found, and how many that were called so are so."""

    label: str
    rows: int
    found: float | None
    precise: float | None
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix with its meaning."""

    labels: tuple[str, ...]
    rows: tuple[ClassRow, ...]
    says: str
    worst: tuple[tuple[str, str, int, float], ...]
    """Actual class, predicted class, rows, share of the actual class; most rows first."""

    @property
    def whole(self) -> bool:
        return len(self.labels) <= MOST_CLASSES


JUDGED = {
    FOLDS: "rows that the folds held out, each judged by a model that had not seen it",
    TEST: "rows of the test part, which no trial had seen",
}
"""Which rows a picture is of, in words."""
_HELD_OUT = "rows it was judged on"


def confusion(said: Mapping[str, Any], classes: Sequence[Any], of: str = "") -> Confusion | None:
    """The confusion matrix of a picture; its labels are class numbers or labels. `of` says of which rows."""
    counts = np.asarray(said["counts"], np.int64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.sum():
        return None
    named = classes if len(classes) == len(counts) else said.get("labels", range(len(counts)))
    labels = tuple(formatting.value(label) for label in named)
    actual, called = counts.sum(1), counts.sum(0)
    rows = tuple(
        ClassRow(
            labels[i],
            int(actual[i]),
            float(counts[i, i] / actual[i]) if actual[i] else None,
            float(counts[i, i] / called[i]) if called[i] else None,
            tuple(
                MatrixCell(int(counts[i, j]), float(counts[i, j] / actual[i]) if actual[i] else 0.0, i == j)
                for j in range(len(labels))
            ),
        )
        for i in range(len(labels))
    )
    return Confusion(labels, rows, _right(counts, labels, JUDGED.get(of, _HELD_OUT)), _worst(counts, labels))


def _right(counts: Any, labels: Sequence[str], judged: str) -> str:
    total, right, most = int(counts.sum()), int(np.trace(counts)), int(counts.sum(1).argmax())
    always = counts.sum(1)[most] / total
    return (
        f"It is right for {_share(right / total)} of the {total:,} {judged}; always saying "
        f"“{labels[most]}” would be right for {_share(float(always))}."
    )


def no_better_than_guessing(picture: Mapping[str, Any]) -> str:
    """A sentence where the best model has learned nothing that shows on rows it had not seen; else none.

    For classes by Cohen's kappa, its agreement with the truth beyond chance; for numbers by the share of the
    variance that it explains. Both count as nothing below two standard errors of what guessing gives.
    """
    if "confusion" in picture:
        return _guesses_classes(np.asarray(picture["confusion"]["counts"], float))
    found = residuals(picture["residuals"], None) if "residuals" in picture else None
    return "" if found is None else _guesses_numbers(found)


def _guesses_classes(counts: Any) -> str:
    total = counts.sum()
    if counts.ndim != 2 or not total:
        return ""
    agreed = float(np.trace(counts) / total)
    chance = float(counts.sum(0) @ counts.sum(1) / total**2)
    if agreed - chance > 2 * math.sqrt(chance * (1 - chance) / total):
        return ""
    most = float(counts.sum(1).max() / total)
    return (
        f"The best model is no better than guessing: it is right for {_share(agreed)} of the rows it was "
        f"judged on, and always predicting the most frequent class would be right for {_share(most)}."
    )


def _guesses_numbers(found: Residuals) -> str:
    errors, actual = np.array(found.errors), np.array(found.actual)
    variance = float(actual.var())
    if variance and 1 - float((errors**2).mean()) / variance > 4 / len(actual):
        return ""
    return (
        "The best model is no better than guessing: always predicting the mean would be as close to the "
        "rows it was judged on."
    )


def _worst(counts: Any, labels: Sequence[str]) -> tuple[tuple[str, str, int, float], ...]:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:8]
    found = []
    for i, j in (np.unravel_index(place, wrong.shape) for place in order):
        if wrong[i, j]:
            found.append((labels[i], labels[j], int(wrong[i, j]), float(wrong[i, j] / counts[i].sum())))
    return tuple(found)


@dataclass(frozen=True)
class Residuals:
    """How far predictions were off, in the target's unit."""

    predicted: tuple[float, ...]
    actual: tuple[float, ...]
    says: str

    @property
    def errors(self) -> tuple[float, ...]:
        """Actual minus predicted."""
        return tuple(a - p for a, p in zip(self.actual, self.predicted, strict=True))


def residuals(said: Mapping[str, Any], target: str | None, of: str = "") -> Residuals | None:
    """The residuals of a picture, and how large they are; `of` says of which rows."""
    pairs = [
        (float(p), float(a))
        for p, a in zip(said["predicted"], said["actual"], strict=True)
        if p is not None and a is not None and math.isfinite(p) and math.isfinite(a)
    ]
    if not pairs:
        return None
    predicted, actual = (np.array(values) for values in zip(*pairs, strict=True))
    off = np.abs(actual - predicted)
    mean_off = np.abs(actual - actual.mean())
    what = f"“{target}”" if target else "the target"
    judged = f" on {JUDGED[of]}," if of in JUDGED else ""
    says = (
        f"Half of its predictions of {what}{judged} are off by less than {np.median(off):.3g}, nine in ten "
        f"by less than {np.quantile(off, 0.9):.3g}; always saying the mean, {actual.mean():.4g}, would be "
        f"off by less than {np.median(mean_off):.3g} and {np.quantile(mean_off, 0.9):.3g}."
    )
    return Residuals(tuple(predicted.tolist()), tuple(actual.tolist()), says)


@dataclass(frozen=True)
class ClusterSilhouette:
    """The rows of one cluster: how many, their silhouettes from high to low, and the mean of them."""

    number: int
    part: float
    values: tuple[float, ...]
    mean: float


@dataclass(frozen=True)
class Silhouette:
    """All clusters, and how well rows sit in them."""

    clusters: tuple[ClusterSilhouette, ...]
    says: str


def silhouette(said: Mapping[str, Any]) -> Silhouette | None:
    """The silhouettes of a picture, by cluster."""
    numbers, values = np.asarray(said["cluster"], np.int64), np.asarray(said["value"], float)
    if not len(values):
        return None
    clusters = []
    for number in np.unique(numbers):
        own = np.sort(values[numbers == number])[::-1]
        clusters.append(
            ClusterSilhouette(int(number), len(own) / len(values), tuple(own.tolist()), float(own.mean()))
        )
    astray = float((values < 0).mean())
    largest = max(cluster.part for cluster in clusters)
    says = f"It makes {len(clusters)} clusters; the largest holds {_share(largest)} of the rows. " + (
        f"{_share(astray)} of the rows lie nearer to another cluster than to their own."
        if astray
        else "Every row lies nearer to its own cluster than to any other."
    )
    return Silhouette(tuple(clusters), says)
