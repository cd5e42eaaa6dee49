"""The end of a search: the best model is chosen, judged once more, and trained on all rows."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from prudent.core.errors import PrudentError
from prudent.core.money import Price
from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.engine import (
    ModelFacts,
    RefittingSession,
    TrainingSession,
    TrialSpec,
    UnseenRows,
)
from prudent.training.engines.model_files import PMML, SPARKS_OWN
from prudent.training.engines.predictions import TEST_FILE, Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.leaderboard import SAMPLE, LeaderboardEntry, rank_key
from prudent.training.models.description import MODEL_FILE, read_facts, write_facts
from prudent.training.models.model import open_session, session_predictions
from prudent.training.search.selection import (
    CLEAR_ERRORS,
    MOST_MODELS,
    JudgedModel,
    Selection,
    select,
    standard_error,
    widening,
)
from prudent.tuning.jobs.job import Run
from prudent.tuning.trial import FINISHED, Outcome

FEW = 5
"""So many of the best models see the test part, and are trained on all rows."""
EXPORT_S = 0.8
"""What a refit takes beside the training."""
_BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("accuracy", "f1", "precision", "recall", "balanced-accuracy", "auc"), (0.0, 1.0)),
    "mcc": (-1.0, 1.0),
    "r2": (-math.inf, 1.0),
}


@dataclass(frozen=True)
class FinalBoard:
    """Models best first, the score that a guess reaches, and the methods that are as good as the first's."""

    entries: tuple[LeaderboardEntry, ...]
    guess: float | None = None
    tied: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """What is suspicious about the data."""
    unfinished: str = ""
    """What time or money did not allow, in a sentence."""


def judge(
    entries: Sequence[LeaderboardEntry], session: TrainingSession, scorer: Scorer, seed: int
) -> FinalBoard:
    """Put the model first that a user would be right to take, and tell the score he would be right to expect.

    Entries without predictions for unseen rows keep their order and their scores.
    """
    ranked = sorted(entries, key=rank_key)
    if scorer.task not in (CLASSIFICATION, REGRESSION) or not ranked:
        return FinalBoard(tuple(ranked))
    models = _judged_models(ranked)
    if not models:
        return FinalBoard(tuple(ranked))
    places = list(models)
    unseen = _unseen(session)
    said = models[places[0]].predictions
    trained = trained_rows(said, session, rows_for_test(unseen, [ranked[place] for place in places]))
    widened = widening(len(np.unique(said.rows)), trained)
    chosen = select(list(models.values()), scorer, seed, widened)
    leader = places[chosen.leader]
    told = {place: _told(ranked[place], number, chosen) for number, place in enumerate(places)}
    ordered = [leader, *(place for place in range(len(ranked)) if place != leader)]
    final: list[LeaderboardEntry] = []
    for number, place in enumerate(ordered):
        entry, (score, error) = ranked[place], told.get(place, (ranked[place].score, math.nan))
        if number < FEW and not math.isnan(error):
            entry, score, error = _with_test(entry, score, error, unseen, scorer, seed, trained)
        if final:
            score = min(score, final[-1].score)  # who stands behind is not expected to be better
        final.append(with_score(entry, score, error, scorer))
    guess = None if said.actual is None else scorer.to_score(scorer.guess_value(said.actual))
    return FinalBoard(tuple(final), guess, tuple(sorted(chosen.tied)))


def _unseen(session: TrainingSession) -> UnseenRows | None:
    """The test part; None where there is none, or its machines were lost."""
    with contextlib.suppress(PrudentError):
        return session.test_rows() if isinstance(session, RefittingSession) else None
    return None


def rows_for_test(unseen: UnseenRows | None, entries: Sequence[LeaderboardEntry]) -> int:
    """How many rows are in the test part; where its machines are gone, as many as models were asked about."""
    if unseen is not None:
        return len(unseen)
    said = (Predictions.read(Path(entry.model_path), TEST_FILE) for entry in entries)
    return max((len(one) for one in said if one is not None), default=0)


