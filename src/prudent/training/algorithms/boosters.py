"""LightGBM and XGBoost, with their own parameters, written as all names here are."""

from __future__ import annotations

from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION, Algorithm
from prudent.training.algorithms.hyperparameter import INTEGER, REAL, Hyperparameter, SearchRange
from prudent.training.algorithms.linear import ANY_CLASSES


def _rounds(name: str) -> Hyperparameter:
    search = SearchRange(10, 1000, log=True, cheap=10, good=300)
    return Hyperparameter(
        name, INTEGER, 100, "most rounds; each grows a tree (one for each class)", 0, search=search
    )


def _rate(default: float) -> Hyperparameter:
    search = SearchRange(0.01, 0.5, log=True, cheap=0.3, good=0.1)
    about = "how much of each tree is added"
    return Hyperparameter("learningRate", REAL, default, about, 0, 1, open_low=True, search=search)


def _share(name: str, about: str, low: float) -> Hyperparameter:
    search = SearchRange(low, 1.0, good=1.0)
    return Hyperparameter(name, REAL, 1.0, about, 0, 1, open_low=True, search=search)


def _penalty(name: str, default: float, about: str, search: SearchRange | None = None) -> Hyperparameter:
    return Hyperparameter(name, REAL, default, about, 0, search=search)


_LIGHTGBM = (
    _rounds("numIterations"),
    _rate(0.1),
    Hyperparameter(
        "numLeaves",
        INTEGER,
        31,
        "most leaves of a tree",
        low=2,
        high=131_072,
        search=SearchRange(4, 512, log=True, cheap=8, good=31),
    ),
    Hyperparameter("maxDepth", INTEGER, -1, "questions from the root to a leaf; -1 for any number", low=-1),
    Hyperparameter(
        "minDataInLeaf",
        INTEGER,
        20,
        "rows that a leaf has at least",
        low=1,
        search=SearchRange(2, 128, log=True, good=20),
    ),
    _share("featureFraction", "share of the features for each tree", 0.4),
    _share("baggingFraction", "share of the rows for each tree", 0.5),
    _penalty("lambdaL1", 0.0, "weight of the absolute penalty on leaves"),
    _penalty(
        "lambdaL2",
        0.0,
        "weight of the squared penalty on leaves",
        SearchRange(1e-3, 100.0, log=True, good=1e-3),
    ),
    _penalty("minGainToSplit", 0.0, "gain that a split needs"),
    Hyperparameter("maxBin", INTEGER, 255, "places where a feature may be split", low=2, high=65_535),
)
_XGBOOST = (
    _rounds("numRound"),
    _rate(0.3),
    Hyperparameter(
        "maxDepth",
        INTEGER,
        6,
        "questions from the root to a leaf",
        low=1,
        high=16,
        search=SearchRange(1, 12, cheap=3, good=6),
    ),
    _penalty(
        "minChildWeight",
        1.0,
        "weight (of rows, by the loss's second derivative) that a leaf has at least",
        SearchRange(0.1, 64.0, log=True, good=1.0),
    ),
    _share("subsample", "share of the rows for each tree", 0.5),
    _share("colsampleBytree", "share of the features for each tree", 0.4),
    _penalty("regAlpha", 0.0, "weight of the absolute penalty on leaves"),
    _penalty(
        "regLambda",
        1.0,
        "weight of the squared penalty on leaves",
        SearchRange(1e-2, 100.0, log=True, good=1.0),
    ),
    _penalty("gamma", 0.0, "gain that a split needs"),
    Hyperparameter("maxBin", INTEGER, 256, "places where a feature may be split", low=2, high=65_535),
)

BOOSTERS = tuple(
    Algorithm(
        f"{library}-{task}",
        task,
        domains,
        parameters,
        iterative=True,
        native=True,
        engines=engines,
        simplicity=6,
    )
    for library, parameters, engines in (
        ("lightgbm", _LIGHTGBM, ("local",)),
        ("xgboost", _XGBOOST, ("local", "spark")),
    )
    for task, domains in ((REGRESSION, ("regression",)), (CLASSIFICATION, ANY_CLASSES))
)
