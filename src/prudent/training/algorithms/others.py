"""Clusters, neural networks, and a function to test searches with."""

from __future__ import annotations

from prudent.training.algorithms.algorithm import CLASSIFICATION, CLUSTERING, FUNCTION, Algorithm
from prudent.training.algorithms.hyperparameter import INTEGER, REAL, Hyperparameter, SearchRange, choice
from prudent.training.algorithms.linear import AGGREGATION, max_iter, tol

_K = Hyperparameter("k", INTEGER, 2, "clusters", low=2, search=SearchRange(2, 20, log=True, cheap=2))


def _width(name: str, about: str) -> Hyperparameter:
    return Hyperparameter(name, INTEGER, None, about, low=1)


OTHERS = (
    Algorithm(
        "k-means",
        CLUSTERING,
        ("clustering",),
        (
            _K,
            max_iter(20),
            tol(1e-4),
            choice("initMode", "how the first centres are found", "k-means||", "random", searched=True),
            Hyperparameter("initSteps", INTEGER, 2, "steps of k-means||", low=1),
            choice("distanceMeasure", "what near means", "euclidean", "cosine"),
        ),
    ),
    Algorithm(
        "gaussian-mixture-model",
        CLUSTERING,
        ("clustering",),
        (_K, max_iter(100), tol(0.01), AGGREGATION),
    ),
    Algorithm(
        "multilayer-perceptron-classifier",
        CLASSIFICATION,
        ("deep-learning", "classification", "binomial-classification", "multinomial-classification"),
        (
            Hyperparameter(
                "numHiddenLayers",
                INTEGER,
                1,
                "layers between the ends",
                low=0,
                search=SearchRange(1, 3, cheap=1, good=2),
            ),
            Hyperparameter(
                "hiddenLayersWidth",
                INTEGER,
                32,
                "nodes in each of them",
                low=1,
                search=SearchRange(8, 256, log=True, cheap=32, good=64),
            ),
            _width("inputLayerWidth", "features; None: as many as the data have"),
            _width("outputLayerWidth", "classes; None: as many as the data have"),
            max_iter(100, SearchRange(20, 200, log=True, cheap=20, good=100)),
            Hyperparameter(
                "stepSize",
                REAL,
                0.01,
                "learning rate",
                low=0,
                open_low=True,
                search=SearchRange(1e-4, 0.1, log=True),
            ),
            Hyperparameter(
                "blockSize",
                INTEGER,
                128,
                "rows in a step",
                low=1,
                search=SearchRange(values=(32, 64, 128, 256)),
            ),
            tol(1e-6),
            Hyperparameter(
                "regParam", REAL, 0.0, "weight decay", low=0, search=SearchRange(1e-6, 1e-1, log=True)
            ),
            choice("solver", "how weights are moved", "adam", "l-bfgs", "gd"),
        ),
        iterative=True,
        sensible=False,
        simplicity=7,
    ),
    Algorithm(
        "branin",
        FUNCTION,
        ("misc-functions",),
        (
            Hyperparameter("x1", REAL, 2.5, "first coordinate", search=SearchRange(-5.0, 10.0)),
            Hyperparameter("x2", REAL, 7.5, "second coordinate", search=SearchRange(0.0, 15.0)),
        ),
        needs_data=False,
    ),
)
