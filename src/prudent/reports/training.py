"""The report of a training request: the best model in practice, the ranking, what it took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.parameters import is_number
from prudent.reports import evaluation, formatting, page
from prudent.reports import training_charts as charts
from prudent.reports.figure import Figure
from prudent.reports.insight import InsightSection, insight_section
from prudent.training.algorithms.algorithm import LESS_IS_BETTER, score_of
from prudent.training.engines.engine import ModelFacts
from prudent.training.engines.figures import TEST, judged_figures
from prudent.training.engines.predictions import TEST_FILE, Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.insight.insight import ModelInsight
from prudent.training.leaderboard import Leaderboard, LeaderboardEntry, TrialFailure
from prudent.training.models.description import ModelDescription, read_description, read_facts

REPORT_FILE = "report.html"
FIRST_ROWS, MOST_ROWS = 20, 300
"""How many models the ranking shows at once, and at all."""
_MOST_ALGORITHMS = 16
_FEWEST, _CLEAR = 3, 8  # models to draw a parameter by, and to say what it did


def write_training_report(board: Leaderboard, folder: Path) -> Path:
    """Write `report.html`, a self-contained page, into a request's folder; answers where it is.

    The leaderboard says what was found; the best model's folder says what it does (`facts.json`) and how it
    came about (`model.json`). A folder that was moved away since leaves these parts out.
    """
    return page.write(training_report(board), Path(folder) / REPORT_FILE)


def training_report(board: Leaderboard) -> str:
    """The page itself, as text."""
    board = formatting.counted_models(board)
    facts, description = _best_model(board)
    facts = _with_test(board, facts, description)
    shown = _practice(facts, description)
    metric = board.entries[0].metric if board.entries else board.metric
    insight = _insight(board, metric, description)
    effects = tuple(_effects(board, metric))
    quality, progress = charts.quality(board.entries, metric), charts.progress(board.entries, metric)
    small = [figure for effect in effects for parameter in effect.parameters for figure in [parameter.figure]]
    figures = [
        figure
        for figure in (*shown.figures, *insight.figures, quality, progress, *small)
        if figure is not None
    ]
    return page.render(
        "training.html.j2",
        figures,
        title=_title(board, description),
        board=board,
        best=board.best,
        metric=metric,
        metric_name=charts.metric_name(metric),
        lower=metric in LESS_IS_BETTER,
        facts=facts,
        description=description,
        practice=shown,
        insight=insight,
        comparison=_comparison(board),
        quality=quality,
        progress=progress,
        effects=effects,
        algorithms=_algorithms(board),
        names=_columns(board),
        failures=_failures(board),
        first=FIRST_ROWS,
        most=MOST_ROWS,
        beyond=charts.beyond(board.entries, metric),
        transforms=_transforms,
        rate=_rate,
        call=_call(board),
        guessing=guessing_note(board),
        expected=expectation(board),
        beside=[note for note in (board.no_clear_leader, board.unfinished) if note],
    )


# The best model


@dataclass(frozen=True)
class Evaluation:
    """What the best model did on rows it had not seen; what its engine did not draw is None."""

    confusion: evaluation.Confusion | None = None
    residuals: evaluation.Residuals | None = None
    silhouette: evaluation.Silhouette | None = None
    charts: tuple[Figure, ...] = ()
    importance: Figure | None = None
    curve: Figure | None = None
    stopped: str = ""

    @property
    def figures(self) -> tuple[Figure | None, ...]:
        return (*self.charts, self.importance, self.curve)

    @property
    def anything(self) -> bool:
        return self.confusion is not None or any(self.figures)


def _best_model(board: Leaderboard) -> tuple[ModelFacts | None, ModelDescription | None]:
    if board.best is None:
        return None, None
    folder = Path(board.best.model_path)
    facts, description = None, None
    try:
        facts = read_facts(folder)
        description = read_description(folder)
    except BadInput:
        pass  # the page says what the leaderboard knows
    return facts, description


def guessing_note(board: Leaderboard) -> str:
    """A warning where the best model is no better than guessing; nothing where it is, or cannot be judged."""
    if board.best is not None and board.best.interval is not None:
        return board.guessing
    facts, _ = _best_model(board)
    return "" if facts is None else evaluation.no_better_than_guessing(facts.picture)


def expectation(board: Leaderboard) -> str:
    """Where the best model's score comes from, how certain it is, and on how many rows it was trained."""
    best = board.best
    if best is None or best.interval is None:
        return ""
    low, high = sorted(score_of(best.metric, bound) for bound in best.interval)
    said = [
        f"On new rows expect {charts.metric_name(best.metric)} {best.value:.4g}; with 95 % certainty it is "
        f"between {low:.4g} and {high:.4g}."
    ]
    measured = None if best.validation_score is None else score_of(best.metric, best.validation_score)
    tested = None if best.test_score is None else score_of(best.metric, best.test_score)
    said += (
        [] if measured is None else [f"Measured by validation: {measured:.4g}, of which a part may be luck."]
    )
    said += [] if tested is None else [f"On the test part: {tested:.4g}."]
    if best.rows_trained:
        rows = f"{best.rows_trained:,} rows"
        said.append(
            f"It was trained on all {rows} after that." if best.refitted else f"It was trained on {rows}."
        )
    return " ".join(said)


