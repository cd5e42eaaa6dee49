"""Linear models: regression, classification by a hyperplane, and naive Bayes beside them."""

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

BINOMIAL = ("binomial-classification", "classification")
MULTINOMIAL = ("multinomial-classification", "classification")
ANY_CLASSES = ("binomial-classification", "multinomial-classification", "classification")


def max_iter(default: int, search: SearchRange | None = None) -> Hyperparameter:
    return Hyperparameter("maxIter", INTEGER, default, "most iterations", low=0, search=search)


def tol(default: float) -> Hyperparameter:
    return Hyperparameter("tol", REAL, default, "improvement below which training ends", low=0)


REG_PARAM = Hyperparameter(
    "regParam",
    REAL,
    0.0,
    "weight of the penalty beside the mean loss",
    low=0,
    search=SearchRange(1e-5, 10.0, log=True, good=1e-3),
)
ELASTIC_NET = Hyperparameter(
    "elasticNetParam",
    REAL,
    0.0,
    "0 for the squared penalty (ridge), 1 for the absolute one (lasso), between them a mixture",
    low=0,
    high=1,
    search=SearchRange(0.0, 1.0),
)
FIT_INTERCEPT = Hyperparameter("fitIntercept", BOOLEAN, True, "whether there is an intercept")
STANDARDIZATION = Hyperparameter(
    "standardization", BOOLEAN, True, "whether features are scaled to unit deviation for the penalty"
)
AGGREGATION = Hyperparameter("aggregationDepth", INTEGER, 2, "depth of the sum's tree", low=2)
_FAMILIES = ("gaussian", "binomial", "poisson", "gamma", "tweedie")
_LINKS = ("identity", "log", "inverse", "logit", "probit", "cloglog", "sqrt")
_COMMON = (FIT_INTERCEPT, STANDARDIZATION, AGGREGATION)
_ITERATIONS = max_iter(100)

LINEAR = (
    Algorithm(
        "linear-regression",
        REGRESSION,
        ("regression",),
        (
            _ITERATIONS,
            REG_PARAM,
            ELASTIC_NET,
            tol(1e-6),
            *_COMMON,
            choice("loss", "what a residual costs", "squaredError", "huber"),
            Hyperparameter("epsilon", REAL, 1.35, "where huber turns linear", low=1, open_low=True),
            choice("solver", "how it is solved", "auto", "normal", "l-bfgs"),
        ),
        simplicity=1,
    ),
    Algorithm(
        "generalized-linear-regression",
        REGRESSION,
        ("regression",),
        (
            Hyperparameter(
                "family",
                CHOICE,
                "gaussian",
                "distribution of the target",
                choices=_FAMILIES,
                search=SearchRange(values=("gaussian",)),
            ),
            Hyperparameter(
                "link", CHOICE, None, "from mean to linear part; None: the family's own", choices=_LINKS
            ),
            Hyperparameter("variancePower", REAL, 0.0, "of the tweedie family: 0, or 1 and more", low=0),
            Hyperparameter("linkPower", REAL, None, "of the tweedie family's link"),
            max_iter(25),
            Hyperparameter(
                "regParam",
                REAL,
                0.0,
                "weight of the squared penalty",
                low=0,
                search=SearchRange(1e-5, 10.0, log=True),
            ),
            tol(1e-6),
            FIT_INTERCEPT,
            AGGREGATION,
            choice("solver", "how it is solved", "irls"),
        ),
        sensible=False,
        simplicity=2,
    ),
    Algorithm(
        "linear-support-vector-machine",
        CLASSIFICATION,
        BINOMIAL,
        (
            _ITERATIONS,
            REG_PARAM,
            tol(1e-6),
            *_COMMON,
            Hyperparameter("threshold", REAL, 0.0, "raw prediction from which it is the second class"),
        ),
        classes=2,
        probabilities=False,
        simplicity=1,
    ),
    Algorithm(
        "binomial-logistic-regression",
        CLASSIFICATION,
        BINOMIAL,
        (
            _ITERATIONS,
            REG_PARAM,
            ELASTIC_NET,
            tol(1e-6),
            *_COMMON,
            Hyperparameter("threshold", REAL, 0.5, "probability of the second class", low=0, high=1),
        ),
        classes=2,
        simplicity=1,
    ),
    Algorithm(
        "multinomial-logistic-regression",
        CLASSIFICATION,
        MULTINOMIAL,
        (_ITERATIONS, REG_PARAM, ELASTIC_NET, tol(1e-6), *_COMMON),
        simplicity=1,
    ),
    Algorithm(
        "naive-bayes",
        CLASSIFICATION,
        ANY_CLASSES,
        (
            Hyperparameter(
                "smoothing",
                REAL,
                1.0,
                "added to every count",
                low=0,
                search=SearchRange(1e-3, 10.0, log=True),
            ),
            Hyperparameter(
                "modelType",
                CHOICE,
                "multinomial",
                "what is assumed of features; only gaussian takes negative ones, bernoulli takes 0 and 1",
                choices=("multinomial", "bernoulli", "gaussian", "complement"),
                search=SearchRange(values=("gaussian", "multinomial", "complement"), cheap="gaussian"),
            ),
        ),
        simplicity=1,
    ),
)
