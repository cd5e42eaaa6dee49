"""What is done to the data before an algorithm sees them; each setting can be searched like any other."""

from __future__ import annotations

from prudent.core.errors import unknown
from prudent.training.algorithms.hyperparameter import CHOICE, INTEGER, Hyperparameter, Search

_TRANSFORMS: dict[str, tuple[Hyperparameter, ...]] = {
    "impute": (
        Hyperparameter(
            "strategy",
            CHOICE,
            "mean",
            "what takes the place of a missing number",
            choices=("mean", "median", "most_frequent"),
            search=Search(values=("mean", "median", "most_frequent")),
        ),
    ),
    "one-hot": (Hyperparameter("maxCategories", INTEGER, 32, "categories that get a column", low=2),),
    "scale": (
        Hyperparameter(
            "method",
            CHOICE,
            "standard",
            "how columns are brought to one scale",
            choices=("standard", "minmax", "none"),
            search=Search(values=("standard", "minmax", "none")),
        ),
    ),
    "pca": (Hyperparameter("k", INTEGER, 5, "principal components that are kept", low=1),),
}


def transforms() -> list[str]:
    """The names that a request's `transforms[].name` takes, in the order in which they are applied."""
    return list(_TRANSFORMS)


def settings_of(name: str) -> dict[str, Hyperparameter]:
    """The settings of a transform.

    >>> settings_of("scale")["method"].choices
    ('standard', 'minmax', 'none')
    """
    if name not in _TRANSFORMS:
        raise unknown("transform", name, _TRANSFORMS)
    return {setting.name: setting for setting in _TRANSFORMS[name]}
