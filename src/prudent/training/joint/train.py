"""A request that leaves its machines open: they are searched together with all else, within the budget.

The search is a study of `prudent.tuning`, with its strategies, ledger and journal. A trial trains one model
on a share of the data, on a Spark cluster of the type and count that the strategy proposes; it costs what
these machines cost, their boot included. What comes out is what any request gives.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.cloud.leases.register import Register
from prudent.cloud.machine_parameter import MachineParameter
from prudent.cloud.meter import BudgetGuard, Meter
from prudent.cloud.providers.provider import Provider
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import BadInput
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.units import format_money
from prudent.training.algorithms.algorithm import domain
from prudent.training.engines.engine import DataShape, TrainingSession
from prudent.training.joint.board import Story
from prudent.training.joint.cluster import OnSpark, Site
from prudent.training.joint.job import JointJob
from prudent.training.joint.space import MACHINES, JointSpace
from prudent.training.leaderboard import ClusterReady, EventCallback, Leaderboard, SpendingUpdated, rank_key
from prudent.training.models.output import CLUSTER, OutputFolder
from prudent.training.request.errors import BadRequest, RequestError
from prudent.training.request.request import FRUGAL, TrainingRequest
from prudent.training.request.resources import SPARK, provider_catalog, paid_before, parse_where, lease_run_name
from prudent.training.search.methods import MULTI_FIDELITY, method_plans, strategy_name
from prudent.training.search.preview import preview
from prudent.tuning.tune import tune

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark_cluster import SparkCluster

FRACTIONS = (0.1, 0.3, 1.0)
"""Shares of the data that are tried where a search begins on parts and nobody says which."""
DEFAULT, ON_WHOLE = "nephele", ("fabolas", "fabulinus")
"""The search of a request that names none; and those that learn on parts what all of the data would give."""
GOAL = "maximise score"
ANY_CLASSES = 3
"""Algorithms for so many tell any number apart; a trial of another one may be paid for nothing."""


def train_jointly(
    request: TrainingRequest,
    engine: object,
    out: str | Path,
    *,
    master: str | None = None,
    cluster: str | None = None,
    where: str | Mapping[str, Any],
    home: str | Path | None = None,
    resume: bool = False,
    watch: EventCallback | None = None,
) -> Leaderboard:
    """Train and rank what a request asks for, on machines that are searched with it; see `train`."""
    began_s = time.monotonic()
    refuse(request, engine, master, cluster)
    register = Register(None if home is None else Path(home))
    provider = provider_of(parse_where(where) if isinstance(where, str) else where, register.home, Path.cwd())
    space = joint_space(request, provider)
    output = OutputFolder(out, request, SPARK, resume)
    try:
        return _Joint(request, provider, register, space, output, watch, began_s).run()
    except BadInput:
        if not any(output.trials.iterdir()):
            output.undo()
        raise


def joint_space(request: TrainingRequest, provider: Provider) -> JointSpace:
    """All that a request leaves open, with the machines that a place has."""
    assert request.machines is not None
    try:
        machines = MachineParameter(
            MACHINES, request.machines.types, request.machines.count, provider_catalog(provider)
        )
    except BadInput as error:
        raise BadRequest([RequestError("machines.types", str(error))]) from error
    return JointSpace(method_plans(request, _shape(request)), machines, fractions_of(request))


def _shape(request: TrainingRequest) -> DataShape | None:
    """What is said of data that only the machines will read: they may have any number of classes."""
    return DataShape(0, 0, ANY_CLASSES, "") if request.domain == "classification" else None


def fractions_of(request: TrainingRequest) -> tuple[float, ...]:
    """The shares of the data that may be used: the request's own, or what suits its search."""
    return request.fractions or (FRACTIONS if strategy_of(request) in MULTI_FIDELITY else (1.0,))


def strategy_of(request: TrainingRequest) -> str:
    """The strategy that works the search."""
    found = strategy_name(request)
    return DEFAULT if found == FRUGAL and len(request.fractions or FRACTIONS) > 1 else _whole(found)


def _whole(found: str) -> str:
    return "lynceus" if found == FRUGAL else found


def goal_of(request: TrainingRequest) -> str:
    """What the search is after; a search that foretells from parts speaks of all the data."""
    return request.goal or GOAL + (" at full data" if strategy_of(request) in ON_WHOLE else "")


def refuse(
    request: TrainingRequest, engine: object, master: str | None = None, cluster: str | None = None
) -> None:
    """Say what does not go with machines that are left open, before anything is written or rented."""
    if engine != SPARK:
        raise BadInput(
            'The request leaves its machines open ("machines"), and on rented ones runs Spark; add '
            "--engine spark."
        )
    if master is not None or cluster is not None:
        raise BadInput(
            'The request leaves its machines open ("machines"); leave --master and --cluster out, or take '
            '"machines" out of the request.'
        )
    if request.budget.usd is None:
        wrong = 'Machines that are left open cost money as they are tried; give an amount such as "$2".'
        raise BadRequest([RequestError("budget", wrong)])


