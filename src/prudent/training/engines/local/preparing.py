"""Prepared rows for a trial, kept for the next one that wants the same."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from prudent.training.engines.local.lesson import Part
from prudent.training.engines.local.steps import Step, apply_all
from prudent.training.engines.local.store import Store
from prudent.training.engines.local.transforms import Preparation, has_missing
from prudent.training.splitting import Rows, subsample

FINAL = -1
"""In place of a split's number: every row trains, none is held out."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Training rows and held-out rows after the steps that were fitted on the former."""

    rows: Part
    held_out: Part | None
    steps: tuple[Step, ...]

    @property
    def size(self) -> int:
        return int(self.rows.X.nbytes + (self.held_out.X.nbytes if self.held_out else 0))


class Kitchen:
    """Prepares rows by split, share and transforms; keeps what was used last, up to `most_bytes`."""

    def __init__(self, store: Store, seed: int, most_bytes: int) -> None:
        self._store = store
        self._seed = seed
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, Prepared] = OrderedDict()
        self._missing: bool | None = None

    def prepare(
        self, split: int, fraction: float, transforms: Mapping[str, Any], max_categories: int | None
    ) -> Prepared:
        key = json.dumps([split, fraction, list(transforms.items()), max_categories], default=str)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        found = self._prepare(split, fraction, transforms, max_categories)
        self._kept[key] = found
        while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > self._most_bytes:
            self._kept.popitem(last=False)
        return found

    def _prepare(
        self, split: int, fraction: float, transforms: Mapping[str, Any], max_categories: int | None
    ) -> Prepared:
        store = self._store
        chosen = np.arange(len(store.X)) if split == FINAL else store.splits[split].train
        chosen = subsample(chosen, store.y, fraction, self._seed)
        preparation = Preparation(store.X[chosen], store.columns, self._some_missing)
        for name, settings in transforms.items():
            preparation.add(name, settings)
        preparation.finish(max_categories)
        steps = tuple(preparation.steps)
        rows = Part(preparation.X, self._target(chosen))
        if split == FINAL:
            return Prepared(rows, None, steps)
        others = store.splits[split].validation
        return Prepared(rows, Part(apply_all(steps, store.X[others]), self._target(others)), steps)

    @property
    def _some_missing(self) -> bool:
        if self._missing is None:
            self._missing = has_missing(self._store.X)
        return self._missing

    def _target(self, rows: Rows) -> Any:
        return None if self._store.y is None else self._store.y[rows]
