"""Whether probabilities mean what they say: of rows called 80 % sure, 80 % are to be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.ensembles.selection import Outputs

_BINS, _FEWEST_ROWS = 10, 50
_CHANCE = 0.001
_SLIGHT = 0.02
"""An error of a probability that nobody would notice, however sure one is that it is there."""


@dataclass(frozen=True)
class ReliabilityBin:
    """Rows of about the same probability: what was said on average, and how often it came true, with 95 %."""

    said: float
    found: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True)
class Reliability:
    """The bins in order; `error` is how far they are off on average, weighted by rows (ECE).

    `class_name` is the class whose probability it is; empty where it is that of the predicted class.
    `trust` tells which way it is off beyond chance: "too sure", "too unsure", "off", or empty.
    """

    bins: tuple[ReliabilityBin, ...]
    error: float
    class_name: str
    trust: str


def reliability(
    probabilities: Outputs, actual: NDArray[np.int64], classes: tuple[Any, ...]
) -> Reliability | None:
    """The reliability of probabilities for rows that the model had not seen; None of too few rows.

    Of two classes it is that of the second, of more that of the predicted class. It is off where Hosmer's and
    Lemeshow's test says so, Σ (found - said)² n / (p (1 - p)) over the bins against chi², and by enough to
    matter.
    """
    if len(actual) < _FEWEST_ROWS or probabilities.shape[1] < 2:
        return None
    binary = probabilities.shape[1] == 2
    places = np.full(len(actual), 1) if binary else probabilities.argmax(axis=1)
    said = np.clip(probabilities[np.arange(len(actual)), places].astype(np.float64), 0.0, 1.0)
    right = (actual == places).astype(np.float64)
    bins = [_bin(said[rows], right[rows]) for rows in _equal_parts(said)]
    error = sum(one.rows * abs(one.said - one.found) for one in bins) / len(actual)
    name = str(classes[1]) if binary else ""
    return Reliability(tuple(bins), float(error), name, _trust(said, right, error, binary))


def _equal_parts(said: Outputs) -> list[NDArray[np.int64]]:
    """Row numbers by probability, in parts of the same size; equal probabilities are not torn apart."""
    order = np.argsort(said, kind="stable")
    cuts = [round(len(said) * number / _BINS) for number in range(1, _BINS)]
    edges = sorted({int(np.searchsorted(said[order], said[order[cut]])) for cut in cuts if cut < len(said)})
    return [part for part in np.split(order, edges) if len(part)]


def _bin(said: Outputs, right: Outputs) -> ReliabilityBin:
    low, high = wilson_interval(float(right.sum()), len(right))
    return ReliabilityBin(float(said.mean()), float(right.mean()), low, high, len(right))


def wilson_interval(hits: float, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927).

    >>> tuple(round(end, 3) for end in wilson_interval(5, 10))
    (0.237, 0.763)
    """
    z = 1.96
    share, room = hits / rows, z * z / rows
    middle = (share + room / 2) / (1 + room)
    half = z / (1 + room) * float(np.sqrt(share * (1 - share) / rows + room / (4 * rows)))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _trust(said: Outputs, right: Outputs, error: float, binary: bool) -> str:
    from scipy.special import gammaincc  # chi² without the whole of scipy.stats, which takes a second

    parts = _equal_parts(said)
    variance = np.array([(said[rows] * (1 - said[rows])).sum() for rows in parts])
    missed = np.array([right[rows].sum() - said[rows].sum() for rows in parts])
    # A bin of certainties that come true tells nothing; one that fails once tells all.
    statistic = float((missed**2 / np.maximum(variance, 1e-3)).sum())
    if error < _SLIGHT or gammaincc(len(parts) / 2, statistic / 2) > _CHANCE:
        return ""
    # How sure it is of what it says, whichever class that is.
    sure = np.maximum(said, 1 - said) if binary else said
    hit = np.where(said >= 0.5, right, 1 - right) if binary else right
    excess = float((sure - hit).mean())
    if abs(excess) < 2 * float(np.sqrt((sure * (1 - sure)).sum())) / len(sure):
        return "off"
    return "too sure" if excess > 0 else "too unsure"
