"""LightGBM and XGBoost: exported trees answer as the libraries do, whatever is missing or a category."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from prudent.training.data.dataset import Dataset
from prudent.training.engines.onnx_export import export_pipeline

LIBRARIES = ("lightgbm", "xgboost")
ROUNDS = {"lightgbm": "numIterations", "xgboost": "numRound"}
MANY = 40


def mixed(data_for, task, classes=3):
    """A feature of many categories that decides much, one of few, and gaps in all but the last feature."""
    found = data_for(task, classes=classes, rows=1200)
    rng = np.random.default_rng(3)
    X = found.X.copy()
    X[:, 0] = rng.integers(0, MANY, len(X))
    X[:, 1] = rng.integers(0, 3, len(X))
    lucky = rng.permutation(MANY)[: MANY // 2]
    if task == "regression":
        y = found.y + 5.0 * np.isin(X[:, 0], lucky)
    else:
        y = np.where(np.isin(X[:, 0], lucky), found.y, (found.y + 1) % classes)
    X[:, :5][rng.random((len(X), 5)) < 0.1] = np.nan
    return Dataset(X, y, found.columns, found.classes, "y")


def task_of(fit_task_of, dataset, task):
    found = fit_task_of(dataset, task)
    return replace(found, categories=(MANY, 3, 0, 0, 0, 0))


def answers(model, X):
    session = onnxruntime.InferenceSession(export_pipeline([], model.graph, X.shape[1]))
    return session.run(None, {"features": X})


def strange_rows(dataset):
    """Held-out rows, and such as training had none like: gaps everywhere, categories never seen."""
    X = dataset.X[-300:].copy()
    X[:100, 5] = np.nan
    X[100:150] = np.nan
    X[150:200, 0] = MANY + 3
    X[200:250, 2] = 0.0
    return X


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("classes", [2, 4])
def test_exported_classes_are_the_librarys_own(data_for, fit_task_of, fit, library, classes):
    dataset = mixed(data_for, "classification", classes)
    fit_task = task_of(fit_task_of, dataset, "classification")
    model = fit(f"{library}-classification", fit_task, **{ROUNDS[library]: 25})
    assert any(tree.sets for _, tree in model.exported.trees)
    X = strange_rows(dataset)
    predicted, shares = answers(model, X)
    np.testing.assert_allclose(shares, model.probabilities(X), atol=1e-5)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-5)
    assert (predicted == model.predict(X)).mean() > 0.99


@pytest.mark.parametrize("library", LIBRARIES)
def test_exported_values_are_the_librarys_own(data_for, fit_task_of, fit, library):
    dataset = mixed(data_for, "regression")
    fit_task = task_of(fit_task_of, dataset, "regression")
    model = fit(f"{library}-regression", fit_task, **{ROUNDS[library]: 25})
    X = strange_rows(dataset)
    [found] = answers(model, X)
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-5, atol=1e-5)
    plain = answers(fit(f"{library}-regression", replace(fit_task, categories=()), **{ROUNDS[library]: 5}), X)
    assert np.isfinite(plain).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_categories_as_they_are_beat_their_numbers(data_for, fit_task_of, fit, score, library):
    dataset = mixed(data_for, "regression")
    fit_task = task_of(fit_task_of, dataset, "regression")
    settings = {ROUNDS[library]: 10, "learningRate": 0.5}
    as_they_are = fit(f"{library}-regression", fit_task, **settings)
    as_numbers = fit(f"{library}-regression", replace(fit_task, categories=()), **settings)
    assert score(as_they_are, fit_task) > score(as_numbers, fit_task) + 0.03


@pytest.mark.parametrize("library", LIBRARIES)
def test_training_ends_when_nothing_improves(data_for, fit_task_of, fit, score, library):
    fit_task = fit_task_of(data_for("classification", classes=2, rows=300), "classification")
    told = []
    object.__setattr__(fit_task, "report", lambda value, done: told.append((value, done)))
    model = fit(f"{library}-classification", fit_task, learningRate=0.5, **{ROUNDS[library]: 400})
    curve = model.learning_curve
    assert "no better" in curve.stop_reason
    assert len(model.exported.trees) == curve.best_step < 400
    assert score(model, fit_task) == pytest.approx(max(curve.validation))
    assert told


@pytest.mark.parametrize("library", LIBRARIES)
def test_training_ends_when_time_is_up(data_for, fit_task_of, fit, library):
    fit_task = fit_task_of(data_for("regression"), "regression", until_s=0.0)
    model = fit(f"{library}-regression", fit_task, **{ROUNDS[library]: 400})
    assert model.learning_curve.stop_reason == "the time was up"
    assert len(model.exported.trees) == 1


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_known_number_of_rounds_is_grown(data_for, fit_task_of, fit, library):
    fit_task = fit_task_of(data_for("classification", classes=3), "classification")
    whole = replace(fit_task, watched=None, iterations=7)
    model = fit(f"{library}-classification", whole, **{ROUNDS[library]: 400})
    assert len(model.exported.trees) == 3 * 7
    assert model.learning_curve is None


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_class_without_rows_is_never_predicted(data_for, fit_task_of, fit, library):
    found = data_for("classification", classes=3)
    for kept in ([0, 2], [1]):
        y = np.where(np.isin(found.y, kept), found.y, kept[0])
        fit_task = fit_task_of(Dataset(found.X, y, found.columns, found.classes), "classification")
        fit_task.watched.y[:5] = [0, 1, 2, 1, 0]
        model = fit(f"{library}-classification", fit_task)
        assert set(model.predict(fit_task.watched.X)) <= set(kept)
        predicted, shares = answers(model, fit_task.watched.X)
        assert set(predicted) <= set(kept)
        np.testing.assert_allclose(shares, model.probabilities(fit_task.watched.X), atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_features_that_matter_are_told(data_for, fit_task_of, fit, library):
    found = data_for("regression")
    fit_task = fit_task_of(Dataset(found.X, 3.0 * found.X[:, 4], found.columns), "regression")
    assert fit(f"{library}-regression", fit_task).importance.argmax() == 4


@pytest.mark.parametrize("library", LIBRARIES)
def test_digits_beyond_single_precision_part_rows(fit_task_of, fit, library):
    rng = np.random.default_rng(0)
    stamps = 1_700_000_000.0 + rng.integers(0, 20, (600, 1))
    assert len(np.unique(stamps.astype(np.float32))) < 3
    y = 10.0 * (stamps[:, 0] > 1_700_000_005.0)
    fit_task = fit_task_of(Dataset(stamps, y, ()), "regression")
    model = fit(f"{library}-regression", fit_task, learningRate=0.5)
    np.testing.assert_allclose(model.predict(stamps), y, atol=0.2)
    onnx = export_pipeline([], model.graph, 1, kind=11)
    [found] = onnxruntime.InferenceSession(onnx).run(None, {"features": stamps})
    np.testing.assert_allclose(found, model.predict(stamps), atol=1e-4)
