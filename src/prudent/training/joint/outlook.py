"""What a request that leaves its machines open would do, before anything is rented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prudent.cloud.leases.register import Register
from prudent.cloud.providers.provider import Provider
from prudent.cloud.providers.registry import provider_of
from prudent.core.money import Price
from prudent.training.joint.train import goal_of, joint_space, refuse, strategy_of
from prudent.training.outlook import outlook
from prudent.training.request import TrainingRequest
from prudent.training.resources import SPARK, place_of


@dataclass(frozen=True)
class JointOutlook:
    """A request as it is understood; `combinations` is None where there is no end of them."""

    domain: str
    search: str
    goal: str
    limits: tuple[str, ...]
    parameters: tuple[str, ...]
    combinations: int | None
    usd_per_h: Mapping[str, float]
    """What one machine of each type costs."""
    complaints: tuple[str, ...]
    """What would go wrong with them."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def joint_outlook(
    request: TrainingRequest, engine: str, where: str | Mapping[str, Any], home: Path | None = None
) -> JointOutlook:
    """What a request would do at a place; its machines are asked for their prices, and none is rented."""
    refuse(request, engine)
    provider = _provider(where, home)
    space = joint_space(request, provider)
    return JointOutlook(
        request.domain,
        strategy_of(request),
        goal_of(request),
        outlook(request, SPARK).limits,
        tuple(str(parameter) for parameter in space.parameters),
        space.size,
        {name: provider.offer(name).price.usd_per_h for name in space.types},
        tuple(provider.check(space.types)),
    )


def cheapest(request: TrainingRequest, where: str | Mapping[str, Any], home: Path | None = None) -> Price:
    """What an hour of the cheapest machines costs that a request leaves open."""
    provider = _provider(where, home)
    space = joint_space(request, provider)
    least = min(request.machines.count) if request.machines else 1
    prices = [provider.offer(name).price.times(least) for name in space.types]
    return min(prices, key=lambda price: price.usd_per_h)


def _provider(where: str | Mapping[str, Any], home: Path | None) -> Provider:
    place = place_of(where) if isinstance(where, str) else where
    return provider_of(place, Register(home).home, Path.cwd())
