"""Linear models against scikit-learn's solvers, with the meaning that Spark gives the parameters."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, HuberRegressor, LogisticRegression

from prudent.core.errors import BadInput
from prudent.training.data.dataset import Dataset


@pytest.fixture
def regression(data_for, fit_task_of):
    """Features of very different scales: a penalty that forgot to standardise would show."""
    found = data_for("regression")
    X = found.X * np.array([1, 10, 0.1, 3, 100, 1], dtype=np.float32) + 5
    return fit_task_of(Dataset(X, found.y * 7, found.columns, (), "y"), "regression")


def standard(X, ddof=1):
    return (X - X.mean(axis=0, dtype=float)) / X.std(axis=0, dtype=float, ddof=ddof)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("weight", [0.0, 0.05, 0.5])
def test_least_squares_means_what_it_means_in_spark(regression, fit, share, weight):
    """Penalty on standardised features; its squared part is divided by the target's deviation (glmnet)."""
    X, y = regression.rows.X, regression.rows.y
    model = fit("linear-regression", regression, regParam=weight, elasticNetParam=share, tol=1e-12)
    spread = y.std()
    absolute, square = weight * share, weight * (1 - share) / spread
    Z, aim = standard(X, ddof=0), (y - y.mean()) / spread

    def objective(weights):
        return (
            np.square(Z @ weights - y + y.mean()).mean() / 2
            + absolute * np.abs(weights).sum()
            + square * (np.square(weights).sum() / 2)
        )

    ours = model.linear.weights[:, 0] * X.std(axis=0, dtype=float)
    if weight == 0:
        best = np.linalg.lstsq(Z, y - y.mean(), rcond=None)[0]
    else:
        alpha = weight / spread
        best = ElasticNet(alpha=alpha, l1_ratio=share, fit_intercept=False, tol=1e-10, max_iter=100_000)
        if share == 0:
            best = (
                np.linalg.solve(Z.T @ Z / len(Z) + square * np.eye(Z.shape[1]), Z.T @ aim / len(Z)) * spread
            )
        else:
            best = best.fit(Z, aim).coef_ * spread
    assert objective(ours) <= objective(best) * (1 + 1e-8)
    np.testing.assert_allclose(ours, best, atol=1e-3 * np.abs(best).max())


def test_lasso_leaves_features_out(regression, fit):
    model = fit("linear-regression", regression, regParam=3.0, elasticNetParam=1.0)
    zero = np.abs(model.linear.weights[:, 0] * regression.rows.X.std(axis=0)) < 1e-6
    assert 0 < zero.sum() < len(zero)


def test_no_intercept(regression, fit):
    model = fit("linear-regression", regression, fitIntercept=False)
    X, y = regression.rows.X.astype(float), regression.rows.y
    np.testing.assert_allclose(model.linear.weights[:, 0], np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-6)
    assert model.linear.intercepts[0] == 0


def test_without_standardisation_the_penalty_is_on_plain_weights(regression, fit):
    X, y = regression.rows.X.astype(float), regression.rows.y
    model = fit("linear-regression", regression, regParam=2.0, standardization=False)
    square = 2.0 / y.std()
    moved = X - X.mean(axis=0)
    best = np.linalg.solve(moved.T @ moved / len(X) + square * np.eye(X.shape[1]), moved.T @ y / len(X))
    np.testing.assert_allclose(model.linear.weights[:, 0], best, rtol=1e-5)


def test_constant_feature_and_constant_target(data_for, fit_task_of, fit):
    found = data_for("regression")
    X = found.X.copy()
    X[:, 2] = 123.456
    model = fit("linear-regression", fit_task_of(Dataset(X, found.y, found.columns), "regression"))
    assert model.linear.weights[2, 0] == 0
    flat = fit_task_of(Dataset(X, np.full(len(X), 4.0), found.columns), "regression")
    np.testing.assert_allclose(fit("linear-regression", flat).predict(X), 4.0)


def test_huber_shrugs_at_outliers(regression, fit):
    y = regression.rows.y
    y[::20] += 1000
    model = fit("linear-regression", regression, loss="huber", maxIter=500)
    plain = fit("linear-regression", regression)
    Z = standard(regression.rows.X)
    best = HuberRegressor(alpha=0, max_iter=1000).fit(Z, y)
    np.testing.assert_allclose(model.predict(regression.rows.X), best.predict(Z), atol=0.1)
    assert (
        np.abs(model.predict(regression.rows.X) - y).mean()
        < np.abs(plain.predict(regression.rows.X) - y).mean()
    )
    with pytest.raises(BadInput, match="elasticNetParam"):
        fit("linear-regression", regression, loss="huber", regParam=0.1, elasticNetParam=0.5)


