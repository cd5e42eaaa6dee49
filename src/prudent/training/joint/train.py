"""A request that leaves its machines open: they are searched together with all else, within the budget.

The search is a study of `prudent.tuning`, with its strategies, ledger and journal. A trial trains one model
on a share of the data, on a Spark cluster of the type and count that the strategy proposes; it costs what
these machines cost, their boot included. What comes out is what any request gives.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.machine_parameter import MachineParameter
from prudent.cloud.meter import BudgetGuard, Meter
from prudent.cloud.providers.provider import Provider
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import BadInput
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.units import format_money
from prudent.training.algorithms.algorithm import domain
from prudent.training.engines.engine import DataShape, TrainingSession
from prudent.training.engines.saved_session import SavedSession
from prudent.training.joint.cluster import SharedCluster, SparkClusterOpener
from prudent.training.joint.job import JointJob
from prudent.training.joint.space import MACHINES, JointSpace
from prudent.training.leaderboard import ClusterReady, EventCallback, Leaderboard, SpendingUpdated
from prudent.training.models.output import CLUSTER, OutputFolder
from prudent.training.request.errors import BadRequest, RequestError
from prudent.training.request.request import FRUGAL, TrainingRequest
from prudent.training.request.resources import (
    SPARK,
    lease_run_name,
    paid_before,
    parse_where,
    provider_catalog,
)
from prudent.training.search.board import TrialBoard
from prudent.training.search.ending import SearchEnding, rented_limits
from prudent.training.search.final import FinalBoard
from prudent.training.search.methods import MULTI_FIDELITY, method_plans, strategy_name
from prudent.training.search.preview import preview
from prudent.training.search.search import INTERRUPTED, run_study
from prudent.training.search.stopping import SearchLimits, TrialTimes
from prudent.tuning.result import Result
from prudent.tuning.study.active_trials import FREE
from prudent.tuning.study.study import Study
from prudent.tuning.tune import summary

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark_cluster import SparkCluster

FRACTIONS = (0.1, 0.3, 1.0)
"""Shares of the data that are tried where a search begins on parts and nobody says which."""
DEFAULT, PREDICTS_FULL_DATA = "nephele", ("fabolas", "fabulinus")
"""The search of a request that names none, and the searches that predict scores at full data from parts."""
GOAL = "maximise score"
NO_MACHINES = "no machines were left at the end of the search; raise the budget and continue with --resume"
SPENT_SHARE = 0.95
"""From this share on a budget counts as spent."""
ANY_CLASSES = 3
"""So many classes are assumed before the data are read: algorithms for two classes only are left out."""


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
    check_joint_request(request, engine, master, cluster)
    register = LeaseRegister(None if home is None else Path(home))
    provider = provider_of(parse_where(where) if isinstance(where, str) else where, register.home, Path.cwd())
    space = joint_space(request, provider)
    output = OutputFolder(out, request, SPARK, resume)
    try:
        return _JointTraining(request, provider, register, space, output, watch, began_s).run()
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
    return JointSpace(method_plans(request, _shape(request), "spark"), machines, joint_fractions(request))


def _shape(request: TrainingRequest) -> DataShape | None:
    """The assumed shape of data that are only read on the machines: they may have any number of classes."""
    return DataShape(0, 0, ANY_CLASSES, "") if request.domain == "classification" else None


def joint_fractions(request: TrainingRequest) -> tuple[float, ...]:
    """The shares of the data that may be used: the request's own, or what suits its search."""
    return request.fractions or (FRACTIONS if joint_strategy(request) in MULTI_FIDELITY else (1.0,))


def joint_strategy(request: TrainingRequest) -> str:
    """The strategy of the search."""
    found = strategy_name(request)
    return (
        DEFAULT if found == FRUGAL and len(request.fractions or FRACTIONS) > 1 else _without_fractions(found)
    )


