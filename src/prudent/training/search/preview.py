"""What a request would do, before anything is trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from prudent.core.units import format_duration, format_money
from prudent.training.request.request import TrainingRequest
from prudent.training.request.resources import (
    RentedMachines,
    available_cores,
    cluster_trial_price,
    parallelism_of,
    trial_price,
)
from prudent.training.search.methods import method_plans, strategy_name


@dataclass(frozen=True)
class MethodPreview:
    """One method: what is searched, how many combinations there are (None: no end), how many are tried."""

    algorithm: str
    parameters: tuple[str, ...]
    combinations: int | None
    trials: int | None


@dataclass(frozen=True)
class RequestPreview:
    """A request as it is understood. `trials` of a method is None where a budget decides."""

    domain: str
    engine: str
    search: str
    methods: tuple[MethodPreview, ...]
    limits: tuple[str, ...]
    parallelism: int
    usd_per_h: float
    """What the machine costs while it trains."""
    priced_by: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def preview(request: TrainingRequest, engine: str, machines: RentedMachines | None = None) -> RequestPreview:
    """What a request would do; the data are not read, so methods may be left out later for their classes.

    `machines` are those that would be rented for it: the price is that of as many as there may be.
    """
    if machines is None:
        parallelism = request.parallelism or available_cores()
        price = trial_price(request, parallelism)
    else:
        parallelism = request.parallelism or parallelism_of(machines)
        price = cluster_trial_price(machines, parallelism)
    limited = request.budget.given
    methods = tuple(
        MethodPreview(
            plan.algorithm.name,
            tuple(str(parameter) for parameter in plan.space.parameters),
            plan.space.size,
            None if limited else plan.default_trials,
        )
        for plan in method_plans(request, engine=engine)
    )
    return RequestPreview(
        request.domain,
        engine,
        strategy_name(request),
        methods,
        _limits(request),
        parallelism,
        price.usd_per_h * parallelism,
        price.source,
    )


def _limits(request: TrainingRequest) -> tuple[str, ...]:
    budget, deadline = request.budget, request.deadline
    said = []
    if budget.usd is not None:
        said.append(format_money(budget.usd))
    if budget.time_s is not None:
        said.append(format_duration(budget.time_s))
    if budget.trials is not None:
        said.append(f"{budget.trials} trials")
    if deadline is not None:
        moment = (
            deadline.at.isoformat() if deadline.at else f"{format_duration(deadline.after_s or 0)} from now"
        )
        said.append(f"done by {moment}")
    return tuple(said)