@pytest.mark.parametrize("weight", [0.003, 0.1])
def test_logistic_regression(data_for, fit_task_of, fit, weight):
    fit_task = fit_task_of(data_for("classification", classes=2), "classification")
    model = fit("binomial-logistic-regression", fit_task, regParam=weight, tol=1e-10)
    Z = standard(fit_task.rows.X)
    best = LogisticRegression(C=1 / (weight * len(Z)), tol=1e-10, max_iter=1000).fit(Z, fit_task.rows.y)
    np.testing.assert_allclose(model.probabilities(fit_task.rows.X), best.predict_proba(Z), atol=1e-4)


def test_logistic_lasso_reaches_the_least_objective(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("classification", classes=2), "classification")
    weight = 0.05
    model = fit("binomial-logistic-regression", fit_task, regParam=weight, elasticNetParam=1.0, tol=1e-12)
    Z, y = standard(fit_task.rows.X), fit_task.rows.y
    best = LogisticRegression(
        l1_ratio=1.0, C=1 / (weight * len(Z)), solver="saga", tol=1e-8, max_iter=20_000
    ).fit(Z, y)

    def objective(weights, shift):
        raw = Z @ weights + shift
        return (np.logaddexp(0, raw) - y * raw).mean() + weight * np.abs(weights).sum()

    X = fit_task.rows.X
    ours = model.linear.weights[:, 0] * X.std(axis=0, dtype=float, ddof=1)
    shift = model.linear.intercepts[0] + X.mean(axis=0, dtype=float) @ model.linear.weights[:, 0]
    assert objective(ours, shift) <= objective(best.coef_[0], best.intercept_[0]) + 1e-7


def test_multinomial_regression(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("classification", classes=4), "classification")
    model = fit("multinomial-logistic-regression", fit_task, regParam=0.02, tol=1e-10)
    Z = standard(fit_task.rows.X)
    best = LogisticRegression(C=1 / (0.02 * len(Z)), tol=1e-10, max_iter=1000).fit(Z, fit_task.rows.y)
    np.testing.assert_allclose(model.probabilities(fit_task.rows.X), best.predict_proba(Z), atol=1e-4)


def test_support_vectors_reach_the_least_hinge_loss(data_for, fit_task_of, fit):
    from scipy.optimize import linprog

    fit_task = fit_task_of(data_for("classification", classes=2, rows=200), "classification")
    model = fit("linear-support-vector-machine", fit_task, regParam=0.0, maxIter=500)
    X, signs = fit_task.rows.X.astype(float), np.where(fit_task.rows.y == 1, 1.0, -1.0)
    rows, features = X.shape
    ours = np.maximum(1 - signs * model.linear.apply(X)[:, 0], 0).mean()
    # minimise the mean slack s >= 1 - sign (x·w + b), s >= 0: a linear programme
    costs = np.concatenate([np.zeros(features + 1), np.full(rows, 1 / rows)])
    matrix = np.hstack([-signs[:, None] * X, -signs[:, None], -np.eye(rows)])
    bounds = [(None, None)] * (features + 1) + [(0, None)] * rows
    best = linprog(costs, matrix, np.full(rows, -1.0), bounds=bounds).fun
    assert ours == pytest.approx(best, abs=0.01)
    assert model.probabilities(X) is None


def test_threshold_moves_the_line(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("classification", classes=2), "classification")
    X = fit_task.watched.X
    shares = [
        fit("binomial-logistic-regression", fit_task, threshold=bar).predict(X).mean()
        for bar in (0, 0.5, 0.9, 1)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert shares[-1] == 0.0


def test_support_vectors_of_three_classes_are_one_line_each(data_for, fit_task_of, fit):
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    dataset = data_for("multinomial-classification")
    fit_task = fit_task_of(dataset, "multinomial-classification")
    X, y = fit_task.rows.X, fit_task.rows.y
    model = fit("linear-support-vector-machine", fit_task, regParam=0.01, maxIter=500)
    assert model.linear.weights.shape == (X.shape[1], fit_task.classes)
    assert model.probabilities(X) is None
    scaled = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    other = OneVsRestClassifier(LinearSVC(C=1 / (0.01 * len(X)), loss="hinge", max_iter=100_000))
    assert (model.predict(X) == other.fit(scaled, y).predict(scaled)).mean() > 0.97


def test_two_classes_only(data_for, fit_task_of, fit):
    with pytest.raises(BadInput, match="two classes"):
        fit(
            "binomial-logistic-regression",
            fit_task_of(data_for("classification", classes=3), "classification"),
        )
