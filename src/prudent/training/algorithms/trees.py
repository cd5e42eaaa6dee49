"""Decision trees, forests of them, and trees that mend each other's errors."""

from __future__ import annotations

from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION, Algorithm
from prudent.training.algorithms.hyperparameter import (
    BOOLEAN,
    CHOICE,
    INTEGER,
    REAL,
    Hyperparameter,
    SearchRange,
    choice,
)
from prudent.training.algorithms.linear import ANY_CLASSES, max_iter


def _depth(high: int, cheap: int, good: int) -> Hyperparameter:
    return Hyperparameter(
        "maxDepth",
        INTEGER,
        5,
        "questions from the root to a leaf",
        low=0,
        high=30,
        search=SearchRange(1, high, cheap=cheap, good=good),
    )


_NODES = (
    Hyperparameter(
        "minInstancesPerNode",
        INTEGER,
        1,
        "rows that a leaf has at least",
        low=1,
        search=SearchRange(1, 64, log=True, cheap=16, good=4),
    ),
    Hyperparameter("minInfoGain", REAL, 0.0, "gain that a split needs", low=0),
    Hyperparameter("minWeightFractionPerNode", REAL, 0.0, "share of the rows in a leaf", low=0, high=0.5),
    Hyperparameter("maxBins", INTEGER, 32, "places where a feature may be split", low=2),
    Hyperparameter(
        "maxCategories",
        INTEGER,
        None,
        "a column with so many different values or fewer is a category; None: as the data say",
        low=2,
    ),
    Hyperparameter("cacheNodeIds", BOOLEAN, False, "keep each row's node"),
    Hyperparameter("maxMemoryInMB", INTEGER, 256, "memory for counting", low=0),
    Hyperparameter("checkpointInterval", INTEGER, 10, "iterations between checkpoints", low=-1),
)
_VARIANCE = choice("impurity", "what a split lowers", "variance")
_GINI = choice("impurity", "what a split lowers", "gini", "entropy", searched=True)


def _subset(default: str, search: SearchRange) -> Hyperparameter:
    return Hyperparameter(
        "featureSubsetStrategy",
        CHOICE,
        default,
        "features looked at for a split: a word, a number of them, or a share",
        low=0,
        open_low=True,
        choices=("auto", "all", "onethird", "sqrt", "log2"),
        numbers=True,
        search=search,
    )


def _rate(low: float) -> Hyperparameter:
    return Hyperparameter(
        "subsamplingRate",
        REAL,
        1.0,
        "share of the rows for each tree",
        low=0,
        high=1,
        open_low=True,
        search=SearchRange(low, 1.0, good=1.0),
    )


_FOREST = (
    Hyperparameter(
        "numTrees", INTEGER, 20, "trees", low=1, search=SearchRange(5, 300, log=True, cheap=5, good=100)
    ),
    _subset("auto", SearchRange(values=("sqrt", "log2", "onethird", "all"))),
    _rate(0.5),
    Hyperparameter("bootstrap", BOOLEAN, True, "draw rows with replacement"),
)
_BOOSTED = (
    max_iter(20, SearchRange(10, 1000, log=True, cheap=10, good=300)),
    Hyperparameter(
        "stepSize",
        REAL,
        0.1,
        "how much of each tree is added",
        low=0,
        high=1,
        open_low=True,
        search=SearchRange(0.02, 0.5, log=True, cheap=0.3, good=0.15),
    ),
    _rate(0.5),
    _subset("all", SearchRange(values=("all",))),
    Hyperparameter("validationTol", REAL, 0.01, "improvement below which training ends", low=0),
)

TREES = (
    Algorithm(
        "decision-tree-regression",
        REGRESSION,
        ("regression",),
        (_depth(20, 5, 10), *_NODES, _VARIANCE),
        simplicity=2,
    ),
    Algorithm(
        "random-forest-regression",
        REGRESSION,
        ("regression",),
        (*_FOREST, _depth(25, 8, 20), *_NODES, _VARIANCE),
        simplicity=4,
    ),
    Algorithm(
        "gradient-boosted-tree-regression",
        REGRESSION,
        ("regression",),
        (
            *_BOOSTED,
            _depth(12, 3, 6),
            *_NODES,
            _VARIANCE,
            choice("lossType", "what a residual costs", "squared", "absolute"),
        ),
        iterative=True,
        simplicity=6,
    ),
    Algorithm(
        "decision-tree-classification",
        CLASSIFICATION,
        ANY_CLASSES,
        (_depth(20, 5, 10), *_NODES, _GINI),
        simplicity=2,
    ),
    Algorithm(
        "random-forest-classification",
        CLASSIFICATION,
        ANY_CLASSES,
        (*_FOREST, _depth(25, 8, 20), *_NODES, _GINI),
        simplicity=4,
    ),
    Algorithm(
        "gradient-boosted-tree-classification",
        CLASSIFICATION,
        ANY_CLASSES,
        (
            *_BOOSTED,
            _depth(12, 3, 6),
            *_NODES,
            _VARIANCE,
            choice("lossType", "what an error costs", "logistic"),
        ),
        iterative=True,
        simplicity=6,
    ),
)