def _with_test(
    board: Leaderboard, facts: ModelFacts | None, description: ModelDescription | None
) -> ModelFacts | None:
    """What is drawn is of the test part where there is one: no choice was made by these rows."""
    if board.best is None or facts is None or description is None:
        return facts
    said, classes = Predictions.read(Path(board.best.model_path), TEST_FILE), description.classes
    if said is None or said.actual is None:
        return facts
    scorer = Scorer.of(board.domain, facts.metric, len(classes))
    return replace(facts, picture={**facts.picture, **judged_figures(scorer, said, classes, TEST)})


def _practice(facts: ModelFacts | None, description: ModelDescription | None) -> Evaluation:
    if facts is None:
        return Evaluation()
    picture, of = facts.picture, str(facts.picture.get("of", ""))
    classes = description.classes if description else ()
    target = description.target if description else None
    confused = evaluation.confusion(picture["confusion"], classes, of) if "confusion" in picture else None
    left = evaluation.residuals(picture["residuals"], target, of) if "residuals" in picture else None
    clusters = evaluation.silhouette(picture["silhouette"]) if "silhouette" in picture else None
    drawn: list[Figure] = []
    if left is not None:
        drawn += [charts.predictions(left), charts.residuals(left)]
    if clusters is not None:
        drawn.append(charts.silhouettes(clusters))
    stopped = picture.get("stopped")
    return Evaluation(
        confused,
        left,
        clusters,
        tuple(drawn),
        charts.importance(picture["importance"]) if "importance" in picture else None,
        charts.curve(picture["curve"], facts.metric, stopped) if "curve" in picture else None,
        str((stopped or {}).get("why") or ""),
    )


def _insight(board: Leaderboard, metric: str, description: ModelDescription | None) -> InsightSection:
    found = None if board.best is None else ModelInsight.read(Path(board.best.model_path))
    return insight_section(found, metric, description.target if description else None)


def _title(board: Leaderboard, description: ModelDescription | None) -> str:
    path = str((description.request if description else {}).get("path", ""))
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return f"Training on {name}" if name else f"Training for {board.domain}"


def _comparison(board: Leaderboard) -> str:
    """The best beside the best of another algorithm, in a sentence."""
    best = board.best
    if best is None:
        return ""
    other = next((entry for entry in board.entries if entry.algorithm != best.algorithm), None)
    if other is None:
        models = len(board.entries)
        return f"It is the best of {models} models by this algorithm." if models > 1 else ""
    name = charts.metric_name(best.metric)
    value = f"{name} {other.value:.4g}"
    return f"The best of another algorithm is {other.algorithm} with {value}, rank {other.rank}."


def _rate(predict_ms: float) -> str:
    """Rows a second, roughly.

    >>> _rate(0.002), _rate(40.0)
    ('500,000', '25')
    """
    if predict_ms <= 0:
        return "–"
    rows = 1000 / predict_ms
    digits = max(math.floor(math.log10(rows)) - 1, 0)
    return f"{round(rows, -digits):,.0f}" if rows >= 1 else f"{rows:.2g}"


# The parameters


@dataclass(frozen=True)
class ParameterInfluence:
    """What one parameter did, in words and as a figure."""

    name: str
    says: str
    figure: Figure


@dataclass(frozen=True)
class AlgorithmEffects:
    """The parameters of one algorithm that took more than one value."""

    algorithm: str
    models: int
    parameters: tuple[ParameterInfluence, ...]


def _effects(board: Leaderboard, metric: str) -> Iterator[AlgorithmEffects]:
    kinds = list(dict.fromkeys(entry.algorithm for entry in board.entries))[:_MOST_ALGORITHMS]
    for place, kind in enumerate(kinds):
        own = [entry for entry in board.entries if entry.algorithm == kind]
        if len(own) < _FEWEST:
            continue
        span = [entry.value for entry in charts.thinned(own)]
        found = [
            ParameterInfluence(
                name,
                _says(name, own),
                charts.parameter(name, _with(own, name), own[0], metric, span, f"effect-{place}-{number}"),
            )
            for number, name in enumerate(_varied(own))
        ]
        if found:
            yield AlgorithmEffects(kind, len(own), tuple(found))


