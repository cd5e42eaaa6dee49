"""Thinking ahead: what a run is worth together with the runs it makes worth while.

For every candidate x: reward R = EIc(x) and bill C = E[bill(x)]; with look-ahead left, for each
Gauss-Hermite node of the belief at x: pretend it came out so, pay for it, choose the best follow-up x' and
add its reward and bill with weight γ · w. The candidate with the best R / C is run.
All paths of one depth are conditioned together, so a level costs O(paths x candidates).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.acquisition import expected_bill, expected_improvement, hermite_nodes
from prudent.tuning.strategies.beliefs import Belief

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

BREADTH = 512
"""At most so many candidates are followed into the future; beyond, the best of the first glance."""


@dataclass(frozen=True, eq=False)
class Outlook:
    """What the goal makes of beliefs at m candidates.

    Objective values are losses in the belief's own scale (log cost, or a measure with its sign); `is_cost`
    says that the objective is the logarithm of the cost. cost_mean, cost_std: the belief of the log cost.
    bound: the largest objective value that keeps the constraints on the objective itself (time, cost);
    floor: the least it can be (billing minimum); others: probability that everything else holds.
    cap: log of the most a run is allowed to cost before it is cut, without regard to the best run.
    """

    is_cost: bool
    cost_mean: Array
    cost_std: Array
    bound: Array
    floor: Array
    others: Array
    cap: Array
    cut_at_best: bool

    def reward(self, mean: Array, std: Array, best: Array | float) -> Array:
        """Expected improvement that keeps every constraint, for beliefs (…, m) and a best loss (…, 1)."""
        gain = expected_improvement(mean, std, best, self.bound)
        if self.is_cost and np.isfinite(self.floor).any():
            gain = gain - expected_improvement(mean, std, np.minimum(best, self.floor))
            gain = np.where(self.floor >= best, 0.0, np.maximum(gain, 0.0))
        return gain * self.others

    def bill(self, mean: Array, std: Array, best: Array | float, money_left: Array | float) -> Array:
        """Expected dollars for a run; (mean, std) is the objective's belief, the cost's if that is it."""
        cap = np.minimum(self.cap, np.log(np.maximum(money_left, 1e-12)))
        if self.cut_at_best:
            cap = np.minimum(cap, best)
        if not self.is_cost:
            mean, std = self.cost_mean, self.cost_std
        paid = expected_bill(mean, std, cap)
        return np.maximum(paid, np.exp(np.maximum(self.floor, -60.0)))

    def affordable(self, mean: Array, std: Array, money_left: Array | float, confidence_z: float) -> Mask:
        """Candidates whose bill the money left pays with the confidence wanted."""
        if not self.is_cost:
            mean, std = self.cost_mean, self.cost_std
        upper = np.minimum(mean + confidence_z * std, self.cap)
        return np.asarray(upper <= np.log(np.maximum(money_left, 1e-12)))


@dataclass(frozen=True)
class Choice:
    """The candidate to run, its reward with the future's, and what it is expected to cost by itself."""

    index: int
    reward: float
    bill_usd: float


@dataclass(frozen=True)
class Foresight:
    """How far and how finely to look."""

    depth: int
    nodes: int
    gamma: float
    confidence_z: float


def choose(
    outlook: Outlook, belief: Belief, allowed: Mask, best: float, money_left: float, sight: Foresight
) -> Choice | None:
    """The candidate with the best reward per dollar, looking ahead by `sight`; None if none is allowed."""
    mean, std = belief.mean, belief.std
    reward = outlook.reward(mean, std, best)
    bill = outlook.bill(mean, std, best, money_left)
    ratio = np.where(allowed, reward / bill, -1.0)
    if not allowed.any():
        return None
    firsts = np.flatnonzero(allowed)
    if sight.depth == 0:
        index = int(ratio.argmax())
        return Choice(index, float(reward[index]), float(bill[index]))
    if len(firsts) > BREADTH:
        firsts = np.sort(np.argpartition(-ratio, BREADTH)[:BREADTH])
    total, spent = _future(outlook, belief, allowed, firsts, best, money_left, sight)
    score = (reward[firsts] + total) / (bill[firsts] + spent)
    place = int(score.argmax())
    index = int(firsts[place])
    return Choice(index, float(reward[index] + total[place]), float(bill[index]))


def _future(
    outlook: Outlook,
    belief: Belief,
    allowed: Mask,
    firsts: NDArray[np.int64],
    best: float,
    money_left: float,
    sight: Foresight,
) -> tuple[Array, Array]:
    """Discounted reward and bill of what follows each of `firsts` (f,), level by level."""
    nodes, weights = hermite_nodes(sight.nodes)
    paths = firsts[:, None]
    values = np.empty((len(firsts), 0))
    mean, std = belief.mean[firsts], belief.std[firsts]
    bests, money = np.full(len(firsts), best), np.full(len(firsts), money_left)
    share = np.ones(len(firsts))
    owner = np.arange(len(firsts))
    reward, bill = np.zeros(len(firsts)), np.zeros(len(firsts))
    for _ in range(sight.depth):
        # every path so far, once per node of the belief at its last step
        count = len(nodes)
        paths, values = np.repeat(paths, count, axis=0), np.repeat(values, count, axis=0)
        outcomes = (mean[:, None] + std[:, None] * nodes).reshape(-1)
        values = np.column_stack([values, outcomes])
        share, owner = (share[:, None] * weights).reshape(-1), np.repeat(owner, count)
        bests, money = np.repeat(bests, count), np.repeat(money, count)
        last = paths[:, -1]
        money = money - _paid(outlook, outcomes, last, bests)
        bests = np.where(outcomes <= outlook.bound[last], np.minimum(bests, outcomes), bests)
        step = _follow_up(outlook, belief, allowed, paths, values, bests, money, sight)
        share = share * step.possible * sight.gamma
        np.add.at(reward, owner, share * step.reward)
        np.add.at(bill, owner, share * step.bill)
        paths = np.column_stack([paths, step.index])
        mean, std = step.mean, step.std
    return reward, bill


@dataclass(frozen=True, eq=False)
class _Step:
    """The best follow-up of each path (k,)."""

    index: NDArray[np.int64]
    possible: Array
    reward: Array
    bill: Array
    mean: Array
    std: Array


def _follow_up(
    outlook: Outlook,
    belief: Belief,
    allowed: Mask,
    paths: NDArray[np.int64],
    values: Array,
    bests: Array,
    money: Array,
    sight: Foresight,
) -> _Step:
    rows = np.arange(len(paths))
    mean, std = belief.given(paths, values)
    reward = outlook.reward(mean, std, bests[:, None])
    free = outlook.affordable(mean, std, money[:, None], sight.confidence_z) & allowed
    free[rows[:, None], paths] = False
    worth = np.where(free, reward, -1.0)
    index = worth.argmax(axis=1)
    possible = free[rows, index].astype(np.float64)
    bill = outlook.bill(mean, std, bests[:, None], money[:, None])[rows, index]
    return _Step(index, possible, reward[rows, index], bill, mean[rows, index], std[rows, index])


def _paid(outlook: Outlook, outcomes: Array, last: NDArray[np.int64], bests: Array) -> Array:
    """Dollars that a pretended outcome takes from the money left."""
    log_cost = outcomes if outlook.is_cost else outlook.cost_mean[last]
    cap = outlook.cap[last]
    if outlook.cut_at_best:
        cap = np.minimum(cap, bests)
    return np.exp(np.minimum(np.minimum(log_cost, cap), math.log(1e300)))
