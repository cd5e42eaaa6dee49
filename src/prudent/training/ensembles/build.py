"""The ensemble of a request's models, by what they said of rows they had not seen, written as a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import RunFailed
from prudent.core.seeds import rng_for
from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION, score_of
from prudent.training.data.dataset import Matrix
from prudent.training.engines.engine import ModelFacts
from prudent.training.engines.figures import FOLDS, judged_figures
from prudent.training.engines.model_files import library_versions, write_model
from prudent.training.engines.onnx_export import DOUBLE, FLOAT, ExportCheck, check_export
from prudent.training.engines.predictions import TEST_FILE, Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.ensembles.graph import EnsembleGraph, outputs_of, raw_predictor
from prudent.training.ensembles.selection import (
    OutOfFoldOutputs,
    Outputs,
    ScoreDifference,
    ScoreFunction,
    cross_fitted,
    score_difference,
    select_weights,
)
from prudent.training.leaderboard import ENSEMBLE, LeaderboardEntry
from prudent.training.models.description import MODEL_FILE, read_facts, write_facts

MOST_CANDIDATES, MOST_OF_AN_ALGORITHM = 20, 4
"""The best models, but not all of one kind: what errs alike gains nothing together."""
_MOST_ROWS = 5000
_FEWEST_ROWS = 30
_CLOSE = 1e-4
"""How far the exported file may be from the members' weighted average."""
NO_PMML = "No PMML: it has no words for an average of models of several kinds; use the model's ONNX form."


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members with their weights, what they say together of rows that chose no weights, and how they compare.

    `better` is by how much the score is above that of the best single model, `gain` above that of the model
    that stands first without it, on the same rows. `test_score` is that of the test part.
    """

    members: tuple[LeaderboardEntry, ...]
    weights: tuple[float, ...]
    outputs: Outputs
    judged: Predictions
    better: ScoreDifference
    gain: float
    validation_score: float
    test_score: float | None = None
    tested: Predictions | None = None
    """What they say together of the test part."""

    def settings(self) -> dict[str, float]:
        """The weights by algorithm, as a leaderboard shows them."""
        seen: Counter[str] = Counter()
        said = {}
        for member, weight in zip(self.members, self.weights, strict=True):
            seen[member.algorithm] += 1
            count = seen[member.algorithm]
            said[member.algorithm if count == 1 else f"{member.algorithm} ({count})"] = round(weight, 4)
        return said

    def describe(self) -> tuple[Mapping[str, Any], ...]:
        """The members, as `model.json` has them."""
        return tuple(
            {
                "algorithm": member.algorithm,
                "weight": round(weight, 6),
                "trial": member.trial,
                "hyperparameters": dict(member.hyperparameters),
                "transforms": dict(member.transforms),
            }
            for member, weight in zip(self.members, self.weights, strict=True)
        )


def score_function(scorer: Scorer) -> ScoreFunction:
    """The request's metric of outputs, such that larger is better."""

    def score(actual: NDArray[Any], outputs: Outputs) -> float:
        if outputs.ndim == 2:
            return scorer.to_score(scorer.value(actual, outputs.argmax(axis=1), None, outputs))
        return scorer.to_score(scorer.value(actual, outputs, None))

    return score


