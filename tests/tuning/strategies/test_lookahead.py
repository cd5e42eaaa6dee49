"""Look-ahead against the algorithm written out plainly: one path after the other, one candidate at a time.

path(x, h): R = EIc(x), C = E[bill(x)]; if h > 0, for each node (c_j, w_j) of the belief at x: pretend it came
out so, pay for it, take the follow-up with the best EIc, and add γ w_j path(x', h - 1).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from prudent.tuning.strategies import lookahead
from prudent.tuning.strategies.lookahead import (
    Acquisition,
    LookaheadSettings,
    choose,
    explore,
    probability_kept,
)

COUNT = 7


def cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def pdf(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


@dataclass(frozen=True, eq=False)
class Joint:
    """A Gaussian belief whose conditioning is a line of algebra."""

    mean: Any
    cov: Any
    noise: float = 0.02

    @property
    def std(self) -> Any:
        return np.sqrt(np.diag(self.cov))

    def after(self, path: Any, values: Any) -> tuple[Any, Any]:
        path = list(path)
        inside = self.cov[np.ix_(path, path)] + self.noise * np.eye(len(path))
        gain = np.linalg.solve(inside, self.cov[path]).T
        left = self.cov - gain @ self.cov[path]
        return self.mean + gain @ (np.asarray(values) - self.mean[path]), np.sqrt(np.diag(left))

    def given(self, indices: Any, values: Any) -> tuple[Any, Any]:
        rows = [self.after(path, value) for path, value in zip(indices, values, strict=True)]
        return np.stack([mean for mean, _ in rows]), np.stack([std for _, std in rows])

    def narrowed(self, indices: Any) -> Joint:
        return Joint(self.mean[indices], self.cov[np.ix_(indices, indices)], self.noise)


def joint(seed: int, centre: float, spread: float) -> Joint:
    rng = np.random.default_rng(seed)
    places = rng.random(COUNT)
    cov = spread**2 * np.exp(-8 * (places[:, None] - places) ** 2) + 1e-3 * np.eye(COUNT)
    return Joint(centre + spread * rng.standard_normal(COUNT), cov)


class Plain:
    """The same as `choose`, by recursion over one path at a time."""

    def __init__(
        self, acquisition: Acquisition, belief: Joint, allowed: Any, sight: LookaheadSettings
    ) -> None:
        self.o, self.belief, self.allowed, self.sight = acquisition, belief, allowed, sight
        nodes, weights = np.polynomial.hermite_e.hermegauss(sight.nodes)
        shifts, shares = np.polynomial.hermite_e.hermegauss(sight.margin_nodes)
        both = itertools.product(
            zip(nodes, weights / weights.sum(), strict=True), zip(shifts, shares / shares.sum(), strict=True)
        )
        self.pairs = [(node, shift, w * share) for (node, w), (shift, share) in both]

    def improvement(self, mean: float, std: float, best: float, bound: float) -> float:
        z = (min(best, bound) - mean) / std
        return max((best - mean) * cdf(z) + std * pdf(z), 0.0)

    def reward(self, i: int, mean: float, std: float, best: float, holds: float) -> float:
        gain = self.improvement(mean, std, best, self.o.bound[i])
        floor = self.o.floor[i]
        if self.o.is_cost and floor > -math.inf:
            if floor >= best:
                return 0.0
            gain = max(gain - self.improvement(mean, std, min(best, floor), math.inf), 0.0)
        return gain * holds

    def bill(self, i: int, mean: float, std: float, best: float, money: float) -> float:
        beside, least = (float(np.broadcast_to(v, COUNT)[i]) for v in (self.o.beside, self.o.least))
        cap = min(self.o.cap[i], math.log(max(money - beside, 1e-12)))
        if self.o.cut_at_best:
            cap = min(cap, best)
        if not self.o.is_cost:
            mean, std = self.o.cost_mean[i], self.o.cost_std[i]
        # E[min(e^Y, e^cap)], taken numerically
        z = np.linspace(-9, 9, 4001)
        weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
        own = float((weight * np.exp(np.minimum(mean + std * z, cap))).sum())
        return max(own + beside, math.exp(max(self.o.floor[i], -60)), least)

    def can_pay(self, i: int, mean: float, std: float, money: float) -> bool:
        if not self.o.is_cost:
            mean, std = self.o.cost_mean[i], self.o.cost_std[i]
        beside = float(np.broadcast_to(self.o.beside, COUNT)[i])
        upper = min(mean + self.sight.confidence_z * std, self.o.cap[i])
        return upper <= math.log(max(money - beside, 1e-12))

    def path(
        self, i: int, depth: int, samples: list[tuple[int, float, list[float]]], best: float, money: float
    ) -> tuple[float, float]:
        mean, std, margins = self.at(samples)
        holds = self.o.others[i] * math.prod(cdf(m[i] / s[i]) for m, s in margins)
        reward = self.reward(i, mean[i], std[i], best, holds)
        bill = self.bill(i, mean[i], std[i], best, money)
        if depth == 0:
            return reward, bill
        for node, shift, weight in self.pairs:
            value = mean[i] + std[i] * node
            slack = [m[i] + s[i] * shift for m, s in margins]
            cost = value if self.o.is_cost else self.o.cost_mean[i]
            cap = min(self.o.cap[i], best) if self.o.cut_at_best else self.o.cap[i]
            beside, least = (float(np.broadcast_to(v, COUNT)[i]) for v in (self.o.beside, self.o.least))
            left = money - max(math.exp(min(cost, cap)) + beside, least)
            is_kept = value <= self.o.bound[i] and all(one >= 0 for one in slack)
            now = min(best, value) if is_kept else best
            told = [*samples, (i, value, slack)]
            follow = self.follow_up(told, now, left)
            if follow is not None:
                more, cost = self.path(follow, depth - 1, told, now, left)
                reward += self.sight.gamma * weight * more
                bill += self.sight.gamma * weight * cost
        return reward, bill

    def at(self, samples: list[tuple[int, float, list[float]]]) -> tuple[Any, Any, list[tuple[Any, Any]]]:
        if not samples:
            return self.belief.mean, self.belief.std, [(m.mean, m.std) for m in self.o.margins]
        places = [place for place, _, _ in samples]
        margins = [
            m.after(places, [slack[k] for _, _, slack in samples])  # type: ignore[attr-defined]
            for k, m in enumerate(self.o.margins)
        ]
        return *self.belief.after(places, [value for _, value, _ in samples]), margins

    def follow_up(
        self, samples: list[tuple[int, float, list[float]]], best: float, money: float
    ) -> int | None:
        mean, std, margins = self.at(samples)
        tried = {place for place, _, _ in samples}
        worth = {
            i: self.reward(
                i, mean[i], std[i], best,
                self.o.others[i] * math.prod(cdf(m[i] / s[i]) for m, s in margins),
            )
            for i in range(COUNT)
            if self.allowed[i] and i not in tried and self.can_pay(i, mean[i], std[i], money)
        }  # fmt: skip
        return max(worth, key=lambda i: worth[i]) if worth else None


INF = np.full(COUNT, math.inf)
COST = joint(1, -1.0, 0.7)
GAIN = joint(5, 0.2, 0.5)
PLAIN = Acquisition(True, COST.mean, COST.std, INF, -INF, np.ones(COUNT), INF, False)
RNG = np.random.default_rng(11)
FULL = replace(
    PLAIN,
    bound=COST.mean + 0.8 * RNG.standard_normal(COUNT),
    floor=np.where(np.arange(COUNT) % 3 == 0, COST.mean - 0.3, -math.inf),
    others=0.4 + 0.6 * RNG.random(COUNT),
    cap=COST.mean + 0.5,
    cut_at_best=True,
    margins=(joint(7, 0.3, 0.6), joint(8, 0.5, 0.4)),
    beside=0.1 * RNG.random(COUNT),
    least=0.05 + 0.3 * RNG.random(COUNT),
)
OUTLOOKS = {
    "plain": PLAIN,
    "bounded": replace(PLAIN, bound=FULL.bound, others=FULL.others),
    "floored": replace(PLAIN, floor=FULL.floor, least=0.2),
    "floored above the best": replace(PLAIN, floor=np.full(COUNT, -0.5)),
    "capped": replace(PLAIN, cap=FULL.cap),
    "cut at the best": replace(PLAIN, cut_at_best=True, beside=0.05),
    "with a margin": replace(PLAIN, margins=FULL.margins[:1]),
    "everything": FULL,
    "another measure": replace(FULL, is_cost=False, cut_at_best=False, bound=INF),
    "another measure, plainly": replace(PLAIN, is_cost=False),
}


@pytest.mark.parametrize("name", OUTLOOKS)
@pytest.mark.parametrize(
    ("depth", "money", "sight"),
    [
        (0, 3.0, LookaheadSettings(0, 3, 0.9, 0.0)),
        (1, 3.0, LookaheadSettings(1, 3, 0.9, 0.0)),
        (1, 0.7, LookaheadSettings(1, 2, 0.5, 1.0, 2)),
        (2, 1.1, LookaheadSettings(2, 2, 0.8, 0.3)),
    ],
)
def test_the_choice_is_that_of_the_algorithm(
    name: str, depth: int, money: float, sight: LookaheadSettings
) -> None:
    acquisition = OUTLOOKS[name]
    belief = COST if acquisition.is_cost else GAIN
    allowed = np.arange(COUNT) != 2
    best = -0.9 if acquisition.is_cost else 0.1
    plain = Plain(acquisition, belief, allowed, sight)
    paths = {i: plain.path(i, depth, [], best, money) for i in range(COUNT) if allowed[i]}
    found = choose(acquisition, belief, allowed, best, money, sight)
    assert found is not None
    chosen = paths[found.index]
    ratios = sorted(reward / bill for reward, bill in paths.values())
    assert chosen[0] / chosen[1] == pytest.approx(ratios[-1], rel=1e-4, abs=1e-9)
    assert found.reward == pytest.approx(chosen[0], rel=1e-4, abs=1e-9)
    mean, std = float(belief.mean[found.index]), float(belief.std[found.index])
    assert found.bill_usd == pytest.approx(plain.bill(found.index, mean, std, best, money), rel=1e-4)
    if ratios[-1] > 1.001 * ratios[-2]:
        assert found.index == max(paths, key=lambda i: paths[i][0] / paths[i][1])


@pytest.mark.parametrize("name", OUTLOOKS)
def test_reward_and_bill_are_those_of_the_algorithm_at_every_candidate(name: str) -> None:
    acquisition = OUTLOOKS[name]
    belief = COST if acquisition.is_cost else GAIN
    plain = Plain(acquisition, belief, np.ones(COUNT, bool), LookaheadSettings(0, 3, 0.9, 0.4))
    for best, money in ((-0.9, 3.0), (0.4, 0.3), (-3.0, 0.02)):
        reward = acquisition.reward(belief.mean, belief.std, best)
        bill = acquisition.bill(belief.mean, belief.std, best, money)
        free = acquisition.affordable(belief.mean, belief.std, money, 0.4)
        for i in range(COUNT):
            mean, std = float(belief.mean[i]), float(belief.std[i])
            assert reward[i] == pytest.approx(
                plain.reward(i, mean, std, best, float(acquisition.holds[i])), rel=1e-9, abs=1e-12
            )
            assert bill[i] == pytest.approx(plain.bill(i, mean, std, best, money), rel=1e-4)
            assert free[i] == plain.can_pay(i, mean, std, money)


def test_many_candidates_are_narrowed_to_the_best_at_first_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    sight, allowed = LookaheadSettings(1, 3, 0.9, 0.0), np.arange(COUNT) != 2
    monkeypatch.setattr(lookahead, "BREADTH", 4)
    found = choose(FULL, COST, allowed, -0.9, 3.0, sight)
    ratio = FULL.reward(COST.mean, COST.std, -0.9) / FULL.bill(COST.mean, COST.std, -0.9, 3.0)
    near = sorted(sorted(range(COUNT), key=lambda i: -ratio[i] if allowed[i] else 1.0)[:4])
    alone = choose(FULL.narrowed(np.array(near)), COST.narrowed(near), allowed[near], -0.9, 3.0, sight)
    assert found is not None
    assert alone is not None
    assert (found.index, found.reward) == (near[alone.index], pytest.approx(alone.reward))
    monkeypatch.setattr(lookahead, "BREADTH", COUNT)
    every = choose(FULL, COST, allowed, -0.9, 3.0, sight)
    assert every is not None
    assert every.reward >= found.reward or every.index != found.index


def test_narrowing_takes_everything_along() -> None:
    some = np.array([5, 1, 4])
    part = FULL.narrowed(some)
    for name in ("cost_mean", "cost_std", "bound", "floor", "others", "cap", "beside", "least", "holds"):
        assert np.allclose(getattr(part, name), np.broadcast_to(getattr(FULL, name), COUNT)[some]), name
    assert (PLAIN.narrowed(some).beside, PLAIN.narrowed(some).least) == (
        pytest.approx(np.zeros(3)),
        pytest.approx(np.zeros(3)),
    )


def test_nothing_allowed_is_no_choice() -> None:
    for depth in (0, 1):
        assert (
            choose(PLAIN, COST, np.zeros(COUNT, bool), 0.0, 1.0, LookaheadSettings(depth, 3, 0.9, 0.0))
            is None
        )


def test_exploring_goes_where_least_is_known_per_dollar() -> None:
    allowed = np.arange(COUNT) != 2
    for acquisition, belief in ((FULL, COST), (OUTLOOKS["another measure"], GAIN)):
        bill = acquisition.bill(belief.mean, belief.std, 0.3, 2.0)
        worth = (belief.std + acquisition.cost_std) / bill
        best = max(np.flatnonzero(allowed), key=lambda i: worth[i])
        found = explore(acquisition, belief, allowed, 0.3, 2.0)
        assert (found.index, found.reward, found.bill_usd) == (best, 0.0, pytest.approx(bill[best]))


def test_the_chance_that_all_margins_hold_is_a_product() -> None:
    one = np.array([0.5, -1.0]), np.array([1.0, 2.0])
    other = np.array([2.0, 0.1]), np.array([0.5, 0.1])
    assert probability_kept([]) == 1.0
    assert probability_kept([one, other]) == pytest.approx([cdf(0.5) * cdf(4.0), cdf(-0.5) * cdf(1.0)])


def test_the_breadth_is_what_the_documentation_says() -> None:
    assert lookahead.BREADTH == 512
