"""Which of many models stands first, and the score that a user would be right to expect of it.

The best of many scores is too good: among models that are alike, luck with the rows that judged decides. Both
answers come from a bootstrap of what all models said of rows they had not seen (BBC-CV: Tsamardinos et al.,
Machine Learning 107, 2018). Rows are drawn with replacement; the best model on the drawn ones is judged by
those that were not drawn. What it loses there, it had by luck.

A method of which hundreds were tried had more luck than one of which ten were. So the best of each method is
corrected for its own number first, and then methods are compared: among those that are not clearly worse than
the best one, the simplest stands first, and of equally simple ones the one that predicts fastest.

A bootstrap of what models said takes these models as they are. The one that is delivered learns from other
rows, and so would they if all rows were drawn anew. The models of several splits share most of their rows, so
that more splits do not average that out: see `widening`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.models.weighted_metrics import weighted_values

Array = NDArray[np.float64]

DRAWS = 200
TIED_ERRORS = 0.5
"""A method is as good if it is behind by no more than so many standard errors of the difference. Of made
models that are equal, the simple one then stands first five times of six; with twice as much it would do so
more often than not where it is truly worse by one standard error."""
CLEAR_ERRORS = 1.96
"""Models that differ by less than so many standard errors cannot be told apart (95 %)."""
LEAST_ROWS = 20
"""Fewer rows than this say nothing about luck."""
MOST_MODELS, MOST_WORK = 100, 1.5e9
"""So many models are looked at, the best ones, and fewer where rows and classes are many."""


@dataclass(frozen=True, eq=False)
class JudgedModel:
    """A model with its score by validation and what it said of the rows that judged it.

    `simplicity` and then `cost` put one before others that are as good.
    """

    method: str
    score: float
    predictions: Predictions
    simplicity: int = 5
    cost: float = 0.0


@dataclass(frozen=True)
class Selection:
    """The place of the leader, how much of each model's score is luck, and each score's standard error.

    `tied` are other methods that cannot be told from the leader's, each with the difference to it and the
    standard error of that.
    """

    leader: int
    luck: Mapping[int, float]
    errors: Mapping[int, float]
    tied: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def widening(judged: int, trained: float) -> float:
    """By how much a bootstrap's standard error must grow for the chance in the rows that trained the models.

    The scores of J splits, each on n2 rows by a model of n1 others, correlate by about n2 / (n1 + n2). Then
    their mean has the variance (1/J + n2/n1) s² in place of the s²/J that a bootstrap finds (Nadeau and
    Bengio, Machine Learning 52, 2003), which is 1 + J n2/n1 times that. `judged` is J n2, the rows that
    judged, each counted once; `trained` is n1. It holds for the difference of two models, too.

    >>> widening(300, 240), round(widening(30, 70), 2)  # five folds; 30 % held out
    (1.5, 1.2)
    """
    return math.sqrt(1.0 + judged / trained) if trained > 0 else 1.0


def select(models: Sequence[JudgedModel], scorer: Scorer, seed: int, widened: float = 1.0) -> Selection:
    """Choose among models that were judged by the same rows; errors are `widened` so many times."""
    if not models:
        raise ValueError("Nothing to choose from.")
    shown = _worth_a_look(models)
    if len(np.unique(models[0].predictions.rows)) < LEAST_ROWS:
        best = min(shown, key=lambda place: -models[place].score)
        return Selection(best, {}, {})
    drawn, left_out, whole = _drawn_scores([models[place].predictions for place in shown], scorer, seed)
    # Fewer rows are left out than there are: what that alone does to a score is no luck.
    left_out = left_out + (whole - left_out.mean(axis=0))
    methods = _Methods([models[place] for place in shown], whole, drawn, left_out, widened)
    own = methods.chosen(methods.corrected)
    leader = methods.best[own]
    picks = [(draw, methods.picked(draw)) for draw in range(len(drawn))]
    # Over all draws: to keep those that lead to this method, too, would keep the luck that led to it.
    expected = float(np.mean([left_out[draw, pick] for draw, pick in picks]))
    errors = drawn.std(axis=0, ddof=1)
    luck = {}
    for number, place in enumerate(shown):
        method = methods.of[number]
        near = whole[methods.best[method]] - whole[number] <= errors[number]
        luck[place] = float(methods.luck[method]) if near else 0.0
    luck[shown[leader]] = max(float(whole[leader]) - expected, 0.0)
    return Selection(
        shown[leader],
        luck,
        {place: widened * float(errors[number]) for number, place in enumerate(shown)},
        methods.tied_with(own),
    )


def _worth_a_look(models: Sequence[JudgedModel]) -> list[int]:
    """Places of the best models, and of the best of each method."""
    first = models[0].predictions
    width = 1 if first.probabilities is None else first.probabilities.shape[1]
    most = int(np.clip(MOST_WORK / (DRAWS * len(first) * max(width, 2) * 4), 10, MOST_MODELS))
    ranked = sorted(range(len(models)), key=lambda place: -models[place].score)
    seen: set[str] = set()
    best = [place for place in ranked if not (models[place].method in seen or seen.add(models[place].method))]  # type: ignore[func-returns-value]
    return sorted({*ranked[:most], *best})


def _drawn_scores(
    predictions: Sequence[Predictions], scorer: Scorer, seed: int
) -> tuple[Array, Array, Array]:
    """Scores (draws, models) on the rows that were drawn and on those that were not, and on all of them."""
    counts, row = _drawn_counts(predictions[0], rng_for(seed, "bootstrap"))
    counts = counts[(counts == 0).any(axis=1)]
    weights = np.concatenate([counts, counts == 0, np.ones((1, counts.shape[1]))])[:, row]
    scores = np.stack([drawn_scores(said, weights, scorer) for said in predictions], axis=1)
    return scores[: len(counts)], scores[len(counts) : -1], scores[-1]


def _drawn_counts(said: Predictions, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    """How often each different row was drawn (draws, rows), and which of them each judgement is about.

    A row that was judged more than once is drawn with all its judgements.
    """
    _, row = np.unique(said.rows, return_inverse=True)
    rows = int(row.max()) + 1
    counts = np.stack([np.bincount(rng.integers(0, rows, rows), minlength=rows) for _ in range(DRAWS)])
    return counts.astype(np.float64), np.asarray(row.reshape(-1), np.int64)


def drawn_scores(said: Predictions, weights: Array, scorer: Scorer) -> Array:
    """The score of predictions under each row of weights."""
    assert said.actual is not None
    classes = scorer.classes if scorer.classes else 0
    values = weighted_values(scorer.metric, weights, said.actual, said.predicted, said.probabilities, classes)
    return np.array([scorer.to_score(float(value)) for value in values])


def standard_error(said: Predictions, scorer: Scorer, seed: int, widened: float = 1.0) -> float:
    """How far a score on other rows of the same kind would be from this one, as a standard deviation."""
    counts, row = _drawn_counts(said, rng_for(seed, "standard error"))
    return widened * float(drawn_scores(said, counts[:, row], scorer).std(ddof=1))


class _Methods:
    """The models by method: the best of each, its luck, and how methods compare."""

    def __init__(
        self, models: Sequence[JudgedModel], scores: Array, drawn: Array, left_out: Array, widened: float
    ) -> None:
        self.names = list(dict.fromkeys(model.method for model in models))
        self.of = [self.names.index(model.method) for model in models]
        self._members = [np.flatnonzero(np.array(self.of) == each) for each in range(len(self.names))]
        self._models, self._drawn = models, drawn
        # Of models that are equal on the drawn rows, the one that is better on all of them.
        ranked = drawn + 1e-9 * scores
        self._winners = np.stack([own[ranked[:, own].argmax(axis=1)] for own in self._members], axis=1)
        measured = np.array([model.score for model in models])
        self.best = [int(own[measured[own].argmax()]) for own in self._members]
        draws = np.arange(len(drawn))[:, None]
        judged = left_out[draws, self._winners].mean(axis=0)
        self.luck = np.maximum(scores[self.best] - judged, 0.0)
        self.corrected = scores[self.best] - self.luck
        at_best = drawn[:, self.best]
        self._errors = widened * (at_best[:, :, None] - at_best[:, None, :]).std(axis=0, ddof=1)

    def chosen(self, corrected: Array) -> int:
        """The simplest method that is not clearly worse than the best."""
        first = int(np.argmax(corrected))
        behind = corrected[first] - corrected
        near = [
            each for each in range(len(corrected)) if behind[each] <= TIED_ERRORS * self._errors[first, each]
        ]
        near.append(first)

        def order(each: int) -> tuple[int, float, float]:
            model = self._models[self.best[each]]
            return model.simplicity, model.cost, -float(corrected[each])

        return min(near, key=order)

    def picked(self, draw: int) -> int:
        """The model that would have been chosen if there were only the rows of this draw."""
        winners = self._winners[draw]
        return int(winners[self.chosen(self._drawn[draw, winners] - self.luck)])

    def tied_with(self, own: int) -> dict[str, tuple[float, float]]:
        found = {}
        for other in range(len(self.names)):
            difference, error = float(self.corrected[other] - self.corrected[own]), self._errors[own, other]
            if other != own and abs(difference) <= CLEAR_ERRORS * error:
                found[self.names[other]] = difference, float(error)
        return found
