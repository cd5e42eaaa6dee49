"""Generalised linear regression by iteratively reweighted least squares, as Spark does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, RunFailed
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import FitTask, LearningCurve
from prudent.training.engines.local.column_statistics import mean_and_deviation
from prudent.training.engines.local.learners.linear import LinearRegressor, linear_regression
from prudent.training.engines.local.learners.solver import LinearFunction
from prudent.training.engines.onnx_export import DOUBLE, FLOAT, GraphOutputs, OnnxGraph

Vector = NDArray[np.float64]
_PLAIN = {"loss": "squaredError", "elasticNetParam": 0.0, "standardization": True}


@dataclass(frozen=True, eq=False)
class GeneralizedLinearModel:
    """The mean of the target through a link: link(mean) = line."""

    linear: LinearFunction
    link: LinkFunction
    family: DistributionFamily
    importance: NDArray[np.float64] | None = None
    learning_curve: LearningCurve | None = None

    def predict(self, X: Matrix) -> NDArray[Any]:
        return self.family.project(self.link.mean(self.linear.apply(X)[:, 0]))

    def probabilities(self, X: Matrix) -> None:
        return None

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        raw = graph.flatten(graph.affine(rows, self.linear.weights, self.linear.intercepts))
        mean = self.link.graph(graph, raw)
        low, high = self.family.bounds
        clipped = graph.add("Max", mean, graph.constant(low)) if np.isfinite(low) else mean
        clipped = graph.add("Min", clipped, graph.constant(high)) if np.isfinite(high) else clipped
        return GraphOutputs(clipped, is_integer=False)


def generalized_regression(
    fit_task: FitTask, params: Mapping[str, Any]
) -> GeneralizedLinearModel | LinearRegressor:
    """Weighted least squares on a linearised target, again and again until the weights stay."""
    power = params["variancePower"]
    family = family_of(params["family"], power)
    link = link_of(params["family"], params["link"], power, params["linkPower"])
    if family.name == "gaussian" and link.name == "identity":
        return linear_regression(fit_task, {**params, **_PLAIN})
    y = fit_task.rows.target.astype(np.float64)
    means = family.start(y)
    X = fit_task.rows.X.astype(np.float64)
    if params["fitIntercept"]:
        X = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    penalties = np.full(X.shape[1], params["regParam"])
    penalties[fit_task.rows.X.shape[1] :] = 0.0
    found = _weighted(X, _linear(link, means), np.ones(len(y)), penalties)
    for _ in range(params["maxIter"]):
        linear = X @ found
        means = family.project(link.mean(linear))
        slopes = link.slope(means)
        before = found
        found = _weighted(
            X, linear + (y - means) * slopes, 1.0 / (slopes**2 * family.variance(means)), penalties
        )
        if np.abs(found - before).max() < params["tol"]:
            break
    return _model(found, fit_task, params["fitIntercept"], link, family)


def _linear(link: LinkFunction, means: Vector) -> Vector:
    with np.errstate(all="ignore"):
        linear = link.linear(means)
    if not np.isfinite(linear).all():
        raise BadInput(f"The target has values that the {link.name} link does not take; use another link.")
    return linear


def _weighted(X: Vector, target: Vector, weights: Vector, penalties: Vector) -> Vector:
    """Least squares with the mean of squares weighted, plus the squared penalty."""
    if not (np.isfinite(target).all() and np.isfinite(weights).all() and weights.sum() > 0):
        raise RunFailed("The weights grew without bounds; set a larger regParam, or use another link.")
    weights = weights / weights.sum()
    scaled = X * weights[:, None]
    gram = scaled.T @ X
    gram[np.diag_indices_from(gram)] += penalties
    return np.asarray(np.linalg.lstsq(gram, scaled.T @ target, rcond=1e-14)[0])


def _model(
    found: Vector, fit_task: FitTask, intercept: bool, link: LinkFunction, family: DistributionFamily
) -> GeneralizedLinearModel:
    features = fit_task.rows.X.shape[1]
    _, spread = mean_and_deviation(fit_task.rows.X)
    linear = LinearFunction(found[:features, None], found[features:] if intercept else np.zeros(1))
    return GeneralizedLinearModel(linear, link, family, np.abs(found[:features]) * spread)


_EPSILON = 1e-16
_DELTA = 0.1  # where the search begins for a target of 0 whose logarithm is asked for
_ALLOWED = {
    "gaussian": ("identity", "log", "inverse"),
    "binomial": ("logit", "probit", "cloglog"),
    "poisson": ("log", "identity", "sqrt"),
    "gamma": ("inverse", "identity", "log"),
}
_POWERS = {"identity": 1.0, "log": 0.0, "inverse": -1.0, "sqrt": 0.5}
_VARIANCE_POWERS = {"gaussian": 0.0, "poisson": 1.0, "gamma": 2.0}


@dataclass(frozen=True)
class LinkFunction:
    """From the mean to the linear part and back; `slope` is of the link at a mean."""

    name: str
    linear: Callable[[Vector], Vector]
    mean: Callable[[Vector], Vector]
    slope: Callable[[Vector], Vector]
    graph: Callable[[OnnxGraph, str], str]


@dataclass(frozen=True)
class DistributionFamily:
    """A distribution of the target: how variance goes with the mean, and which means there are."""

    name: str
    variance: Callable[[Vector], Vector]
    bounds: tuple[float, float]
    least_target: float = -np.inf
    zero_allowed: bool = True

    def start(self, y: Vector) -> Vector:
        """Means to begin with; BadInput for a target that the family does not have."""
        if self.name == "binomial":
            if y.min() < 0 or y.max() > 1:
                raise BadInput("The binomial family takes a target from 0 to 1; use another family.")
            return (y + 0.5) / 2.0
        if y.min() < self.least_target or (not self.zero_allowed and y.min() <= 0):
            sign = "of 0 or more" if self.zero_allowed else "above 0"
            raise BadInput(f"The {self.name} family takes a target {sign}; use family gaussian.")
        return np.maximum(y, _DELTA) if self.least_target == 0 and self.zero_allowed else y

    def project(self, mean: Vector) -> Vector:
        return np.clip(mean, *self.bounds)


def family_of(name: str, variance_power: float) -> DistributionFamily:
    """The family by its name; `variance_power` is tweedie's."""
    if name == "binomial":
        return DistributionFamily(name, lambda mean: mean * (1.0 - mean), (_EPSILON, 1.0 - _EPSILON))
    power = _VARIANCE_POWERS.get(name, variance_power)
    if 0 < power < 1:
        raise BadInput(f"The tweedie family has no variancePower {power:g}; give 0, or 1 and more.")
    if power == 0:
        largest = float(np.finfo(np.float64).max)
        return DistributionFamily(name, np.ones_like, (-largest, largest))
    bounds = (_EPSILON, float(np.finfo(np.float64).max))
    return DistributionFamily(
        name, lambda mean: mean**power, bounds, least_target=0.0, zero_allowed=power < 2
    )


