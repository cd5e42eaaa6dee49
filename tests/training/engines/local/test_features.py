"""Transformations: what they do to rows, and that the graph does the same."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import onnxruntime
import pytest
from sklearn.decomposition import PCA

from prudent.core.errors import BadInput
from prudent.training.data.dataset import CATEGORICAL, DATE, NUMERIC, Column
from prudent.training.data.dates import day_of
from prudent.training.data.splitting import hold_out
from prudent.training.engines.fitted_transforms import apply_all
from prudent.training.engines.local.column_statistics import covariance, mean_and_deviation
from prudent.training.engines.local.features import ALL_ROWS, FeatureCache, LocalTransformFitter
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.onnx_export import DOUBLE, FLOAT, GraphOutputs, OnnxGraph

NAN = np.nan
COLUMNS = (Column("a"), Column("kind", CATEGORICAL, ("x", "y", "z")), Column("b"))
ROWS = np.array([[1, 0, 10], [3, 2, NAN], [NAN, 2, 40], [5, NAN, 20], [7, 1, 30]], dtype=np.float32)


def by_graph(steps, X):
    """The steps in ONNX Runtime; the first column of what comes out is the prediction, all are the shares."""
    graph = OnnxGraph(X.shape[1], DOUBLE if X.dtype == np.float64 else FLOAT)
    rows = "features"
    for step in steps:
        rows = step.graph(graph, rows)
    onnx = graph.finish(GraphOutputs(graph.argmax(rows), rows))
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    return session.run(None, {"features": X})[1]


def prepared(*wanted, columns=COLUMNS, X=ROWS, max_categories=None):
    fitter = LocalTransformFitter(X, columns)
    for name, settings in wanted:
        fitter.add(name, settings)
    fitter.finish(max_categories)
    np.testing.assert_array_equal(by_graph(fitter.transforms, X), fitter.X)
    np.testing.assert_array_equal(apply_all(fitter.transforms, X), fitter.X)
    return fitter


def test_without_being_asked_gaps_are_filled_and_categories_parted():
    found = prepared()
    assert found.X.shape == (5, 5)
    np.testing.assert_array_equal(found.X[:, 0], [1, 3, 4, 5, 7])
    np.testing.assert_array_equal(found.X[:, 1], [10, 25, 40, 20, 30])
    # The missing category is taken for the most frequent one, 2.
    np.testing.assert_array_equal(found.X[:, 2:], [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(("strategy", "filled"), [("mean", 4.0), ("median", 4.0), ("most_frequent", 1.0)])
def test_ways_to_fill_gaps(strategy, filled):
    assert prepared(("impute", {"strategy": strategy})).X[2, 0] == filled


def test_a_category_never_seen_and_a_gap_are_all_zero():
    found = prepared(("one-hot", {}))
    new = np.array([[1, 9, 10], [1, NAN, 10]], dtype=np.float32)
    np.testing.assert_array_equal(apply_all(found.transforms, new)[:, 2:], np.zeros((2, 3)))
    np.testing.assert_array_equal(by_graph(found.transforms, new)[:, 2:], np.zeros((2, 3)))


def test_only_the_most_frequent_categories_get_a_column():
    X = np.array([[c] for c in [3, 3, 3, 1, 1, 0, 2]], dtype=np.float32)
    found = prepared(
        ("one-hot", {"maxCategories": 2}), X=X, columns=(Column("k", CATEGORICAL, tuple("abcd")),)
    )
    assert found.X.shape == (7, 2)
    assert found.X.sum(axis=0).tolist() == [2, 3]


@pytest.mark.parametrize(("method", "low", "high"), [("minmax", 0.0, 1.0), ("standard", -1.16, 1.16)])
def test_scaling_leaves_categories_alone(method, low, high):
    found = prepared(("scale", {"method": method}))
    assert found.X[:, 0].min() == pytest.approx(low, abs=0.01)
    assert found.X[:, 0].max() == pytest.approx(high, abs=0.01)
    assert set(found.X[:, 2:].ravel()) == {0.0, 1.0}


def test_scaling_a_constant_column():
    X = np.full((4, 2), 7.0, dtype=np.float32)
    for method in ("standard", "minmax"):
        found = prepared(("scale", {"method": method}), X=X, columns=COLUMNS[::2])
        np.testing.assert_array_equal(found.X, np.zeros((4, 2)))


def test_principal_components_beside_scikit_learn():
    X = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32) @ np.diag([5, 3, 2, 1, 0.1])
    X = X.astype(np.float32)
    found = prepared(("pca", {"k": 2}), X=X, columns=tuple(Column(str(n)) for n in range(5)))
    other = PCA(2).fit_transform(X)
    np.testing.assert_allclose(np.abs(found.X), np.abs(other), atol=1e-3)
    assert found.transforms[-1].names(list("abcde")) == ["pc1", "pc2"]


def test_columns_of_few_values_become_categories():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 90), rng.integers(0, 2, 90), rng.normal(size=90)])
    found = prepared(max_categories=3, X=X.astype(np.float32), columns=tuple(Column(c) for c in "abc"))
    names = ["a", "b", "c"]
    for step in found.transforms:
        names = step.names(names)
    assert names == ["b", "c", "a=0", "a=1", "a=2"]


# Categories by the target


def encoded_by_target(codes, y, classes=0, many=3, **settings):
    X = np.column_stack([codes, np.arange(len(codes))]).astype(np.float32)
    columns = (Column("town", CATEGORICAL, tuple(map(str, range(many)))), Column("n"))
    fitter = LocalTransformFitter(X, columns, y=np.asarray(y), classes=classes, seed=4)
    fitter.add("target-encode", settings)
    return fitter, X


def test_a_category_becomes_the_targets_mean_of_its_rows():
    y = np.array([1.0, 3.0, 10.0, 10.0, 10.0, 14.0])
    fitter, _ = encoded_by_target([0, 0, 1, 1, 1, NAN], y, smoothing=1.0)
    [step] = fitter.transforms
    overall = y.mean()
    expected = [(4 + overall) / 3, (30 + overall) / 4, overall, (14 + overall) / 2]
    new = np.array([[0, 7], [1, 7], [2, 7], [NAN, 7], [99, 7]], dtype=np.float32)
    found = step.apply(new)
    np.testing.assert_allclose(found[:4, 1], expected, rtol=1e-6)
    np.testing.assert_array_equal(found[:, 0], 7)
    np.testing.assert_array_equal(found[4], found[3])  # one never seen is as good as a missing one
    np.testing.assert_array_equal(by_graph([step], new), found)
    assert step.names(["town", "n"]) == ["n", "mean by town"]


@pytest.mark.parametrize(("classes", "width"), [(2, 1), (3, 3)])
def test_classes_become_shares(classes, width):
    rng = np.random.default_rng(0)
    codes, y = rng.integers(0, 3, 400), rng.integers(0, classes, 400)
    fitter, X = encoded_by_target(codes, y, classes, smoothing=0.0)
    found = fitter.transforms[0].apply(X)[:, 1:]
    assert found.shape == (400, width)
    for code in range(3):
        shares = np.bincount(y[codes == code], minlength=classes) / (codes == code).sum()
        np.testing.assert_allclose(found[codes == code][0], shares if width > 1 else shares[1:], rtol=1e-6)


def test_a_training_row_does_not_tell_its_own_target():
    """Each row has a category of its own: what a model is trained on must know nothing of the target."""
    rng = np.random.default_rng(1)
    y = rng.normal(size=500)
    fitter, X = encoded_by_target(np.arange(500), y, many=500, smoothing=0.0)
    assert abs(np.corrcoef(fitter.X[:, 1], y)[0, 1]) < 0.2
    assert np.corrcoef(fitter.transforms[0].apply(X)[:, 1], y)[0, 1] > 0.99


def test_columns_of_many_categories_are_told_by_the_target_unasked():
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.integers(0, 40, 300), rng.integers(0, 3, 300)]).astype(np.float32)
    columns = (
        Column("many", CATEGORICAL, tuple(map(str, range(40)))),
        Column("few", CATEGORICAL, tuple("abc")),
    )
    for native, kept in (
        (False, ["mean by many", "few=0", "few=1", "few=2"]),
        (True, ["few", "mean by many"]),
    ):
        fitter = LocalTransformFitter(X, columns, y=X[:, 0].astype(float), seed=1)
        fitter.finish(native=native)
        names = ["many", "few"]
        for step in fitter.transforms:
            names = step.names(names)
        assert names == kept
        assert fitter.sizes.tolist() == ([3, 0] if native else [0, 0, 0, 0])
    clusters = LocalTransformFitter(X, columns)
    clusters.finish()
    assert clusters.X.shape == (300, 32 + 3)
    with pytest.raises(BadInput, match="needs a target"):
        clusters.target_encode()


# Dates


def test_dates_become_their_parts_as_the_calendar_has_them():
    rng = np.random.default_rng(3)
    start = datetime(1890, 1, 1)
    stamps = [
        start + timedelta(days=int(d), hours=int(h))
        for d, h in zip(rng.integers(0, 90_000, 500), rng.integers(0, 24, 500), strict=True)
    ]
    stamps += [
        datetime(2000, 2, 29, 23),
        datetime(1900, 3, 1),
        datetime(2100, 2, 28, 23, 59, 59),
        datetime(1970, 1, 1),
    ]
    days = np.array([[day_of(stamp), 5.0] for stamp in stamps])
    fitter = LocalTransformFitter(days, (Column("at", DATE), Column("n")))
    [step] = fitter.transforms
    expected = [[5, s.year, s.month, s.day, s.isoweekday(), s.hour, day_of(s)] for s in stamps]
    np.testing.assert_array_equal(fitter.X, expected)
    np.testing.assert_allclose(by_graph([step], days), expected, rtol=1e-6)
    assert step.names(["at", "n"])[:3] == ["n", "year of at", "month of at"]
    gap = np.array([[NAN, 1.0]])
    assert np.isnan(step.apply(gap)[0, 1:]).all()
    assert np.isnan(by_graph([step], gap)[0, 1:]).all()


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("impute", {"strategy": "avg"}, "value of strategy"),
        ("scale", {"method": "standart"}, 'mean "standard"'),
        ("pca", {"k": 99}, "cannot give 99"),
        ("one-hot", {"maxCategories": 0}, "2 or more"),
        ("pac", {}, 'mean "pca"'),
    ],
)
def test_wrong_settings(name, settings, why):
    with pytest.raises(BadInput, match=why):
        LocalTransformFitter(ROWS, COLUMNS).add(name, settings)


def test_moments_beside_numpy(monkeypatch):
    monkeypatch.setattr("prudent.training.engines.local.column_statistics._CHUNK", 7)
    X = np.random.default_rng(0).normal(1e4, 1, size=(50, 3)).astype(np.float32)
    mean, spread = mean_and_deviation(X)
    np.testing.assert_allclose(mean, X.mean(axis=0, dtype=float))
    np.testing.assert_allclose(spread, X.std(axis=0, dtype=float, ddof=1))
    np.testing.assert_allclose(covariance(X, mean), np.cov(X.T.astype(float)))


# What workers keep


@pytest.fixture
def store(tmp_path, data_for):
    dataset = data_for("classification")
    SharedDataset.write(tmp_path, dataset, [hold_out(len(dataset), dataset.y, 1)])
    return SharedDataset.read(tmp_path)


def test_a_store_gives_back_what_was_written(store, data_for):
    dataset = data_for("classification")
    np.testing.assert_array_equal(store.X, dataset.X)
    np.testing.assert_array_equal(store.y, dataset.y)
    assert (store.columns, store.classes) == (dataset.columns, ("a", "b", "c"))
    assert isinstance(store.X, np.memmap)
    assert len(store.sample) == 120


def test_data_that_are_mapped_already_are_not_copied(tmp_path, store, data_for):
    from dataclasses import replace

    dataset = data_for("classification")
    np.save(tmp_path / "own.npy", dataset.X)
    mapped = replace(dataset, X=np.load(tmp_path / "own.npy", mmap_mode="r"))
    SharedDataset.write(tmp_path / "second", mapped, [hold_out(400, dataset.y, 1)])
    assert not (tmp_path / "second" / "X.npy").exists()
    np.testing.assert_array_equal(SharedDataset.read(tmp_path / "second").X, dataset.X)
    part = replace(dataset, X=mapped.X[:100], y=dataset.y[:100])
    SharedDataset.write(tmp_path / "third", part, [hold_out(100, part.y, 1)])
    assert len(SharedDataset.read(tmp_path / "third").X) == 100


def test_prepared_rows_are_kept_within_bounds(store):
    feature_cache = FeatureCache(store, 1, most_bytes=2 * 400 * 6 * 4)
    first = feature_cache.prepare(0, 1.0, {}, None)
    assert feature_cache.prepare(0, 1.0, {}, None) is first
    scaled = feature_cache.prepare(0, 1.0, {"scale": {"method": "minmax"}}, None)
    assert scaled.held_out.X.max() < 2
    assert feature_cache.prepare(0, 1.0, {"scale": {"method": "standard"}}, None) is not scaled
    assert feature_cache.prepare(0, 1.0, {}, None) is not first
    whole = feature_cache.prepare(ALL_ROWS, 1.0, {}, None)
    assert (len(whole.rows.X), whole.held_out) == (400, None)


def test_sub_samples_are_part_of_each_other(store):
    feature_cache = FeatureCache(store, 1, most_bytes=1 << 30)
    small = feature_cache.prepare(0, 0.2, {}, None).rows.X
    large = {tuple(row) for row in feature_cache.prepare(0, 0.6, {}, None).rows.X}
    assert len(small) == 56
    assert all(tuple(row) in large for row in small)


def test_values_that_only_other_rows_miss_are_filled_in_as_well():
    rows = np.array([[1.0], [2.0], [6.0]], dtype=np.float32)
    fitter = LocalTransformFitter(rows, [Column("size", NUMERIC)], others_miss=True)
    fitter.finish()
    [step] = fitter.transforms
    assert step.apply(np.array([[np.nan], [4.0]], dtype=np.float32)).tolist() == [[3.0], [4.0]]