def choose_ensemble(
    entries: Sequence[LeaderboardEntry],
    scorer: Scorer,
    seed: int,
    tested: Callable[[Path], Predictions | None] = lambda folder: None,
) -> Ensemble | None:
    """The ensemble of some models, of which one stands first; None where a single one does as well.

    It is compared with the best one on rows that did not choose its weights: those of the folds, by weights
    that others of them chose, and those of the test part, of which `tested` tells what a model said.
    """
    found = _candidates(entries, scorer, seed) if scorer.task in (CLASSIFICATION, REGRESSION) else None
    if found is None:
        return None
    chosen, candidates, judged = found
    rng = rng_for(seed, "ensemble")
    weights = select_weights(candidates, rng)
    used = [int(place) for place in np.flatnonzero(weights)]
    if len(used) < 2:
        return None
    outputs = cross_fitted(candidates, rng)
    best = candidates.ranking()[0]
    both, rows, test_score = np.stack([outputs, *candidates.outputs[[best, 0]]]), candidates, None
    test, told = _on_test(chosen, [*used, best, 0], scorer, tested)
    if test is not None and told is not None:
        together = np.tensordot(weights[used], test.outputs[: len(used)], axes=1)
        test_score, told = test.score_of(together), _told(told, together, scorer)
        both = np.concatenate([both, np.stack([together, *test.outputs[-2:]])], axis=1)
        assert test.rows is not None
        rows = OutOfFoldOutputs(
            both,
            np.concatenate([candidates.actual, test.actual]),
            candidates.score,
            np.concatenate([judged.rows, test.rows]),
        )
    return Ensemble(
        tuple(chosen[place] for place in used),
        tuple(float(weights[place]) for place in used),
        outputs,
        judged,
        score_difference(both[0], both[1], rows, rng),
        rows.score_of(both[0]) - rows.score_of(both[2]),
        candidates.score_of(outputs),
        test_score,
        told,
    )


def _told(said: Predictions, outputs: Outputs, scorer: Scorer) -> Predictions:
    """The same rows, with what an ensemble says of them."""
    return replace(
        said,
        predicted=outputs.argmax(axis=1) if scorer.classes else outputs,
        probabilities=outputs.astype(np.float32) if scorer.classes else None,
    )


def _on_test(
    chosen: Sequence[LeaderboardEntry],
    places: Sequence[int],
    scorer: Scorer,
    tested: Callable[[Path], Predictions | None],
) -> tuple[OutOfFoldOutputs | None, Predictions | None]:
    """What some models said of the test part, and the first of them; None unless all of them were asked."""
    said = [tested(Path(chosen[place].model_path)) for place in places]
    known = [each for each in said if each is not None and each.actual is not None]
    if len(known) < len(places) or any(len(each) != len(known[0]) for each in known):
        return None, None
    outputs = np.stack([outputs_of(each.predicted, each.probabilities, scorer.classes) for each in known])
    actual = known[0].actual
    assert actual is not None
    return OutOfFoldOutputs(outputs, actual, score_function(scorer), known[0].rows), known[0]


def write_ensemble(
    ensemble: Ensemble,
    folder: Path,
    scorer: Scorer,
    sample: Matrix,
    leader: LeaderboardEntry,
    pmml: bool,
) -> LeaderboardEntry:
    """Write the files of a model into `folder`, as a trial does, and answer its entry.

    `sample` are raw rows on which the file is compared with its members' weighted average. Written again, it
    takes in members that were trained anew since.
    """
    facts = [read_facts(Path(member.model_path)) for member in ensemble.members]
    onnx, checked = _exported(ensemble, scorer, sample)
    entry = _entry_of(ensemble, folder, scorer, leader, checked.predict_ms)
    told = _told(ensemble.judged, ensemble.outputs, scorer)
    write_model(folder, onnx, None)
    told.write(folder)
    if ensemble.tested is not None:
        ensemble.tested.write(folder, TEST_FILE)
    said = ModelFacts(
        metric=scorer.metric,
        value=entry.value,
        score=entry.score,
        train_s=entry.train_s,
        predict_ms=checked.predict_ms,
        export_difference=checked.difference,
        rows_trained=max(each.rows_trained for each in facts),
        rows_validated=len(ensemble.judged),
        versions=library_versions(),
        notes=(NO_PMML,) if pmml else (),
        picture=judged_figures(scorer, told, range(scorer.classes), FOLDS if told.split.any() else ""),
        refitted=all(each.refitted for each in facts),
    )
    write_facts(folder, said)
    return entry


