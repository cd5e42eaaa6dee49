"""Each paper's settings; docs/explanation/papers.md says what the papers leave open and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prudent.tuning.history import History
from prudent.tuning.strategies.fabulinus import Fabolas, FabolasOptions, Fabulinus, FabulinusOptions
from prudent.tuning.strategies.published.search import PublishedOptions, PublishedSearch
from prudent.tuning.trial import Configuration


@dataclass(frozen=True)
class PublishedObolOptions(PublishedOptions):
    """OBOL: 10 random trees over cost, 5 random first runs, two steps ahead, 99 % sure of paying."""

    lookahead: int = 2


class PublishedObol(PublishedSearch):
    """Otimização Bayesiana com Orçamento Limitado, and Lynceus, which adds early time-outs to it."""

    Options = PublishedObolOptions


@dataclass(frozen=True)
class PublishedCherryPickOptions(PublishedOptions):
    """CherryPick: a Gaussian process, three first runs, EIc whatever a run costs, and its own end.

    `stop_below: 0` is the protocol of the OBOL and Lynceus papers: only the budget ends it.
    """

    surrogate: Literal["trees", "gp"] = "gp"
    per_dollar: bool = False
    start_trials: int = 3
    stop_below: float = 0.1
    least_trials: int = 6


class PublishedCherryPick(PublishedSearch):
    """CherryPick, by its own rule or within a budget."""

    Options = PublishedCherryPickOptions


@dataclass(frozen=True)
class PublishedGpEicOptions(PublishedOptions):
    """Bayesian optimisation of the thesis: processes over logs of cost, 3 % of the configurations first."""

    surrogate: Literal["trees", "gp"] = "gp"
    scale: Literal["dollars", "log"] = "log"
    per_dollar: bool = False
    feasible: Literal["money", "means", "any"] = "any"
    start_share: float = 0.03


class PublishedGpEic(PublishedSearch):
    """A Gaussian process and constrained expected improvement, without anything of ours."""

    Options = PublishedGpEicOptions


@dataclass(frozen=True)
class PublishedGpEiOptions(PublishedGpEicOptions):
    """The same without constraints, in the choice and in the answer."""

    constrained: bool = False


class PublishedGpEi(PublishedSearch):
    """A Gaussian process and expected improvement."""

    Options = PublishedGpEiOptions


@dataclass(frozen=True)
class PublishedNepheleOptions(PublishedOptions):
    """Nephele: 5 trees each for cost and accuracy, a Latin start until $5 are spent, Γ by predicted means."""

    trees: int = 5
    feasible: Literal["money", "means", "any"] = "means"
    start: Literal["random", "latin"] = "latin"
    start_usd: float = 5.0


class PublishedNephele(PublishedSearch):
    """Lynceus over configurations and fractions of the data (thesis, chapter 3)."""

    Options = PublishedNepheleOptions

    @property
    def _full_only(self) -> bool:
        return self._problem.fraction is not None and self._problem.goal.speaks_of_full_data


@dataclass(frozen=True)
class PublishedFabolasOptions(FabolasOptions):
    """Fabolas: bases as in its code, a Latin start of 3 % of the configurations, each at every fraction."""

    curves: Literal["power", "paper", "code"] = "code"
    start: Literal["price", "latin", "random", "sobol"] = "latin"
    start_configurations: int = 9
    start_fractions: Literal["thrifty", "every"] = "every"


class PublishedFabolas(Fabolas):
    """Fabolas; it recommends the highest predicted accuracy, whatever it costs (thesis, chapter 7)."""

    Options = PublishedFabolasOptions

    def recommend(self, history: History) -> Configuration | None:
        if not self._told(history):
            return None
        snapshot = self._snapshot(history)
        posterior, full = snapshot.posterior, snapshot.pool.full
        value = posterior.value(posterior.objective.curve.mean[full], full)
        return dict(snapshot.pool.candidates.configurations[int(full[int(value.argmax())])])


@dataclass(frozen=True)
class PublishedFabulinusOptions(FabulinusOptions):
    """Fabulinus: ES · CEA on the tenth of the tests that is best by CEA (thesis, chapter 4)."""

    curves: Literal["power", "paper", "code"] = "code"
    start: Literal["price", "latin", "random", "sobol"] = "latin"
    start_configurations: int = 9
    start_fractions: Literal["thrifty", "every"] = "every"
    acquisition: Literal["constrained", "es"] = "es"
    beta: float = 0.1


class PublishedFabulinus(Fabulinus):
    """Fabulinus as in the thesis."""

    Options = PublishedFabulinusOptions