def link_of(family: str, name: str | None, variance_power: float, link_power: float | None) -> LinkFunction:
    """The link by its name, the family's own if there is none; BadInput for a pair that does not go.

    >>> link_of("poisson", None, 0.0, None).name
    'log'
    >>> link_of("gamma", "logit", 0.0, None)
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: The gamma family has no link logit; use one of: inverse, identity, log.
    """
    if family == "tweedie":
        return _power(1.0 - variance_power if link_power is None else link_power)
    allowed = _ALLOWED[family]
    params = name or allowed[0]
    if params not in allowed:
        raise BadInput(f"The {family} family has no link {params}; use one of: {', '.join(allowed)}.")
    return _power(_POWERS[params]) if params in _POWERS else _BINOMIAL[params]()


def _power(power: float) -> LinkFunction:
    """linear = mean^power; the logarithm for power 0."""
    if power == 0:
        return LinkFunction(
            "log", np.log, np.exp, lambda mean: 1.0 / mean, lambda graph, raw: graph.add("Exp", raw)
        )
    if power == 1:
        return LinkFunction("identity", np.array, np.array, np.ones_like, lambda graph, raw: raw)
    names = {found: name for name, found in _POWERS.items()}

    def mean(linear: Vector) -> Vector:
        with np.errstate(all="ignore"):  # a step too far is mended by the family's bounds
            return np.nan_to_num(np.power(linear, 1.0 / power), nan=_EPSILON)

    def graph(graph: OnnxGraph, raw: str) -> str:
        found = graph.add("Pow", raw, graph.constant(1.0 / power))
        # Pow of a negative number is NaN here as there, and becomes the least mean.
        broken = graph.add("IsNaN", graph.cast(found, FLOAT))
        return graph.add("Where", broken, graph.constant(_EPSILON), found)

    return LinkFunction(
        names.get(power, f"power {power:g}"),
        lambda mean: np.power(mean, power),
        mean,
        lambda mean: power * np.power(mean, power - 1.0),
        graph,
    )


def _logit() -> LinkFunction:
    from scipy.special import expit, logit

    return LinkFunction(
        "logit",
        logit,
        expit,
        lambda mean: np.asarray(1.0 / (mean * (1.0 - mean))),
        lambda graph, raw: graph.add("Sigmoid", raw),
    )


def _probit() -> LinkFunction:
    from scipy.special import ndtr, ndtri

    def graph(graph: OnnxGraph, raw: str) -> str:
        scaled = graph.cast(graph.add("Mul", raw, graph.constant(np.sqrt(0.5))), FLOAT)
        erf = graph.cast(graph.add("Erf", scaled), DOUBLE)
        return graph.add("Mul", graph.add("Add", erf, graph.constant(1.0)), graph.constant(0.5))

    def slope(mean: Vector) -> Vector:
        return np.asarray(np.sqrt(2 * np.pi) * np.exp(np.square(ndtri(mean)) / 2))

    return LinkFunction("probit", ndtri, ndtr, slope, graph)


def _cloglog() -> LinkFunction:
    def graph(graph: OnnxGraph, raw: str) -> str:
        inner = graph.add("Exp", graph.add("Neg", graph.add("Exp", raw)))
        return graph.add("Sub", graph.constant(1.0), inner)

    return LinkFunction(
        "cloglog",
        lambda mean: np.log(-np.log1p(-mean)),
        lambda linear: -np.expm1(-np.exp(linear)),
        lambda mean: -1.0 / ((1.0 - mean) * np.log1p(-mean)),
        graph,
    )


_BINOMIAL: dict[str, Callable[[], LinkFunction]] = {"logit": _logit, "probit": _probit, "cloglog": _cloglog}