def trained_rows(said: Predictions, session: TrainingSession, test_rows: int) -> float:
    """How many rows there are to train on in a split: all but those of the test part and those that judge."""
    judging = len(said) / len(np.unique(said.split))
    return session.shape.rows - test_rows - judging


def _judged_models(ranked: Sequence[LeaderboardEntry]) -> dict[int, JudgedModel]:
    """The models that were judged by all splits, by their places; those of the best of each method first."""
    seen: set[str] = set()
    found: dict[int, JudgedModel] = {}
    for place, entry in enumerate(ranked):
        if place >= 2 * MOST_MODELS and entry.algorithm in seen:
            continue
        said = Predictions.read(Path(entry.model_path))
        if said is None or said.actual is None:
            continue
        seen.add(entry.algorithm)
        kind = algorithm(entry.algorithm)
        found[place] = JudgedModel(entry.algorithm, entry.score, said, kind.simplicity, entry.predict_ms)
    most = max((len(model.predictions) for model in found.values()), default=0)
    return {place: model for place, model in found.items() if len(model.predictions) == most}


def _told(entry: LeaderboardEntry, number: int, chosen: Selection) -> tuple[float, float]:
    return entry.score - chosen.luck.get(number, 0.0), chosen.errors.get(number, math.nan)


def _with_test(
    entry: LeaderboardEntry,
    score: float,
    error: float,
    unseen: UnseenRows | None,
    scorer: Scorer,
    seed: int,
    trained: float,
) -> tuple[LeaderboardEntry, float, float]:
    """An entry with its test score, and both scores as one, each weighted by how certain it is."""
    said = test_predictions(Path(entry.model_path), unseen)
    if said is None or said.actual is None:
        return entry, score, error
    value = scorer.value(said.actual, said.predicted, None, said.probabilities)
    test_score = scorer.to_score(value)
    test_error = standard_error(said, scorer, seed, widening(len(said), trained))
    entry = replace(entry, test_score=test_score)
    if not (test_error > 0 and error > 0):
        return entry, score, error
    own, other = error**-2, test_error**-2
    return entry, (own * score + other * test_score) / (own + other), (own + other) ** -0.5


def test_predictions(folder: Path, unseen: UnseenRows | None) -> Predictions | None:
    """What a model says of the test part; what it said before it was trained on all rows counts."""
    before = Predictions.read(folder, TEST_FILE)
    if before is not None or unseen is None:
        return before
    try:
        if read_facts(folder).refitted:
            return None
        predicted, probabilities = session_predictions(open_session(folder), unseen.X)
    except PrudentError:
        return None
    said = Predictions(unseen.rows, np.zeros(len(unseen.rows), np.int64), predicted, unseen.y, probabilities)
    said.write(folder, TEST_FILE)
    return said


def with_score(entry: LeaderboardEntry, score: float, error: float, scorer: Scorer) -> LeaderboardEntry:
    interval = None
    if not math.isnan(error):
        least, most = _BOUNDS.get(scorer.metric, (-math.inf, 0.0))
        low, high = score - CLEAR_ERRORS * error, score + CLEAR_ERRORS * error
        interval = max(low, least), min(high, most)
    return replace(entry, score=score, value=scorer.to_score(score), interval=interval)


# On all rows