def _exported(ensemble: Ensemble, scorer: Scorer, sample: Matrix) -> tuple[bytes, ExportCheck]:
    """The members in one file, which says the same as they do together."""
    files = [(Path(member.model_path) / MODEL_FILE).read_bytes() for member in ensemble.members]
    kind = DOUBLE if sample.dtype == np.float64 else FLOAT
    onnx = EnsembleGraph(files, ensemble.weights, scorer.classes).export(sample.shape[1], kind)
    checked = check_export(onnx, sample, lambda: _together(ensemble, scorer, sample))
    if checked.difference > _CLOSE:
        raise RunFailed(
            "The ensemble's file says something else than its members; use the best single model."
        )
    return onnx, checked


def _entry_of(
    ensemble: Ensemble, folder: Path, scorer: Scorer, leader: LeaderboardEntry, predict_ms: float
) -> LeaderboardEntry:
    """The ensemble on the leaderboard; it costs nothing beside its members."""
    score = leader.score + ensemble.gain
    return replace(
        leader,
        rank=0,
        algorithm=ENSEMBLE,
        hyperparameters=ensemble.settings(),
        score=score,
        value=score_of(scorer.metric, score),
        model_path=str(folder),
        train_s=sum(member.train_s for member in ensemble.members),
        predict_ms=predict_ms,
        cost_usd=0.0,
        transforms={},
        machines="",
        members=ensemble.describe(),
        validation_score=ensemble.validation_score,
        test_score=ensemble.test_score,
        interval=None,
    )


def _together(
    ensemble: Ensemble, scorer: Scorer, rows: Matrix
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """What the members say of raw rows, averaged outside of any graph."""
    said = np.stack([_outputs_for(member, rows, scorer) for member in ensemble.members])
    averaged = np.asarray(np.tensordot(np.asarray(ensemble.weights), said, axes=1))
    return (averaged.argmax(axis=1), averaged) if scorer.classes else (averaged, None)


def _outputs_for(entry: LeaderboardEntry, rows: Matrix, scorer: Scorer) -> Outputs:
    return raw_predictor(Path(entry.model_path), scorer.classes)(rows)


def _candidates(
    entries: Sequence[LeaderboardEntry], scorer: Scorer, seed: int
) -> tuple[list[LeaderboardEntry], OutOfFoldOutputs, Predictions] | None:
    """The best models whose predictions are there, of the same rows: those that the first of them has."""
    chosen: list[LeaderboardEntry] = []
    outputs: list[Outputs] = []
    first: Predictions | None = None
    kinds: Counter[str] = Counter()
    seen: set[str] = set()
    for entry in entries:
        if entry.settings_key in seen:  # the same model from other machines
            continue
        if len(chosen) == MOST_CANDIDATES or kinds[entry.algorithm] == MOST_OF_AN_ALGORITHM:
            continue
        told = _judged_rows(Path(entry.model_path), first, seed)
        if told is None:
            continue
        first = first or told
        seen.add(entry.settings_key)
        chosen.append(entry)
        kinds[entry.algorithm] += 1
        outputs.append(outputs_of(told.predicted, told.probabilities, scorer.classes))
    if first is None or first.actual is None or len(chosen) < 2 or len(first) < _FEWEST_ROWS:
        return None
    candidates = OutOfFoldOutputs(np.stack(outputs), first.actual, score_function(scorer), first.rows)
    return chosen, candidates, first


def _judged_rows(folder: Path, wanted: Predictions | None, seed: int) -> Predictions | None:
    """What a model said of rows it had not seen, in a fixed order; None unless of all the rows `wanted`."""
    told = Predictions.read(folder)
    if told is None:
        return None
    told = told.at(np.lexsort((told.split, told.rows)))
    if wanted is None:
        if len(told) <= _MOST_ROWS:
            return told
        drawn = rng_for(seed, "ensemble rows").choice(len(told), _MOST_ROWS, replace=False)
        return told.at(np.sort(drawn))
    span = max(int(told.split.max()), int(wanted.split.max())) + 1
    keys, asked = told.rows * span + told.split, wanted.rows * span + wanted.split
    places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return told.at(places) if (keys[places] == asked).all() else None