class _Joint:
    """One request from its study to its leaderboard."""

    def __init__(
        self,
        request: TrainingRequest,
        provider: Provider,
        register: Register,
        space: JointSpace,
        output: OutputFolder,
        watch: EventCallback | None,
        began_s: float,
    ) -> None:
        self._request, self._output, self._began_s = request, output, began_s
        self._provider, self._space = provider, space
        self._watch = watch or (lambda event: None)
        self._described: dict[str, Any] = {}
        self._story = Story(space, output.trials, self._metric, self._watch, self._left_s)
        run = lease_run_name(output.folder)
        logs = output.folder / CLUSTER
        meter = Meter(request.budget.usd, paid_before(output.work, register, provider, run))
        opening = OnSpark(
            request, provider, register, run, output.engine_work, logs, meter, self._ready, self._opened
        )
        self._site = Site(opening, meter)
        self._job = JointJob(request, space, provider, self._site, output.trials, self._story.left_s)

    def run(self) -> Leaderboard:
        request, output, story = self._request, self._output, self._story
        self._check_payable()
        try:
            with BudgetGuard(self._site.meter, self._site.end):
                result = tune(
                    self._job,
                    goal_of(request),
                    request.budget.usd,
                    strategy_of(request),
                    early_stop=request.early_stopping is not False,
                    seed=request.seed,
                    journal=output.work / "joint.jsonl",
                    resume=True,
                    watch=story.watch,
                    max_trials=request.budget.trials,
                )
        finally:
            self._watch(SpendingUpdated(self._site.meter.spent_usd()))
        story.complete(result.trials)
        ranked = sorted(story.entries, key=rank_key)
        placed = output.place(ranked, self._data()) if ranked else ()
        output.tidy()
        board = Leaderboard(
            placed,
            tuple(story.failures),
            request.domain,
            ranked[0].metric if ranked else self._metric(),
            SPARK,
            str(output.folder),
            time.monotonic() - self._began_s,
            result.spent_usd,
            story.ended(result, request.budget.trials),
            story.recommended(result),
            request.budget.usd,
            result.interrupted_usd,
        )
        output.write(board)
        return board

    # Money and time

    def _check_payable(self) -> None:
        """BadInput if the budget pays for no machine; a request that goes on may only have to rank."""
        meter, machines = self._site.meter, self._request.machines
        assert machines is not None
        prices = [self._provider.offer(name).price for name in self._space.types]
        least_usd = min(meter.least_usd(price, min(machines.count)) for price in prices)
        if meter.earlier_usd == 0 and meter.left_usd + ROUNDING_USD < least_usd:
            raise BadInput(
                f"The cheapest of the machines cost {format_money(least_usd)} at least, and the budget is "
                f"{format_money(meter.allowed_usd)}; raise it, or name smaller types."
            )

    def _left_s(self, elapsed_s: float) -> float:
        """Seconds that a trial may take, when `elapsed_s` of all sessions have passed."""
        budget, deadline = self._request.budget, self._request.deadline
        left_s = math.inf if budget.time_s is None else budget.time_s - elapsed_s
        if deadline is not None:
            here_s = time.monotonic() - self._began_s
            left_s = min(left_s, deadline.left_s(datetime.now(UTC), here_s))
        return left_s

    # Machines

    def _ready(self, cluster: SparkCluster, took_s: float) -> None:
        self._watch(ClusterReady(cluster.text, cluster.provider.name, cluster.master, cluster.ui, took_s))

    # Data

    def _opened(self, session: TrainingSession) -> None:
        """What every session finds the same is kept: a request that only goes on to rank needs no machine."""
        self._described = {**session.description, "fingerprint": session.shape.fingerprint}
        self._note.write_text(json.dumps(self._described, default=lambda value: value.tolist()))

    def _data(self) -> Mapping[str, Any]:
        if not self._described:
            self._described = json.loads(self._note.read_text())
        return self._described

    @property
    def _note(self) -> Path:
        return self._output.work / "data.json"

    def _metric(self) -> str:
        asked = self._request
        classes = len(self._data()["classes"]) if self._described or self._note.exists() else 0
        return asked.metric or domain(asked.domain).metric_for(classes)


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
        preview(request, SPARK).limits,
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
    place = parse_where(where) if isinstance(where, str) else where
    return provider_of(place, Register(home).home, Path.cwd())
