"""Looking ahead: what a run is worth together with the runs that follow from it.

For every candidate x: reward R = EIc(x) and bill C = E[bill(x)]; with look-ahead left, for each
Gauss-Hermite node of the belief at x: pretend it came out so, pay for it, choose the best follow-up x' and
add its reward and bill with weight γ · w. The candidate with the best R / C is run. Constraints on other
measures have nodes of their own (Nephele: N cost and M accuracy nodes), and their beliefs learn too.
All paths of one depth are conditioned together, so a level costs O(paths x candidates).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.strategies.acquisition import (
    expected_bill,
    expected_improvement,
    expected_saving,
    hermite_nodes,
    normal_cdf,
)
from prudent.tuning.strategies.beliefs import Belief

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

BREADTH = 512
"""Look-ahead considers this many candidates, the best without it: a level costs O(breadth²)."""
MOST_PATHS = 16_384
"""So many paths are looked at together: each has a number for every candidate."""
NO_FLOOR = -60.0
"""Log dollars that stand for no billing minimum: finite, so that it can be mixed with those that have one."""


@dataclass(frozen=True, eq=False)
class Acquisition:
    """What the goal makes of beliefs at m candidates.

    Objective values are losses in the belief's own scale (log cost, or a measure with its sign); `is_cost`
    says that the objective is the logarithm of the cost. cost_mean, cost_std: the belief of the log cost.
    bound: the largest objective value that keeps the constraints on the objective itself (time, cost);
    floor: the least it can be (billing minimum); others: probability that everything else holds, except
    the constraints on measures, whose margins (at least 0 where they hold) have beliefs of their own.
    cap: log of the cost at which a run is cut, whatever the best run costs.
    beside, least: dollars that a bill has beside the run's own time (boot), and the smallest bill.
    """

    is_cost: bool
    cost_mean: Array
    cost_std: Array
    bound: Array
    floor: Array
    others: Array
    cap: Array
    cut_at_best: bool
    margins: tuple[Belief, ...] = ()
    beside: Array | float = 0.0
    least: Array | float = 0.0

    def narrowed(self, indices: NDArray[np.int64]) -> Acquisition:
        """The same at some of the candidates only."""
        arrays = ("cost_mean", "cost_std", "bound", "floor", "others", "cap")
        parts = {name: getattr(self, name)[indices] for name in arrays}
        for name in ("beside", "least"):
            parts[name] = np.broadcast_to(getattr(self, name), self.cost_mean.shape)[indices]
        return replace(self, **parts, margins=tuple(margin.narrowed(indices) for margin in self.margins))

    @property
    def holds(self) -> Array:
        """The probability that all but the bounds on the objective hold, as things stand (m,)."""
        return self.others * probability_kept([(margin.mean, margin.std) for margin in self.margins])

    def reward(self, mean: Array, std: Array, best: Array | float, holds: Array | None = None) -> Array:
        """Expected improvement that keeps every constraint, for beliefs (…, m) and a best loss (…, 1).

        `holds` is the probability that the rest holds, where it differs from how things stand.
        """
        gain = expected_improvement(mean, std, best, self.bound)
        if self.is_cost and np.isfinite(self.floor).any():
            floor = np.maximum(self.floor, NO_FLOOR)
            gain = gain - expected_improvement(mean, std, np.minimum(best, floor))
            gain = np.where(self.floor >= best, 0.0, np.maximum(gain, 0.0))
        return gain * (self.holds if holds is None else holds)

    def saving_usd(self, mean: Array, std: Array, best: Array | float) -> Array:
        """Dollars by which a run of a candidate is expected to be cheaper than the best one so far."""
        return expected_saving(mean, std, best, self.bound, self.floor) * self.holds

    def bill(self, mean: Array, std: Array, best: Array | float, money_left: Array | float) -> Array:
        """Expected dollars for a run; mean and std are the belief of the objective, which may be the cost."""
        cap = np.minimum(self.cap, np.log(np.maximum(money_left - self.beside, 1e-12)))
        if self.cut_at_best:
            cap = np.minimum(cap, best)
        if not self.is_cost:
            mean, std = self.cost_mean, self.cost_std
        paid = expected_bill(mean, std, cap) + self.beside
        return np.maximum(np.maximum(paid, np.exp(np.maximum(self.floor, NO_FLOOR))), self.least)

    def affordable(self, mean: Array, std: Array, money_left: Array | float, confidence_z: float) -> Mask:
        """Candidates whose bill the money left pays with the confidence wanted."""
        if not self.is_cost:
            mean, std = self.cost_mean, self.cost_std
        upper = np.minimum(mean + confidence_z * std, self.cap)
        return np.asarray(upper <= np.log(np.maximum(money_left - self.beside, 1e-12)))

    def paid(self, outcomes: Array, last: NDArray[np.int64], bests: Array) -> Array:
        """Dollars that a pretended outcome takes from the money left."""
        log_cost = outcomes if self.is_cost else self.cost_mean[last]
        cap = self.cap[last]
        if self.cut_at_best:
            cap = np.minimum(cap, bests)
        own = np.exp(np.minimum(np.minimum(log_cost, cap), math.log(1e300)))
        beside, least = (np.broadcast_to(usd, self.cap.shape)[last] for usd in (self.beside, self.least))
        return np.asarray(np.maximum(own + beside, least))

    def possible(self, outcomes: Array) -> Array:
        """1 where an outcome may be pretended, 0 where it cannot come about and its path is dropped."""
        return np.ones_like(outcomes)


def probability_kept(margins: Sequence[tuple[Array, Array]]) -> Array | float:
    """The probability that every margin, believed N(mean, std²), is at least 0."""
    chance: Array | float = 1.0
    for mean, std in margins:
        chance = chance * normal_cdf(mean / std)
    return chance


@dataclass(frozen=True)
class ScoredCandidate:
    """The candidate to run, its reward with that of the runs to follow, and its own expected cost."""

    index: int
    reward: float
    bill_usd: float


@dataclass(frozen=True)
class LookaheadSettings:
    """How far and how finely to look."""

    depth: int
    nodes: int
    gamma: float
    confidence_z: float
    margin_nodes: int = 1

    @property
    def points(self) -> tuple[Array, Array, Array]:
        """Nodes of the objective and of the margins, and the weight of each pair: (N · M,) each.

        Several margins share their nodes: they are taken to come out well or badly together.
        """
        nodes, weights = hermite_nodes(self.nodes)
        shifts, shares = hermite_nodes(self.margin_nodes)
        pairs = np.repeat(nodes, len(shifts)), np.tile(shifts, len(nodes))
        return *pairs, np.outer(weights, shares).reshape(-1)


def choose(
    acquisition: Acquisition,
    belief: Belief,
    allowed: Mask,
    best: float,
    money_left: float,
    settings: LookaheadSettings,
) -> ScoredCandidate | None:
    """The candidate with the best reward per dollar, looking ahead by `settings`; None if none is allowed."""
    mean, std = belief.mean, belief.std
    reward = acquisition.reward(mean, std, best)
    bill = acquisition.bill(mean, std, best, money_left)
    ratio = np.where(allowed, reward / bill, -1.0)
    if not allowed.any():
        return None
    if settings.depth == 0:
        index = int(ratio.argmax())
        return ScoredCandidate(index, float(reward[index]), float(bill[index]))
    if len(ratio) > BREADTH:
        near = np.sort(np.argpartition(-ratio, BREADTH)[:BREADTH])
        choice = choose(
            acquisition.narrowed(near), belief.narrowed(near), allowed[near], best, money_left, settings
        )
        return None if choice is None else replace(choice, index=int(near[choice.index]))
    firsts = np.flatnonzero(allowed)
    total, spent = _futures(acquisition, belief, allowed, firsts, best, money_left, settings)
    score = (reward[firsts] + total) / (bill[firsts] + spent)
    place = int(score.argmax())
    index = int(firsts[place])
    return ScoredCandidate(index, float(reward[index] + total[place]), float(bill[index]))


def explore(
    acquisition: Acquisition, belief: Belief, allowed: Mask, best: float, money_left: float
) -> ScoredCandidate:
    """The candidate of which least is known, per dollar: for when the model sees no hope anywhere.

    Then the model is wrong, or the goal cannot be reached; only other runs can tell which.
    """
    bill = acquisition.bill(belief.mean, belief.std, best, money_left)
    index = int(np.where(allowed, (belief.std + acquisition.cost_std) / bill, -1.0).argmax())
    return ScoredCandidate(index, 0.0, float(bill[index]))


def _futures(
    acquisition: Acquisition,
    belief: Belief,
    allowed: Mask,
    firsts: NDArray[np.int64],
    best: float,
    money_left: float,
    settings: LookaheadSettings,
) -> tuple[Array, Array]:
    """The same as `_future`, a few of `firsts` at a time where they would fill the memory together."""
    leaves = (settings.nodes * settings.margin_nodes) ** settings.depth
    parts = np.array_split(firsts, max(1, -(-len(firsts) * leaves // MOST_PATHS)))
    told = [_future(acquisition, belief, allowed, part, best, money_left, settings) for part in parts]
    reward, bill = zip(*told, strict=True)
    return np.concatenate(reward), np.concatenate(bill)


def _future(
    acquisition: Acquisition,
    belief: Belief,
    allowed: Mask,
    firsts: NDArray[np.int64],
    best: float,
    money_left: float,
    settings: LookaheadSettings,
) -> tuple[Array, Array]:
    """Discounted reward and bill of what follows each of `firsts` (f,), level by level."""
    nodes, shifts, weights = settings.points
    count = len(nodes)
    trail = _FantasyPaths.start(acquisition, belief, firsts, best, money_left)
    owner = np.arange(len(firsts))
    reward, bill = np.zeros(len(firsts)), np.zeros(len(firsts))
    for _ in range(settings.depth):
        # every path so far, once per node of the belief at its last step
        trail = trail.branch(acquisition, nodes, shifts, weights)
        owner = np.repeat(owner, count)
        step = _follow_up(acquisition, belief, allowed, trail, settings)
        share = trail.share * step.possible * settings.gamma
        np.add.at(reward, owner, share * step.reward)
        np.add.at(bill, owner, share * step.bill)
        trail = trail.extend(share, step)
    return reward, bill


@dataclass(frozen=True, eq=False)
class _FollowUps:
    """The best follow-up of each path (k,); margins: mean and std of each at it."""

    index: NDArray[np.int64]
    possible: Array
    reward: Array
    bill: Array
    mean: Array
    std: Array
    margins: list[tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class _FantasyPaths:
    """Paths of pretended samples, k of them so far h long.

    paths (k, h + 1) ends with the step not yet played; values (k, h) of the objective, and of each margin;
    mean, std (k,) of the belief at the last step, and of each margin there; best loss, money left, weight.
    """

    paths: NDArray[np.int64]
    values: Array
    margin_values: list[Array]
    mean: Array
    std: Array
    margins: list[tuple[Array, Array]]
    bests: Array
    money: Array
    share: Array

    @classmethod
    def start(
        cls,
        acquisition: Acquisition,
        belief: Belief,
        firsts: NDArray[np.int64],
        best: float,
        money_left: float,
    ) -> _FantasyPaths:
        size = len(firsts)
        return cls(
            firsts[:, None],
            np.empty((size, 0)),
            [np.empty((size, 0)) for _ in acquisition.margins],
            belief.mean[firsts],
            belief.std[firsts],
            [(margin.mean[firsts], margin.std[firsts]) for margin in acquisition.margins],
            np.full(size, best),
            np.full(size, money_left),
            np.ones(size),
        )

    def branch(self, acquisition: Acquisition, nodes: Array, shifts: Array, weights: Array) -> _FantasyPaths:
        """Play the last step of every path, once for each node (pair); k becomes k · nodes."""
        count = len(nodes)
        paths, last = np.repeat(self.paths, count, axis=0), np.repeat(self.paths[:, -1], count)
        outcomes = (self.mean[:, None] + self.std[:, None] * nodes).reshape(-1)
        margins = [(mean[:, None] + std[:, None] * shifts).reshape(-1) for mean, std in self.margins]
        bests = np.repeat(self.bests, count)
        money = np.repeat(self.money, count) - acquisition.paid(outcomes, last, bests)
        holds = outcomes <= acquisition.bound[last]
        for margin in margins:
            holds &= margin >= 0
        return _FantasyPaths(
            paths,
            np.column_stack([np.repeat(self.values, count, axis=0), outcomes]),
            [
                np.column_stack([np.repeat(values, count, axis=0), margin])
                for values, margin in zip(self.margin_values, margins, strict=True)
            ],
            outcomes,
            np.zeros_like(outcomes),
            [(margin, np.zeros_like(margin)) for margin in margins],
            np.where(holds, np.minimum(bests, outcomes), bests),
            money,
            (self.share[:, None] * weights).reshape(-1) * acquisition.possible(outcomes),
        )

    def extend(self, share: Array, step: _FollowUps) -> _FantasyPaths:
        """The same paths with their follow-ups, not yet played."""
        paths = np.column_stack([self.paths, step.index])
        return replace(self, paths=paths, mean=step.mean, std=step.std, margins=step.margins, share=share)


def _follow_up(
    acquisition: Acquisition, belief: Belief, allowed: Mask, trail: _FantasyPaths, settings: LookaheadSettings
) -> _FollowUps:
    rows, bests, money = np.arange(len(trail.paths)), trail.bests[:, None], trail.money[:, None]
    mean, std = belief.given(trail.paths, trail.values)
    margins = [
        margin.given(trail.paths, values)
        for margin, values in zip(acquisition.margins, trail.margin_values, strict=True)
    ]
    reward = acquisition.reward(mean, std, bests, acquisition.others * probability_kept(margins))
    free = acquisition.affordable(mean, std, money, settings.confidence_z) & allowed
    free[rows[:, None], trail.paths] = False
    worth = np.where(free, reward, -1.0)
    index = worth.argmax(axis=1)
    return _FollowUps(
        index,
        free[rows, index].astype(np.float64),
        reward[rows, index],
        acquisition.bill(mean, std, bests, money)[rows, index],
        mean[rows, index],
        std[rows, index],
        [(here[rows, index], spread[rows, index]) for here, spread in margins],
    )