def _without_fractions(found: str) -> str:
    return "lynceus" if found == FRUGAL else found


def joint_goal(request: TrainingRequest) -> str:
    """The goal of the search; for a search that predicts from parts, it is the score at full data."""
    return request.goal or GOAL + (" at full data" if joint_strategy(request) in PREDICTS_FULL_DATA else "")


def check_joint_request(
    request: TrainingRequest, engine: object, master: str | None = None, cluster: str | None = None
) -> None:
    """Refuse what conflicts with open machines, before anything is written or rented."""
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


def joint_study(request: TrainingRequest, job: JointJob, journal: Path) -> Study:
    """The study that searches what a request leaves open."""
    return Study(
        job.space,
        joint_goal(request),
        job.price,
        request.budget.usd,
        joint_strategy(request),
        measures=job.measures,
        fraction=job.fraction,
        early_stop=request.early_stopping is not False,
        seed=request.seed,
        fingerprint=job.fingerprint(),
        journal=journal,
        resume=True,
    )


def joint_ending(result: Result, job: JointJob) -> str:
    """Why no further trial was started, for people."""
    if result.interrupted:
        return INTERRUPTED
    budget_usd = result.budget_usd or 0.0
    if job.stopped:
        return job.stopped
    if max(result.spent_usd, job.committed_usd) > SPENT_SHARE * budget_usd:
        return f"the budget of {format_money(budget_usd)} is spent"
    tried = len(result.trials) == job.space.size
    return "everything was tried" if tried else "nothing else was worth its money"


def _recommended(result: Result, space: JointSpace) -> dict[str, Any]:
    """The settings and machines that the search recommends, and what it predicts for them."""
    if result.recommended is None:
        return {}
    chosen = space.settings_of(result.recommended)
    return {
        "algorithm": chosen.plan.algorithm.name,
        "hyperparameters": dict(chosen.hyperparameters),
        "transforms": dict(chosen.transforms),
        "fraction": chosen.fraction,
        "machines": chosen.machines,
        "prediction": dict(result.prediction),
    }


