"""Families and links, naive Bayes, clusters and the perceptron, each beside another implementation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn import naive_bayes as reference
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
from sklearn.mixture import GaussianMixture

from prudent.core.errors import BadInput, RunFailed
from prudent.training.data.dataset import Dataset
from prudent.training.engines.local.learners.generalized import family_of, link_of

# Generalised linear regression


@pytest.fixture
def counts(data_for, fit_task_of):
    """A positive target whose logarithm is linear."""
    found = data_for("regression")
    rng = np.random.default_rng(2)
    mean = np.exp(0.3 * (found.y - found.y.mean()) + 1)
    return fit_task_of(Dataset(found.X, rng.poisson(mean) + 0.0, found.columns), "regression")


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ({"family": "poisson"}, PoissonRegressor(alpha=0, max_iter=1000, tol=1e-10)),
        ({"family": "gamma", "link": "log"}, GammaRegressor(alpha=0, max_iter=1000, tol=1e-10)),
        (
            {"family": "tweedie", "variancePower": 1.5, "linkPower": 0.0},
            TweedieRegressor(power=1.5, alpha=0, link="log", max_iter=1000, tol=1e-10),
        ),
        (
            {"family": "gaussian", "link": "log"},
            TweedieRegressor(power=0, alpha=0, link="log", max_iter=5000, tol=1e-10),
        ),
    ],
)
def test_families_beside_scikit_learn(counts, fit, settings, other):
    if settings["family"] == "gamma" or settings.get("link") == "log":
        counts = replace(counts, rows=replace(counts.rows, y=counts.rows.y + 0.5))
    model = fit("generalized-linear-regression", counts, **settings)
    other.fit(counts.rows.X.astype(float), counts.rows.y)
    X = counts.watched.X
    np.testing.assert_allclose(model.predict(X), other.predict(X.astype(float)), rtol=2e-3)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_binomial_links_find_the_share(data_for, fit_task_of, fit, link):
    found = data_for("regression", rows=3000)
    rng = np.random.default_rng(4)
    chosen = link_of("binomial", link, 0, None)
    truth = chosen.mean(0.4 * (found.y - found.y.mean()))
    hits = (rng.random(len(truth)) < truth).astype(float)
    fit_task = fit_task_of(Dataset(found.X, hits, found.columns), "regression")
    model = fit("generalized-linear-regression", fit_task, family="binomial", link=link)
    assert np.abs(model.predict(fit_task.watched.X) - truth[2100:]).mean() < 0.03


@pytest.mark.parametrize("link", ["identity", "sqrt"])
def test_other_links_of_poisson(data_for, fit_task_of, fit, link):
    found = data_for("regression", rows=3000)
    chosen = link_of("poisson", link, 0.0, None)
    truth = chosen.mean(chosen.linear(np.full(len(found), 60.0)) + 0.5 * (found.y - found.y.mean()))
    drawn = np.random.default_rng(2).poisson(truth) + 0.0
    fit_task = fit_task_of(Dataset(found.X, drawn, found.columns), "regression")
    model = fit("generalized-linear-regression", fit_task, family="poisson", link=link)
    assert np.abs(model.predict(fit_task.watched.X) / truth[2100:] - 1).mean() < 0.02


def test_penalty_of_a_generalised_model_is_beside_the_mean(counts, fit):
    """Weights are normed to sum 1, so twice the rows with the same penalty give the same model."""
    once = fit("generalized-linear-regression", counts, family="poisson", regParam=0.1)
    twice_rows = replace(
        counts.rows, X=np.concatenate([counts.rows.X] * 2), y=np.concatenate([counts.rows.y] * 2)
    )
    twice = fit(
        "generalized-linear-regression", replace(counts, rows=twice_rows), family="poisson", regParam=0.1
    )
    np.testing.assert_allclose(once.linear.weights, twice.linear.weights, rtol=1e-6)
    free = fit("generalized-linear-regression", counts, family="poisson")
    assert np.abs(once.linear.weights).sum() < np.abs(free.linear.weights).sum()


@pytest.mark.parametrize("name", ["logit", "identity", "log", "inverse", "probit", "cloglog", "sqrt"])
def test_links_lead_back(name):
    family = {"logit": "binomial", "probit": "binomial", "cloglog": "binomial", "sqrt": "poisson"}
    link = link_of(family.get(name, "gaussian"), name, 0.0, None)
    mean = np.linspace(0.05, 0.95, 30)
    np.testing.assert_allclose(link.mean(link.linear(mean)), mean, rtol=1e-9)
    step = 1e-6
    slope = (link.linear(mean + step) - link.linear(mean - step)) / (2 * step)
    np.testing.assert_allclose(link.slope(mean), slope, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "link"),
    [
        ("gaussian", "logit"),
        ("binomial", "log"),
        ("poisson", "inverse"),
        ("gamma", "sqrt"),
        ("gaussian", "sqrt"),
    ],
)
def test_pairs_that_spark_refuses_are_refused(family, link):
    with pytest.raises(BadInput, match=f"{family} family has no link {link}"):
        link_of(family, link, 0.0, None)


def test_targets_that_a_family_does_not_have(counts, fit):
    below = replace(counts, rows=replace(counts.rows, y=counts.rows.y - 1.0))
    with pytest.raises(BadInput, match="0 or more"):
        fit("generalized-linear-regression", below, family="poisson")
    with pytest.raises(BadInput, match="above 0"):
        fit("generalized-linear-regression", counts, family="gamma")
    with pytest.raises(BadInput, match="from 0 to 1"):
        fit("generalized-linear-regression", counts, family="binomial")
    with pytest.raises(BadInput, match="variancePower"):
        family_of("tweedie", 0.5)


def test_gaussian_identity_is_linear_regression(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("regression"), "regression")
    one = fit("generalized-linear-regression", fit_task, regParam=0.3)
    other = fit("linear-regression", fit_task, regParam=0.3)
    np.testing.assert_allclose(one.linear.weights, other.linear.weights)


# Naive Bayes


@pytest.mark.parametrize("smoothing", [0.1, 1.0])
@pytest.mark.parametrize("kind", ["multinomial", "bernoulli", "complement"])
def test_naive_bayes_of_counts(data_for, fit_task_of, fit, kind, smoothing):
    found = data_for("classification", rows=3000)
    X = np.floor(np.exp(found.X)).astype(np.float32)
    X = np.minimum(X, 1) if kind == "bernoulli" else X
    fit_task = fit_task_of(Dataset(X, found.y, found.columns, found.classes), "classification")
    ours = fit("naive-bayes", fit_task, modelType=kind, smoothing=smoothing)
    other = {
        "multinomial": reference.MultinomialNB,
        "bernoulli": reference.BernoulliNB,
        "complement": reference.ComplementNB,
    }[kind](alpha=smoothing).fit(fit_task.rows.X, fit_task.rows.y)
    X = fit_task.watched.X
    # Spark smooths the classes' shares as well, which scikit-learn does not: a little apart.
    np.testing.assert_allclose(ours.probabilities(X), other.predict_proba(X), atol=2e-3)


def test_gaussian_naive_bayes(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("classification", rows=2000), "classification")
    ours = fit("naive-bayes", fit_task, modelType="gaussian", smoothing=5.0)
    other = reference.GaussianNB().fit(fit_task.rows.X, fit_task.rows.y)
    X = fit_task.watched.X
    np.testing.assert_allclose(ours.probabilities(X), other.predict_proba(X), atol=1e-4)


def test_naive_bayes_refuses_features_it_cannot_count(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("classification"), "classification")
    for kind in ("multinomial", "complement"):
        with pytest.raises(BadInput, match="negative"):
            fit("naive-bayes", fit_task, modelType=kind)
    with pytest.raises(BadInput, match="0 and 1"):
        fit("naive-bayes", fit_task, modelType="bernoulli")


def test_without_smoothing_the_unseen_is_unlikely_not_nan(data_for, fit_task_of, fit):
    found = data_for("classification")
    X = np.abs(found.X)
    X[found.y == 1, 0] = 0.0
    fit_task = fit_task_of(Dataset(X, found.y, found.columns, found.classes), "classification")
    shares = fit("naive-bayes", fit_task, smoothing=0.0).probabilities(np.abs(found.X))
    assert np.isfinite(shares).all()
    assert shares[:, 1].max() < 1e-6


# Clusters


@pytest.mark.parametrize("mode", ["k-means||", "random"])
def test_k_means_finds_what_is_there(data_for, fit_task_of, fit, score, mode):
    fit_task = fit_task_of(data_for("clustering", rows=900), "clustering")
    best = max(
        score(fit("k-means", replace(fit_task, seed=s), k=3, initMode=mode), fit_task) for s in range(4)
    )
    assert best > 0.85


def test_k_means_parallel_begins_well_nearly_always(data_for, fit_task_of, fit, score):
    fit_task = fit_task_of(data_for("clustering", rows=900), "clustering")
    assert all(score(fit("k-means", replace(fit_task, seed=s), k=3), fit_task) > 0.85 for s in range(8))


def test_k_means_on_few_different_rows(data_for, fit_task_of, fit):
    found = data_for("clustering")
    X = np.repeat(found.X[:3], 50, axis=0)
    model = fit("k-means", fit_task_of(Dataset(X, None, found.columns), "clustering"), k=3)
    assert len(np.unique(model.predict(X))) <= 3
    with pytest.raises(BadInput, match="smaller k"):
        fit("k-means", fit_task_of(Dataset(found.X[:10], None, found.columns), "clustering"), k=50)


def test_cosine_looks_at_directions_only(data_for, fit_task_of, fit):
    rng = np.random.default_rng(1)
    way = np.where(rng.random(300) < 0.5, 0.2, 1.3)
    length = rng.uniform(0.1, 50, size=300)
    X = (np.stack([np.cos(way), np.sin(way)], axis=1) * length[:, None]).astype(np.float32)
    columns = data_for("clustering", columns=2).columns
    model = fit(
        "k-means", fit_task_of(Dataset(X, None, columns), "clustering"), k=2, distanceMeasure="cosine"
    )
    clusters = model.predict(X)
    assert len(set(zip(clusters.tolist(), way.tolist(), strict=True))) == 2


def test_mixture_beside_scikit_learn(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("clustering", rows=900), "clustering")
    ours = fit("gaussian-mixture-model", fit_task, k=3)
    other = GaussianMixture(3, tol=0.01, init_params="k-means++", random_state=fit_task.seed)
    other.fit(fit_task.rows.X.astype(float))
    X = fit_task.watched.X
    np.testing.assert_allclose(ours.probabilities(X), other.predict_proba(X.astype(float)), atol=1e-9)


# The perceptron


@pytest.mark.parametrize("solver", ["adam", "l-bfgs", "gd"])
def test_perceptron_learns_what_no_line_can(data_for, fit_task_of, fit, score, solver):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(800, 2)).astype(np.float32) * [1, 1000]
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(np.int64)
    columns = data_for("clustering", columns=2).columns
    fit_task = fit_task_of(Dataset(X.astype(np.float32), y, columns, ("no", "yes")), "deep-learning")
    settings = {"stepSize": 2.0, "maxIter": 300, "blockSize": 32} if solver == "gd" else {"stepSize": 0.03}
    model = fit("multilayer-perceptron-classifier", fit_task, solver=solver, hiddenLayersWidth=16, **settings)
    assert score(model, fit_task) > 0.9
    assert score(fit("binomial-logistic-regression", fit_task), fit_task) < 0.7


def test_perceptron_keeps_its_best_epoch(data_for, fit_task_of, fit, score):
    fit_task = fit_task_of(data_for("classification", rows=200), "deep-learning")
    model = fit("multilayer-perceptron-classifier", fit_task, maxIter=150, stepSize=0.1)
    assert score(model, fit_task) == pytest.approx(max(model.learning_curve.validation), abs=1e-9)


def test_perceptron_repeats_itself(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("classification", rows=200), "deep-learning")
    one, other = (fit("multilayer-perceptron-classifier", fit_task, maxIter=5) for _ in range(2))
    np.testing.assert_array_equal(one.layers[0].weights, other.layers[0].weights)


@pytest.mark.parametrize("end", ["inputLayerWidth", "outputLayerWidth"])
def test_perceptron_refuses_ends_that_do_not_fit(data_for, fit_task_of, fit, end):
    fit_task = fit_task_of(data_for("classification"), "deep-learning")
    with pytest.raises(BadInput, match=f"{end} is 9"):
        fit("multilayer-perceptron-classifier", fit_task, **{end: 9})
    fit("multilayer-perceptron-classifier", fit_task, inputLayerWidth=6, outputLayerWidth=3, maxIter=1)


def test_perceptron_says_when_it_diverges(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("classification"), "deep-learning")
    with pytest.raises(RunFailed, match="stepSize"):
        fit(
            "multilayer-perceptron-classifier",
            fit_task,
            solver="gd",
            stepSize=1e30,
            regParam=1e30,
            maxIter=50,
        )