class Refit:
    """Trains models of a request once more, on all rows, as far as time and money go.

    An interrupt (Ctrl-C) leaves the others as they are. `charge` is called with what each is expected to cost
    before it begins, so that a process that is killed has paid for it, and with the difference at its end.
    """

    def __init__(
        self,
        session: RefittingSession,
        folder: Path,
        seed: int,
        price: Price,
        charge: Callable[[float], None],
    ) -> None:
        self._session, self._folder, self._seed, self._price = session, folder, seed, price
        self._charge = charge
        self.spent_usd = 0.0

    def entries(
        self, entries: Sequence[LeaderboardEntry], left_s: float, left_usd: float
    ) -> tuple[LeaderboardEntry, ...]:
        """The same entries, of which the few best are refitted, the first one first.

        What was trained on several machines with the same settings is the same on all rows, and made once.
        """
        until_s = time.monotonic() + left_s
        found, made = list(entries), set[str]()
        with contextlib.suppress(KeyboardInterrupt):
            for place, entry in enumerate(found[:FEW]):
                if entry.settings_key in made:
                    continue
                made.add(entry.settings_key)
                paid_s = self._price.seconds_for(left_usd - self.spent_usd)
                found[place] = self._if_time(entry, min(until_s - time.monotonic(), paid_s))
        return tuple(found)

    def _if_time(self, entry: LeaderboardEntry, allowed_s: float) -> LeaderboardEntry:
        try:
            facts = read_facts(Path(entry.model_path))
            if facts.refitted:
                return _on_all_rows(entry, facts)
            if allowed_s <= refit_s(facts, entry.fraction) / 4.0:  # that was cautious
                return entry
            return self._refitted(entry, facts, allowed_s)
        except PrudentError:  # it stays as it was judged
            return entry

    def _refitted(self, entry: LeaderboardEntry, facts: ModelFacts, allowed_s: float) -> LeaderboardEntry:
        place = self._folder / f"refit-{entry.trial}"
        spec = TrialSpec(
            entry.trial,
            entry.algorithm,
            algorithm(entry.algorithm).complete(entry.hyperparameters),
            {name: settings for name, settings in entry.transforms.items() if name != SAMPLE},
            1.0,
            self._seed,
            place,
            limit_s=None if math.isinf(allowed_s) else allowed_s,
            refit=True,
            iterations=facts.iterations,
        )
        expected_usd = self._price.cost_usd(refit_s(facts, entry.fraction))
        self._charge(expected_usd)
        run = self._session.start(spec)
        began_s = time.monotonic()
        try:
            outcome = _outcome(run, allowed_s)
            if outcome.status != FINISHED:
                return entry
            return _on_all_rows(entry, _replace_model(Path(entry.model_path), place, facts))
        except BaseException:
            run.cut(0.0, "it was interrupted")
            raise
        finally:
            cost_usd = self._price.cost_usd(time.monotonic() - began_s)
            self._charge(cost_usd - expected_usd)
            self.spent_usd += cost_usd
            shutil.rmtree(place, ignore_errors=True)


def refit_s(facts: ModelFacts, fraction: float) -> float:
    """How long it should take to train a model on all rows, and to export it, on a busy machine."""
    return EXPORT_S + 2.0 * facts.train_s / max(len(facts.split_scores), 1) / fraction


def _outcome(run: Run, allowed_s: float) -> Outcome:
    while True:
        event = run.next(allowed_s)
        if event is None:
            return run.cut(allowed_s, "the time was up")
        if isinstance(event, Outcome):
            return event


def _replace_model(folder: Path, new: Path, facts: ModelFacts) -> ModelFacts:
    """Put a refitted model in the place of the one that was judged; what is known of that one stays."""
    fresh = read_facts(new)
    for name in (PMML, SPARKS_OWN):
        if (new / name).exists():
            shutil.rmtree(folder / name, ignore_errors=True)
            (new / name).replace(folder / name)
    merged = replace(
        facts,
        predict_ms=fresh.predict_ms,
        export_difference=fresh.export_difference,
        rows_trained=fresh.rows_trained,
        notes=fresh.notes,
        refitted=True,
    )
    (new / MODEL_FILE).replace(folder / MODEL_FILE)
    write_facts(folder, merged)
    return merged


def _on_all_rows(entry: LeaderboardEntry, facts: ModelFacts) -> LeaderboardEntry:
    transforms = {name: settings for name, settings in entry.transforms.items() if name != SAMPLE}
    return replace(entry, rows_trained=facts.rows_trained, refitted=True, transforms=transforms)
