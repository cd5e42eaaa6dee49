"""A search ends with an ensemble where that is better, and with a closer look at its leader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from prudent.training.engines.engine import DataShape, ModelFacts, TrialSpec, UnseenRows
from prudent.training.engines.model_files import write_model
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph, export_pipeline
from prudent.training.engines.predictions import TEST_FILE, Predictions
from prudent.training.insight.insight import ModelInsight
from prudent.training.leaderboard import ENSEMBLE, Leaderboard, LeaderboardEntry
from prudent.training.models.description import read_description, read_facts, write_facts
from prudent.training.models.metrics import confusion, mcc, rmse
from prudent.training.models.model import open_session
from prudent.training.models.output import OutputFolder
from prudent.training.request.request import TrainingRequest
from prudent.training.search.closing import SearchClosing
from prudent.tuning.jobs.job import Run

COLUMNS = 6
KINDS = ("binomial-logistic-regression", "naive-bayes", "linear-support-vector-machine")


class PreparedSession:
    """Rows whose truth is the sign (or value) of their sum, beyond noise; it trains nothing."""

    refits = False

    def __init__(self, classes: int = 2, rows: int = 900, noise: float = 0.5, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
        total = self.X.sum(axis=1) + noise * rng.normal(size=rows)
        self.y = (total > 0).astype(np.int64) if classes else total.astype(np.float64)
        self.classes, self.judged = classes, np.arange(rows // 3, rows)
        self.test: UnseenRows | None = None

    @property
    def shape(self) -> DataShape:
        return DataShape(len(self.X), COLUMNS, self.classes, "prepared")

    @property
    def description(self) -> Mapping[str, Any]:
        columns = [{"name": f"x{n}", "kind": "numeric", "categories": []} for n in range(COLUMNS)]
        return {"columns": columns, "classes": ["no", "yes"] if self.classes else [], "target": "y"}

    def test_rows(self) -> UnseenRows | None:
        return self.test

    def rows_of(self, rows: np.ndarray) -> UnseenRows:
        return UnseenRows(self.X[rows], self.y[rows], rows)

    def start(self, spec: TrialSpec) -> Run:
        raise AssertionError("nothing is to be trained")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def model(
        self, folder: Path, number: int, weights: Sequence[float], probable: bool = True
    ) -> LeaderboardEntry:
        """A finished trial: a linear model of the raw columns, as an engine leaves it."""
        place = folder / str(number)
        slopes = np.asarray(weights, float)[:, None]

        def add(graph: OnnxGraph, rows: str) -> GraphOutputs:
            raw = graph.affine(rows, slopes, 0.0)
            if self.classes:
                return graph.second_class(raw, probable=probable)
            return GraphOutputs(graph.flatten(raw), is_integer=False)

        raw = self.X[self.judged].astype(float) @ slopes[:, 0]
        second = 1 / (1 + np.exp(-raw))
        predicted = (raw > 0).astype(np.int64) if self.classes else raw
        probabilities = np.column_stack([1 - second, second]).astype(np.float32)
        told = Predictions(
            self.judged,
            np.zeros(len(self.judged), np.int64),
            predicted,
            self.y[self.judged],
            probabilities if self.classes and probable else None,
        )
        value = self._value(told.actual, predicted)
        metric = "mcc" if self.classes else "rmse"
        score = value if self.classes else -value
        write_model(place, export_pipeline([], add, COLUMNS), None)
        told.write(place)
        write_facts(place, ModelFacts(metric, value, score, 0.1, 0.001, 0.0, 300, 600, {"prudent": "1"}))
        kind = KINDS[number % 3] if self.classes else "linear-regression"
        settings = {"seed": number}
        return LeaderboardEntry(0, kind, settings, score, metric, value, str(place), 0.1, 0.001, 0.01, number)

    def _value(self, actual: Any, predicted: np.ndarray) -> float:
        return mcc(confusion(actual, predicted, 2)) if self.classes else rmse(actual, predicted)

    def closing(self, folder: Path, **asked: Any) -> SearchClosing:
        domain = "classification" if self.classes else "regression"
        request = {"domain": domain, "dataset": {"path": "x.csv"}, **asked}
        return SearchClosing(TrainingRequest.parse(request), self, folder)


def _blind(column: int) -> list[float]:
    """A model that sees all columns but two."""
    return [0.0 if n in (column, (column + 1) % COLUMNS) else 2.0 for n in range(COLUMNS)]


def _ranked(entries: Sequence[LeaderboardEntry]) -> list[LeaderboardEntry]:
    return sorted(entries, key=lambda entry: -entry.score)


def _answers(folder: str, rows: np.ndarray) -> list[np.ndarray]:
    session = open_session(Path(folder))
    return session.run([output.name for output in session.get_outputs()], {"features": rows})


def test_models_that_complete_each_other_are_recommended_together(tmp_path: Path) -> None:
    session = PreparedSession()
    models = _ranked([session.model(tmp_path, n, _blind(2 * n)) for n in range(3)])
    first, *others = session.closing(tmp_path).with_ensemble(models)
    assert first.algorithm == ENSEMBLE
    assert others == models
    assert len(first.members) == 3
    assert sum(member["weight"] for member in first.members) == pytest.approx(1, abs=1e-5)
    # What is told holds on fresh rows, and the file says what its members say.
    fresh = PreparedSession(rows=20_000, seed=9)
    label, probabilities = _answers(first.model_path, fresh.X)
    assert first.score == pytest.approx(mcc(confusion(fresh.y, label, 2)), abs=0.08)
    assert first.score > models[0].score + 0.1
    by_trial = {model.trial: model.model_path for model in models}
    expected = sum(
        member["weight"] * _answers(by_trial[member["trial"]], fresh.X)[1].astype(float)
        for member in first.members
    )
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    assert read_facts(Path(first.model_path)).export_difference < 1e-5
    assert first.predict_ms > 0


def test_values_are_averaged_too(tmp_path: Path) -> None:
    session = PreparedSession(classes=0)
    half = [[1.0 * (n % 2 == odd) for n in range(COLUMNS)] for odd in (0, 1)]
    models = _ranked([session.model(tmp_path, n, np.array(w) * 1.9) for n, w in enumerate(half)])
    first, *_ = session.closing(tmp_path).with_ensemble(models)
    assert (first.algorithm, first.value) == (ENSEMBLE, -first.score)
    (said,) = _answers(first.model_path, session.X)
    assert first.value == pytest.approx(rmse(session.y, said), abs=0.1)
    assert first.value < models[0].value / 1.5


@pytest.mark.parametrize("seed", range(4))
def test_on_noise_a_single_model_stays_first(tmp_path: Path, seed: int) -> None:
    session = PreparedSession(seed=seed)
    rng = np.random.default_rng(seed)
    session.y = rng.integers(0, 2, len(session.y))
    models = _ranked([session.model(tmp_path, n, rng.normal(size=COLUMNS)) for n in range(12)])
    entries = session.closing(tmp_path).with_ensemble(models)
    assert entries[0] == models[0]
    assert sum(entry.algorithm == ENSEMBLE for entry in entries) <= 1


def test_copies_make_no_ensemble(tmp_path: Path) -> None:
    session = PreparedSession()
    models = [session.model(tmp_path, n, [1.0] * COLUMNS) for n in range(3)]
    assert session.closing(tmp_path).with_ensemble(models) == models


def test_the_same_model_from_other_machines_is_no_member(tmp_path: Path) -> None:
    session = PreparedSession()
    models = _ranked([session.model(tmp_path, n, _blind(2 * n)) for n in range(3)])
    again = [replace(models[0], trial=9, machines="2*m5.large"), *models]
    first, *_ = session.closing(tmp_path).with_ensemble(again)
    assert {member["trial"] for member in first.members} == {9, models[1].trial, models[2].trial}


def test_no_ensemble_where_none_is_wanted(tmp_path: Path) -> None:
    session = PreparedSession()
    models = _ranked([session.model(tmp_path, n, _blind(2 * n)) for n in range(3)])
    assert session.closing(tmp_path, ensemble=False).with_ensemble(models) == models


def test_a_form_that_an_ensemble_has_not_is_told(tmp_path: Path) -> None:
    session = PreparedSession()
    models = _ranked([session.model(tmp_path, n, _blind(2 * n)) for n in range(3)])
    first, *_ = session.closing(tmp_path, export=["onnx", "pmml"]).with_ensemble(models)
    (note,) = read_facts(Path(first.model_path)).notes
    assert note.startswith("No PMML: ")


def test_the_test_part_has_a_say(tmp_path: Path) -> None:
    """Models that only seem to complete each other do not on rows that nobody chose by."""
    session = PreparedSession()
    models = _ranked([session.model(tmp_path, n, _blind(2 * n)) for n in range(3)])
    fresh = PreparedSession(rows=3000, seed=5)
    worse = np.sign(fresh.X @ np.asarray(_blind(2 * models[0].trial), np.float32)) > 0
    session.test = UnseenRows(fresh.X, worse.astype(np.int64), 10_000 + np.arange(3000))
    entries = session.closing(tmp_path).with_ensemble(models)
    assert entries[0] == models[0]
    told = [Predictions.read(Path(entry.model_path), TEST_FILE) for entry in entries]
    assert all(each is not None and len(each) == 3000 for each in told)  # the ensemble's, too


def test_members_are_described_and_a_vote_counts(tmp_path: Path) -> None:
    session = PreparedSession()
    models = _ranked([session.model(tmp_path, n, _blind(2 * n), probable=n != 1) for n in range(3)])
    first, *_ = session.closing(tmp_path).with_ensemble(models)
    said = json.loads(json.dumps(first.to_dict()))
    assert {member["algorithm"] for member in said["members"]} <= set(KINDS)
    assert first.hyperparameters == {
        member["algorithm"]: pytest.approx(member["weight"], abs=1e-4) for member in said["members"]
    }
    assert "members" not in models[0].to_dict()


def test_the_leader_is_looked_at_on_rows_it_had_not_seen(tmp_path: Path) -> None:
    session = PreparedSession()
    leader = session.model(tmp_path, 1, [3.0, 2.0, 1.0, 0.0, 0.0, 0.0])
    assert session.closing(tmp_path).examine(leader, took_s=30.0) == ()
    found = ModelInsight.read(Path(leader.model_path))
    assert found is not None
    assert found.importance is not None
    assert [each.column for each in found.importance.columns[:2]] == ["x0", "x1"]
    assert {each.column for each in found.importance.columns if each.value == 0} == {"x3", "x4", "x5"}
    assert found.importance.rows == 600
    assert not found.seen
    assert found.reliability is not None
    assert found.reliability.trust == "too sure"  # it makes much of the half that it sees
    rising = found.dependences[0].answers[0]
    assert list(rising) == sorted(rising)


def test_planted_leaks_are_told(tmp_path: Path) -> None:
    session = PreparedSession()
    session.X[:, 5] = session.y + 0.01
    session.X[:50], session.y[:50] = session.X[800:850], session.y[800:850]
    leader = session.model(tmp_path, 1, [0.0] * 5 + [1.0])
    column, twins = session.closing(tmp_path).examine(leader, took_s=30.0)
    assert '"x5" alone predicts the target almost perfectly' in column
    assert "50 of 600 rows that judge models" in twins


def test_a_model_without_its_predictions_is_left_alone(tmp_path: Path) -> None:
    session = PreparedSession()
    models = _ranked([session.model(tmp_path, n, _blind(2 * n)) for n in range(3)])
    gone = replace(models[0], model_path=str(tmp_path / "gone"))
    assert session.closing(tmp_path).examine(gone, took_s=1.0) == ()
    entries = session.closing(tmp_path).with_ensemble([gone, *models[1:]])
    assert "gone" not in str(entries[-1].members)


def test_a_request_that_goes_on_makes_its_ensemble_anew(tmp_path: Path) -> None:
    session = PreparedSession()
    request = TrainingRequest.parse({"domain": "classification", "dataset": {"path": "x.csv"}})
    output = OutputFolder(tmp_path / "out", request, "local", resume=False)
    models = _ranked([session.model(output.trials, n, _blind(2 * n)) for n in range(3)])
    entries = SearchClosing(request, session, output.trials).with_ensemble(models)
    board = Leaderboard(tuple(entries), (), "classification", "mcc", "local", "out", 1.0, 0.0, "it ended")
    ranked = output.rank(board, session.description)
    assert Path(ranked.entries[0].model_path).name.startswith("1-ensemble-")
    described = read_description(Path(ranked.entries[0].model_path))
    assert [member["trial"] for member in described.members] == [
        member["trial"] for member in entries[0].members
    ]
    OutputFolder(tmp_path / "out", request, "local", resume=True)
    assert sorted(place.name for place in output.trials.iterdir()) == ["0", "1", "2"]
    assert not list((tmp_path / "out").glob("*ensemble*"))


def test_an_ensemble_takes_in_members_that_were_trained_anew(tmp_path: Path) -> None:
    session = PreparedSession()
    models = _ranked([session.model(tmp_path, n, _blind(2 * n)) for n in range(3)])
    models.append(session.model(tmp_path, 7, [-1.0] * COLUMNS))
    closing = session.closing(tmp_path)
    entries = closing.with_ensemble(models)
    before = _answers(entries[0].model_path, session.X)[1]
    singles = closing.to_refit(entries)
    assert {entry.trial for entry in singles[:3]} == {member["trial"] for member in entries[0].members}
    assert len(singles) == 4
    anew = [session.model(tmp_path, entry.trial, [2.0] * COLUMNS) for entry in singles[:3]]
    after = closing.refitted(entries, [*anew, *singles[3:]])
    assert [entry.trial for entry in after] == [entry.trial for entry in entries]
    said = _answers(after[0].model_path, session.X)[1]
    np.testing.assert_allclose(said, _answers(anew[0].model_path, session.X)[1], atol=1e-5)
    assert np.abs(said - before).max() > 0.1
    assert after[0].score == entries[0].score  # it was measured before
