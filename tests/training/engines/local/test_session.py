"""Trials in workers: what they leave, and that nothing they do reaches the others."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
import onnxruntime
import psutil
import pytest
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import StandardScaler

from prudent.core.errors import BadInput
from prudent.training.algorithms.registry import algorithms
from prudent.training.data.dataset import CATEGORICAL, Column, Dataset
from prudent.training.data.splitting import FEW_ROWS, hold_out
from prudent.training.engines.engine import ModelFacts
from prudent.training.engines.local.engine import LocalEngine
from prudent.training.engines.partition import Partition
from prudent.training.engines.predictions import Predictions
from prudent.training.models.metrics import confusion, f1
from prudent.training.request.limits import ValidationMethod
from prudent.tuning.jobs.job import Run

REGRESSION, CLASSES, CLUSTERS = "regression", "classification", "clustering"
EVERY = {
    "linear-regression": (REGRESSION, {"regParam": 0.01}),
    "generalized-linear-regression": (REGRESSION, {"link": "inverse", "regParam": 1.0}),
    "decision-tree-regression": (REGRESSION, {}),
    "random-forest-regression": (REGRESSION, {"numTrees": 7}),
    "gradient-boosted-tree-regression": (REGRESSION, {"maxIter": 12}),
    "lightgbm-regression": (REGRESSION, {"numIterations": 12}),
    "xgboost-regression": (REGRESSION, {"numRound": 12}),
    "linear-support-vector-machine": ("binomial-classification", {"regParam": 0.01}),
    "binomial-logistic-regression": ("binomial-classification", {"regParam": 0.01}),
    "multinomial-logistic-regression": ("multinomial-classification", {"regParam": 0.01}),
    "naive-bayes": (CLASSES, {"modelType": "gaussian"}),
    "decision-tree-classification": (CLASSES, {"impurity": "entropy"}),
    "random-forest-classification": (CLASSES, {"numTrees": 7}),
    "gradient-boosted-tree-classification": (CLASSES, {"maxIter": 12}),
    "lightgbm-classification": (CLASSES, {"numIterations": 12}),
    "xgboost-classification": ("binomial-classification", {"numRound": 12}),
    "k-means": (CLUSTERS, {"k": 3}),
    "gaussian-mixture-model": (CLUSTERS, {"k": 3}),
    "multilayer-perceptron-classifier": ("deep-learning", {"maxIter": 20}),
}


def with_gaps_and_categories(found: Dataset) -> Dataset:
    """The same rows with a categorical column and missing values."""
    rng = np.random.default_rng(9)
    X = found.X.copy()
    X[:, 1] = rng.integers(0, 4, size=len(X))
    X[rng.random(X.shape) < 0.05] = np.nan
    columns = list(found.columns)
    columns[1] = Column("colour", CATEGORICAL, ("blue", "green", "red", "white"))
    return Dataset(X, found.y, tuple(columns), found.classes, found.target, "gaps")


def test_every_algorithm_that_needs_data_is_here():
    assert set(EVERY) == set(algorithms()) - {"branin"}


PREPARED = {"scale": {"method": "minmax"}, "pca": {"k": 3}}
ONE_OF_A_KIND = (
    "linear-regression",
    "binomial-logistic-regression",
    "random-forest-classification",
    "k-means",
    "multilayer-perceptron-classifier",
)
CASES = [(name, {}) for name in EVERY] + [(name, PREPARED) for name in ONE_OF_A_KIND]


@pytest.mark.parametrize(("name", "transforms"), CASES)
def test_every_algorithm_from_raw_rows_to_onnx(bench, data_for, facts_of, name, transforms):
    domain, settings = EVERY[name]
    classes = 2 if domain.startswith("binomial") else 3
    dataset = with_gaps_and_categories(data_for(domain, classes=classes))
    outcome, place = bench(dataset, domain).train(name, transforms=transforms, **settings)
    assert outcome.status == "finished", outcome.why
    facts = ModelFacts(**facts_of(place))
    assert outcome.measures["score"] == facts.score
    assert facts.export_difference < 1e-5
    assert (facts.rows_trained, facts.rows_validated) == (280, 120)
    # Whoever loads the file sees the score that was told, from rows as they are.
    rows = hold_out(len(dataset), dataset.y, 1).validation
    session = onnxruntime.InferenceSession(str(place / "model.onnx"))
    outputs = [output.name for output in session.get_outputs()]
    answers = dict(zip(outputs, session.run(None, {"features": dataset.X[rows]}), strict=True))
    if domain == REGRESSION:
        assert answers["prediction"].dtype == np.float32
        error = np.sqrt(np.square(answers["prediction"] - dataset.y[rows]).mean())
        assert error == pytest.approx(facts.value, rel=1e-4)
    else:
        assert answers["prediction"].dtype == np.int64
    if "probabilities" in answers:
        np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, atol=1e-5)
    if facts.metric == "f1":
        counts = confusion(dataset.y[rows], answers["prediction"], 3)
        assert f1(counts) == pytest.approx(facts.value, abs=0.02)


def test_what_a_report_can_draw(bench, data_for, facts_of):
    regression = bench(data_for(REGRESSION, rows=9000), REGRESSION)
    picture = facts_of(regression.train("linear-regression")[1])["picture"]
    assert len(picture["residuals"]["predicted"]) == len(picture["residuals"]["actual"]) == 2000
    assert sum(picture["importance"]["value"]) == pytest.approx(1.0, abs=1e-4)
    classes = bench(data_for(CLASSES), CLASSES)
    picture = facts_of(classes.train("gradient-boosted-tree-classification", maxIter=30)[1])["picture"]
    assert picture["confusion"]["labels"] == ["a", "b", "c"]
    assert np.sum(picture["confusion"]["counts"]) == 120
    assert len(picture["curve"]["step"]) == len(picture["curve"]["validation"])
    assert picture["stopped"]["of"] == 30
    assert "of" not in picture  # there is one split, and all of it is drawn
    clusters = bench(data_for(CLUSTERS), CLUSTERS)
    picture = facts_of(clusters.train("k-means", k=3)[1])["picture"]
    assert set(picture["silhouette"]["cluster"]) == {0, 1, 2}


@pytest.mark.parametrize("rows", [120, 400])
def test_clusterings_are_compared_in_the_standardised_features(bench, data_for, facts_of, rows):
    found = data_for(CLUSTERS, rows=rows)
    found.X[:, 0] *= 100  # outweighs all others, unless features are standardised
    few = rows <= FEW_ROWS
    judged = np.arange(rows) if few else hold_out(rows, None, 1).validation
    space = StandardScaler().fit_transform(found.X)[judged]
    session = bench(found, CLUSTERS, validation=ValidationMethod())
    for transforms in ({}, {"pca": {"k": 1}}, {"scale": {"method": "minmax"}}):
        _, place = session.train("k-means", transforms=transforms, k=4)
        facts = facts_of(place)
        assert (facts["rows_trained"], facts["rows_validated"]) == (rows if few else 280, len(judged))
        onnx = onnxruntime.InferenceSession(str(place / "model.onnx"))
        clusters = onnx.run(["prediction"], {"features": found.X[judged]})[0]
        expected = silhouette_score(space, clusters, metric="sqeuclidean")
        assert facts["value"] == pytest.approx(expected, abs=1e-4)


def test_a_hold_out_that_is_asked_for_judges_few_clustered_rows_too(bench, data_for, facts_of):
    folded = bench(data_for(CLUSTERS, rows=60), CLUSTERS, validation=ValidationMethod(holdout=0.5))
    facts = facts_of(folded.train("k-means", k=3)[1])
    assert (facts["rows_trained"], facts["rows_validated"]) == (30, 30)


def test_one_hot_columns_bear_their_categories(bench, data_for, facts_of):
    dataset = with_gaps_and_categories(data_for(CLASSES))
    _, place = bench(dataset, CLASSES).train("decision-tree-classification", maxDepth=8)
    named = facts_of(place)["picture"]["importance"]["feature"]
    assert any(name.startswith("colour=") for name in named)


def test_columns_of_few_values_are_categories_if_asked(bench, data_for, facts_of):
    found = data_for(CLASSES)
    X = found.X.copy()
    X[:, 0] = np.random.default_rng(1).integers(0, 3, len(X))
    dataset = Dataset(X, found.y, found.columns, found.classes, "y")
    _, place = bench(dataset, CLASSES).train("random-forest-classification", maxCategories=5)
    named = facts_of(place)["picture"]["importance"]["feature"]
    assert {name for name in named if "=" in name} == {"f0=0", "f0=1", "f0=2"}


def test_folds_measure_every_row_and_a_refit_learns_them_all(bench, data_for, facts_of):
    dataset = data_for(CLASSES)
    folded = bench(dataset, CLASSES, validation=ValidationMethod(folds=4))
    outcome, place = folded.train("gradient-boosted-tree-classification", maxIter=30)
    facts = facts_of(place)
    assert (facts["rows_trained"], facts["rows_validated"]) == (300, 400)
    assert 0.6 < outcome.measures["score"] < 1
    assert outcome.measures["score"] == pytest.approx(np.mean(facts["split_scores"]))
    said = Predictions.read(place)
    assert sorted(said.rows) == list(range(400))
    np.testing.assert_array_equal(said.actual, dataset.y[said.rows])
    scores = [
        f1(confusion(*(each[said.split == n] for each in (said.actual, said.predicted)), 3)) for n in range(4)
    ]
    assert scores == pytest.approx(facts["split_scores"])
    assert said.probabilities.shape == (400, 3)
    counts = confusion(said.actual, said.predicted, 3)  # of all folds, not of the last one
    assert facts["picture"]["confusion"] == {"labels": ["a", "b", "c"], "counts": counts.tolist()}
    assert facts["picture"]["of"] == "folds"
    again, place = folded.train("gradient-boosted-tree-classification", maxIter=30, refit=facts["iterations"])
    refitted = facts_of(place)
    assert again.status == "finished"
    assert (refitted["rows_trained"], refitted["refitted"]) == (400, True)


def test_rows_that_are_judged_twice_are_drawn_once(bench, data_for, facts_of):
    here = bench(data_for(CLASSES), CLASSES, validation=ValidationMethod())
    facts = facts_of(here.train("decision-tree-classification", maxDepth=3)[1])
    assert len(here.session._partition.splits) == 10  # five folds, dealt twice
    assert np.sum(facts["picture"]["confusion"]["counts"]) == facts["rows_validated"] == 400


def test_rows_that_rank_have_no_say_in_how_long_a_model_is_trained(bench, data_for, facts_of):
    """Whatever the held-out rows say, the model is the same."""
    models = []
    for noise in (0.0, 50.0):
        dataset = data_for(REGRESSION)
        ranked = bench(dataset, REGRESSION).session._partition.splits[0].validation
        dataset.y[ranked] += noise * np.random.default_rng(0).normal(size=len(ranked))
        outcome, place = bench(dataset, REGRESSION).train("gradient-boosted-tree-regression", maxIter=30)
        models.append(((place / "model.onnx").read_bytes(), facts_of(place)["iterations"]))
        assert outcome.measures["value"] > 0.5 * noise
    assert models[0] == models[1]


def test_a_test_part_is_seen_by_no_trial(bench, data_for):
    dataset = data_for(REGRESSION)
    partition = Partition.of(dataset.y, 400, 6, ValidationMethod(folds=3), 1, test_share=0.25)
    here = bench(dataset, REGRESSION, partition=partition)
    unseen = here.session.test_rows()
    assert len(unseen.rows) == 100
    np.testing.assert_array_equal(unseen.y, dataset.y[unseen.rows])
    for split in here.session._partition.splits:
        assert not {*unseen.rows} & {*split.train, *split.validation}
    assert bench(dataset, REGRESSION).session.test_rows() is None


def test_a_model_that_is_clearly_behind_is_not_judged_by_all_folds(bench, data_for, facts_of):
    here = bench(data_for(CLASSES), CLASSES, validation=ValidationMethod(folds=4))
    _, place = here.train("multinomial-logistic-regression")
    bar = facts_of(place)["split_scores"]
    _, place = here.train("decision-tree-classification", maxDepth=1, bar=bar)
    behind = facts_of(place)
    assert len(behind["split_scores"]) < 4
    assert behind["score"] < np.mean(bar)
    assert {*Predictions.read(place).split} == set(range(len(behind["split_scores"])))


def test_a_metric_of_ones_own(bench, data_for):
    accuracy, _ = bench(data_for(CLASSES), CLASSES, metric="accuracy").train("decision-tree-classification")
    assert 0 < accuracy.measures["value"] == accuracy.measures["score"] <= 1
    mae, _ = bench(data_for(REGRESSION), REGRESSION, metric="mae").train("decision-tree-regression")
    assert mae.measures["score"] == -mae.measures["value"]


def test_smaller_shares_train_on_fewer_rows(bench, data_for, facts_of):
    here = bench(data_for(REGRESSION), REGRESSION)
    rows = [
        facts_of(here.train("linear-regression", fraction=share)[1])["rows_trained"] for share in (0.1, 0.5)
    ]
    assert rows == [28, 140]


def test_same_seed_same_result_whatever_else_runs(bench, data_for):
    alone = bench(data_for(CLASSES), CLASSES, parallelism=1, pool=None)
    here = bench(data_for(CLASSES), CLASSES)
    beside, _ = here.hang("decision-tree-classification")
    for name in ("random-forest-classification", "gradient-boosted-tree-classification"):
        settings = {"subsamplingRate": 0.7, "seed": 11}
        trials = [one.train(name, **settings) for one in (here, here, alone)]
        assert len({outcome.measures["value"] for outcome, _ in trials}) == 1
        assert len({(place / "model.onnx").read_bytes() for _, place in trials}) == 1
        _, different = here.train(name, subsamplingRate=0.7, seed=12)
        assert (different / "model.onnx").read_bytes() != (trials[0][1] / "model.onnx").read_bytes()
    assert beside.next(0.0) is None, "it was under way all the time"


def test_refused_combinations_fail_with_their_reason(bench, data_for):
    here = bench(data_for(REGRESSION), REGRESSION)
    outcome, place = here.train("generalized-linear-regression", family="gaussian", link="logit")
    assert outcome.status == "failed"
    assert "gaussian family has no link logit" in outcome.why
    assert not list(place.iterdir())
    outcome, _ = here.train("linear-regression", regParam=-1)
    assert "regParam is -1" in outcome.why
    assert here.train("linear-regression")[0].status == "finished"


# What goes wrong


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def children() -> set[str]:
    """The processes that this one has started and that are still there."""
    return {str(child.pid) for child in psutil.Process().children()}


@pytest.fixture
def plain(bench, data_for):
    return bench(data_for(CLASSES), CLASSES)


def test_a_cut_stops_it_and_leaves_nothing(plain):
    run, place = plain.hang("decision-tree-classification")
    assert isinstance(run, Run)
    assert run.next(0.3) is None
    worker = run._worker.pid
    outcome = run.cut(0.3, "too dear")
    assert (outcome.status, outcome.time_s, outcome.why) == ("cut", 0.3, "too dear")
    assert not Path(f"/proc/{worker}").exists()
    assert not list(place.iterdir())
    assert plain.train("decision-tree-classification")[0].status == "finished"


def test_a_trial_past_its_limit_is_ended_even_if_nobody_listens(plain):
    run, place = plain.hang("decision-tree-classification", limit_s=0.4)
    worker = run._worker.pid
    while state_of(worker) != "Z":  # nobody calls next: the test would time out here
        time.sleep(0.01)
    outcome = run.next(60)
    assert outcome.status == "failed"
    assert "limit of 0.4 s" in outcome.why
    assert outcome.time_s == pytest.approx(0.4)
    assert not list(place.iterdir())


def test_two_trials_are_at_work_in_two_processes_at_once(plain, finish):
    first, one = plain.hang("decision-tree-classification")
    second, other = plain.hang("decision-tree-classification")
    assert len({first._worker.pid, second._worker.pid, os.getpid()}) == 3
    # Opening waits until the trial writes: the second comes to its end while the first is still under way.
    models = [(place / "model.onnx").open("rb") for place in (other, one)]
    assert first.next(0.0) is second.next(0.0) is None
    for model in models:
        with model:
            assert model.read()
    assert [finish(run)[0].status for run in (first, second)] == ["finished", "finished"]


def test_a_hanging_trial_does_not_hold_up_others(plain):
    hanging, _ = plain.hang("decision-tree-classification")
    for _ in range(3):
        assert plain.train("decision-tree-classification")[0].status == "finished"
    assert hanging.next(0.0) is None


def test_out_of_memory_fails_alone(bench, data_for):
    here = bench(data_for(REGRESSION, rows=200_000, columns=20), REGRESSION, memory_mb=40)
    outcome, place = here.train("linear-regression")
    assert outcome.status == "failed"
    assert "out of memory" in outcome.why
    assert not list(place.iterdir())
    assert here.train("linear-regression", fraction=0.01)[0].status == "finished"


def test_a_killed_worker_is_replaced(plain):
    run, _ = plain.hang("decision-tree-classification")
    os.kill(run._worker.pid, signal.SIGKILL)
    outcome = run.next(60)
    assert outcome.status == "failed"
    assert "memory" in outcome.why
    assert plain.train("decision-tree-classification")[0].status == "finished"


def test_an_idle_worker_that_died_is_not_used(plain, finish):
    run, _ = plain.start("decision-tree-classification")
    finish(run)
    os.kill(run._worker.pid, signal.SIGKILL)
    assert run._worker.connection.poll(60), "its end of the line closes when its last thread has gone"
    assert plain.train("decision-tree-classification")[0].status == "finished"


def test_closing_ends_everything(bench, data_for):
    here = bench(data_for(CLASSES), CLASSES, pool=None)
    run, _ = here.hang("naive-bayes", modelType="gaussian")
    server = here.session._pool._server.pid
    here.session.close()
    assert not Path(f"/proc/{run._worker.pid}").exists()
    assert not Path(f"/proc/{server}").exists()
    here.runs.clear()


def test_workers_are_used_again_and_share_the_cores(plain, finish):
    workers = set()
    for _ in range(5):
        run, _ = plain.start("decision-tree-classification")
        workers.add(run._worker.pid)
        finish(run)
    assert len(workers) == 1
    cores = len(os.sched_getaffinity(0))
    setup = Path(f"/proc/{workers.pop()}/environ").read_bytes().decode()
    assert f"OMP_NUM_THREADS={max(1, cores // 2)}" in setup


def test_sessions_that_share_a_pool_do_not_share_what_workers_know(bench, pool, data_for, facts_of, finish):
    few, many = bench(data_for(CLASSES, rows=200), CLASSES), bench(data_for(CLASSES), CLASSES)
    rows = [facts_of(here.train("naive-bayes", modelType="gaussian")[1])["rows_trained"]
            for here in (few, many, few)]  # fmt: skip
    assert rows == [140, 280, 140]
    runs = [here.start("naive-bayes", modelType="gaussian")[0] for here in (few, many, many)]
    for run in runs:
        finish(run)
    assert len(pool._idle) == pool.size
    assert not Path(f"/proc/{runs[0]._worker.pid}").exists(), "the one that was free for longest has left"


def test_runs_can_be_waited_for_together(plain):
    runs = [plain.start("decision-tree-classification", seed=number)[0] for number in range(2)]
    ready = wait(runs, timeout=60)
    assert ready
    assert ready[0].next(60).status == "finished"


def test_late_listeners_do_not_make_a_trial_longer(plain):
    run, _ = plain.start("decision-tree-classification")
    assert wait([run], timeout=60)
    ready_s = time.monotonic() - run._started_s
    assert run.next(60).time_s <= ready_s


def test_progress_is_told_with_the_score_so_far(bench, data_for, finish):
    here = bench(data_for(CLASSES), CLASSES)
    run, _ = here.start("gradient-boosted-tree-classification", maxIter=60, stepSize=0.05)
    outcome, told = finish(run)
    assert told
    assert all(0 < event.done <= 1 and event.measures["score"] <= 1 for event in told)
    times = [event.elapsed_s for event in told] + [outcome.time_s]
    assert times == sorted(times)


def test_description_and_shape(bench, data_for):
    session = bench(with_gaps_and_categories(data_for(CLASSES)), CLASSES).session
    assert (session.shape.rows, session.shape.columns, session.shape.classes) == (400, 6, 3)
    assert session.description["classes"] == ["a", "b", "c"]
    assert session.description["columns"][1]["categories"] == ["blue", "green", "red", "white"]


def test_the_engine_opens_a_request(tmp_path, data_for, finish):
    from prudent.training.engines.engine import TrialSpec
    from prudent.training.request.request import TrainingRequest

    found = data_for(REGRESSION)
    functions = ["a,b,c,d,e,f,y"]
    functions += [",".join(map(str, [*row, y])) for row, y in zip(found.X, found.y, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(functions))
    request = TrainingRequest.parse(
        {
            "domain": REGRESSION,
            "dataset": {"path": str(tmp_path / "data.csv"), "target": "y"},
            "methods": [{"algorithm": "linear-regression"}],
            "seed": 4,
        }
    )
    with LocalEngine().open(request, tmp_path / "work", 1) as session:
        assert session.shape.rows == 400
        spec = TrialSpec(1, "linear-regression", {}, {}, 1.0, 4, tmp_path / "one")
        outcome, _ = finish(session.start(spec))
    assert outcome.measures["value"] < 0.2


def test_bad_data_leave_no_process_behind(tmp_path):
    from prudent.training.request.request import TrainingRequest

    request = TrainingRequest.parse({"domain": REGRESSION, "dataset": {"path": str(tmp_path / "none.csv")}})
    before = children()
    with pytest.raises(BadInput):
        LocalEngine().open(request, tmp_path / "work", 1)
    assert children() == before