def _with(entries: Sequence[LeaderboardEntry], name: str) -> list[LeaderboardEntry]:
    return [entry for entry in entries if name in entry.hyperparameters]


def _varied(entries: Sequence[LeaderboardEntry]) -> list[str]:
    names = dict.fromkeys(name for entry in entries for name in entry.hyperparameters)
    return [
        name
        for name in names
        if len({formatting.value(entry.hyperparameters[name]) for entry in _with(entries, name)}) > 1
    ]


def _says(name: str, entries: Sequence[LeaderboardEntry]) -> str:
    """Which way a parameter helps, if the models tell; a correlation of ranks beyond what chance makes."""
    from scipy.stats import rankdata

    own = _with(entries, name)
    values, scores = [entry.hyperparameters[name] for entry in own], [entry.score for entry in own]
    if len(own) < _CLEAR:
        return "too few models to tell"
    if not all(is_number(value) for value in values):
        groups: dict[str, list[float]] = {}
        for value, rank in zip(values, rankdata(scores), strict=True):
            groups.setdefault(formatting.value(value), []).append(float(rank))
        means = {word: sum(ranks) / len(ranks) for word, ranks in groups.items() if len(ranks) >= 3}
        if len(means) < 2:
            return "too few models to tell"
        first, second = sorted(means.values(), reverse=True)[:2]
        best = max(means, key=lambda word: means[word])
        beyond = len(own) / math.sqrt(3 * len(groups[best]))  # about two standard errors of a mean rank
        return f"mostly better with {best}" if first - second > beyond else "no clear effect"
    a, b = rankdata(values), rankdata(scores)
    spread = math.sqrt(float(a.var() * b.var()))
    rho = float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread else 0.0
    if abs(rho) < 2 / math.sqrt(len(own) - 1):
        return "no clear effect"
    return f"mostly better when {'larger' if rho > 0 else 'smaller'}"


# The ranking, time and money


@dataclass(frozen=True)
class AlgorithmRow:
    """What an algorithm came to, and what it took."""

    algorithm: str
    best: LeaderboardEntry | None
    models: int
    failed: int
    train_s: float
    cost_usd: float


def _algorithms(board: Leaderboard) -> list[AlgorithmRow]:
    everyone: list[LeaderboardEntry | TrialFailure] = [*board.entries, *board.failures]
    kinds = dict.fromkeys(each.algorithm for each in everyone)
    rows = []
    for kind in kinds:
        own = [entry for entry in board.entries if entry.algorithm == kind]
        lost = [failure for failure in board.failures if failure.algorithm == kind]
        cost = math.fsum(each.cost_usd for each in everyone if each.algorithm == kind)
        rows.append(
            AlgorithmRow(
                kind, own[0] if own else None, len(own), len(lost), math.fsum(e.train_s for e in own), cost
            )
        )
    return rows


def _columns(board: Leaderboard) -> list[str]:
    """The hyper-parameters of a ranking by one algorithm, as columns; of several, none: they differ."""
    if len({entry.algorithm for entry in board.entries}) != 1:
        return []
    names = list(dict.fromkeys(name for entry in board.entries for name in entry.hyperparameters))
    return names if len(names) <= 5 else []


def _failures(board: Leaderboard) -> list[tuple[str, str, int, str]]:
    """Algorithm, reason, how often, and the settings of the first, most frequent first."""
    counted = Counter((failure.algorithm, failure.why) for failure in board.failures)
    first: dict[tuple[str, str], str] = {}
    for failure in board.failures:
        first.setdefault((failure.algorithm, failure.why), formatting.sentence(failure.hyperparameters))
    return [(kind, why, count, first[kind, why]) for (kind, why), count in counted.most_common(50)]


def _transforms(said: Mapping[str, Any]) -> str:
    """The steps before the model, in a line.

    >>> _transforms({"scale": {"method": "standard"}, "pca": {"k": 5}})
    'scale (method standard), pca (k 5)'
    """
    shown = []
    for name, settings in said.items():
        inside = (
            formatting.sentence(settings) if isinstance(settings, Mapping) else formatting.value(settings)
        )
        shown.append(f"{name} ({inside})" if inside else name)
    return ", ".join(shown)


def _call(board: Leaderboard) -> str:
    if board.best is None:
        return ""
    place = board.best.model_path
    return (
        f"model = prudent.load({place!r})\nmodel.predict(rows)  # dicts, lists, an array or a data frame\n\n"
        f"$ prudent predict {place} NEW.csv --out predictions.csv"
    )