class _JointTraining:
    """One request from its study to its leaderboard."""

    def __init__(
        self,
        request: TrainingRequest,
        provider: Provider,
        register: LeaseRegister,
        space: JointSpace,
        output: OutputFolder,
        watch: EventCallback | None,
        began_s: float,
    ) -> None:
        self._request, self._output, self._began_s = request, output, began_s
        self._provider, self._space = provider, space
        self._watch = watch or (lambda event: None)
        self._final = FinalBoard(())
        self._board = TrialBoard(space, output.trials, self._metric, self._watch)
        run = lease_run_name(output.folder)
        logs = output.folder / CLUSTER
        meter = Meter(request.budget.usd, paid_before(output.work, register, provider, run))
        open_cluster = SparkClusterOpener(
            request,
            provider,
            register,
            run,
            output.engine_work,
            logs,
            meter,
            self._report_cluster,
            self._keep_data_description,
        )
        self._shared_cluster = SharedCluster(open_cluster, meter)
        limits = SearchLimits.of(request, FREE, 1, time.monotonic() - began_s, "")
        times = TrialTimes(limits)
        self._job = JointJob(request, space, provider, self._shared_cluster, output.trials, times)

    def run(self) -> Leaderboard:
        request, output, board = self._request, self._output, self._board
        self._check_payable()
        try:
            with BudgetGuard(self._shared_cluster.meter, self._shared_cluster.end):
                study = joint_study(request, self._job, output.journal)
                interrupted = run_study(self._job, study, board, self._finish)
        finally:
            self._watch(SpendingUpdated(self._shared_cluster.meter.spent_usd()))
        result, final = summary(study, self._job.name, interrupted), self._final
        ranking = Leaderboard(
            final.entries,
            tuple(board.failures),
            request.domain,
            self._metric(),
            SPARK,
            str(output.folder),
            time.monotonic() - self._began_s,
            result.spent_usd,
            joint_ending(result, self._job),
            _recommended(result, self._space),
            request.budget.usd,
            result.interrupted_usd,
            final.warnings,
            final.guess,
            final.tied,
            final.unfinished,
        )
        return output.rank(ranking, self._data() if final.entries else {})

    def _finish(self, interrupted: bool) -> None:
        """Do what is done at the end of any search, on the machines that the last trial has left."""
        self._job.free_kept()
        if not self._board.entries:
            return
        study, session = self._job.study, None if interrupted else self._shared_cluster.session
        assert study is not None
        gone = "" if session is not None else NO_MACHINES
        limits = rented_limits(study, self._shared_cluster.meter, self._job.times, gone)
        known = session or SavedSession.read(self._output.work)
        ending = SearchEnding(self._request, known, self._output.trials, self._metric(), limits)
        if interrupted:
            self._final = ending.chosen(self._board.entries)
            return
        self._final = ending.final(self._board.entries, time.monotonic() - self._began_s)
        ending.saved(self._final).write(self._output.work)

    # Money and time

    def _check_payable(self) -> None:
        """BadInput if the budget pays for no machine; a resumed request may only have to rank."""
        meter, machines = self._shared_cluster.meter, self._request.machines
        assert machines is not None
        prices = [self._provider.offer(name).price for name in self._space.types]
        least_usd = min(meter.least_usd(price, min(machines.count)) for price in prices)
        if meter.earlier_usd == 0 and meter.left_usd + ROUNDING_USD < least_usd:
            raise BadInput(
                f"The cheapest of the machines cost {format_money(least_usd)} at least, and the budget is "
                f"{format_money(meter.allowed_usd)}; raise it, or name smaller types."
            )

    # Machines

    def _report_cluster(self, cluster: SparkCluster, took_s: float) -> None:
        self._watch(ClusterReady(cluster.text, cluster.provider.name, cluster.master, cluster.ui, took_s))

    # Data

    def _keep_data_description(self, session: TrainingSession) -> None:
        """Keep what a session knows about the data, so that a resumed request can rank without machines."""
        SavedSession.of(session).write(self._output.work)

    def _data(self) -> Mapping[str, Any]:
        known = SavedSession.read(self._output.work)
        return {**known.description, "fingerprint": known.shape.fingerprint}

    def _metric(self) -> str:
        asked, work = self._request, self._output.work
        classes = SavedSession.read(work).shape.classes if SavedSession.exists(work) else 0
        return asked.metric or domain(asked.domain).metric_for(classes)


@dataclass(frozen=True)
class JointPreview:
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


def joint_preview(
    request: TrainingRequest, engine: str, where: str | Mapping[str, Any], home: Path | None = None
) -> JointPreview:
    """What a request would do at a place; its machines are asked for their prices, and none is rented."""
    check_joint_request(request, engine)
    provider = _provider(where, home)
    space = joint_space(request, provider)
    return JointPreview(
        request.domain,
        joint_strategy(request),
        joint_goal(request),
        preview(request, SPARK).limits,
        tuple(str(parameter) for parameter in space.parameters),
        space.size,
        {name: provider.offer(name).price.usd_per_h for name in space.types},
        tuple(provider.check(space.types)),
    )


def cheapest_price(
    request: TrainingRequest, where: str | Mapping[str, Any], home: Path | None = None
) -> Price:
    """The price per hour of the cheapest machines that a request leaves open."""
    provider = _provider(where, home)
    space = joint_space(request, provider)
    least = min(request.machines.count) if request.machines else 1
    prices = [provider.offer(name).price.times(least) for name in space.types]
    return min(prices, key=lambda price: price.usd_per_h)


def _provider(where: str | Mapping[str, Any], home: Path | None) -> Provider:
    place = parse_where(where) if isinstance(where, str) else where
    return provider_of(place, LeaseRegister(home).home, Path.cwd())
