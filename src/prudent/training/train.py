"""Training: from a request to ranked models in a folder, within its budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import BudgetGuard
from prudent.core.errors import BadInput, PrudentError, RunFailed, unknown
from prudent.core.units import format_money
from prudent.training.algorithms.algorithm import FUNCTION, domain
from prudent.training.engines.engine import Engine, SavedSession, TrainingSession
from prudent.training.engines.functions import FunctionSession
from prudent.training.leaderboard import (
    ClusterReady,
    EventCallback,
    Leaderboard,
    LeaderboardEntry,
    SpendingUpdated,
    TrialFailure,
    rank_key,
)
from prudent.training.models.output import OutputFolder
from prudent.training.request.request import TrainingRequest
from prudent.training.request.resources import (
    LOCAL,
    RentedMachines,
    available_cores,
    check_payable,
    cluster_for_request,
    cluster_trial_price,
    lease_run_name,
    paid_before,
    parallelism_of,
    trial_price,
)
from prudent.training.search.accounting import (
    CostAccounting,
    MeterAccounting,
    PriceAccounting,
    TrialHeartbeats,
)
from prudent.training.search.methods import MethodPlan, method_plans
from prudent.training.search.proposers import ENQUEUED, Proposer, proposer_for
from prudent.training.search.search import LEFT_FOR_MORE_DATA, TrainingSearch
from prudent.training.search.stopping import SearchLimits

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark_cluster import SparkCluster

ENGINES = {
    "local": ("prudent.training.engines.local.engine", "LocalEngine"),
    "spark": ("prudent.training.engines.spark.engine", "SparkEngine"),
}


def train(
    request: TrainingRequest | Mapping[str, Any] | str | Path,
    engine: str | Engine = "local",
    out: str | Path = "models/",
    *,
    master: str | None = None,
    cluster: str | None = None,
    where: str | Mapping[str, Any] = LOCAL,
    home: str | Path | None = None,
    resume: bool = False,
    watch: EventCallback | None = None,
) -> Leaderboard:
    """Train what a request asks for, and rank it.

    `request` is a mapping, a JSON text or the path of a JSON document. The models are put into `out`, each in
    a folder named by rank, algorithm and score, beside `leaderboard.json` and `leaderboard.csv`. `master` is
    the address of a Spark cluster. With the Spark engine, machines are rented for the request if it has
    computational resources or if `cluster` says so ("3*m5.large"), at the place `where` ("local",
    "hosts:inventory.yaml" or "ec2:aws.yaml"), under leases kept in `home`. `resume` goes on with an
    interrupted request in the same folder, or with a finished one that has got a larger budget; no trial is
    paid twice. A request that leaves its machines open ("machines") is trained on those that the search
    proposes, at that place too. `watch` is called with every event. An interrupt (Ctrl-C) ends the trials
    under way and answers with what is there.
    """
    began_s = time.monotonic()
    parsed = TrainingRequest.parse(request)
    if parsed.machines is not None:
        from prudent.training.joint.train import train_jointly

        places: dict[str, Any] = {"master": master, "cluster": cluster, "where": where, "home": home}
        return train_jointly(parsed, engine, out, **places, resume=resume, watch=watch)
    leases = None if home is None else Path(home)
    machines = cluster_for_request(parsed, engine, master, cluster, where, Path(out), leases)
    chosen = engine_of(engine, master, machines, watch)
    output = OutputFolder(out, parsed, chosen.name, resume)
    if machines is not None:
        meter = machines.meter
        meter.allowed_usd = math.inf if parsed.budget.usd is None else parsed.budget.usd
        run = lease_run_name(output.folder)
        meter.earlier_usd = paid_before(output.work, LeaseRegister(leases), machines.provider, run)
    return run_training(parsed, chosen, output, machines, began_s, watch)


def engine_of(
    engine: str | Engine,
    master: str | None = None,
    machines: SparkCluster | None = None,
    watch: EventCallback | None = None,
) -> Engine:
    """The engine of that name, imported when it is first used."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    module, name = ENGINES[engine]
    try:
        kind: Any = getattr(import_module(module), name)
        spark = {"master": master, "cluster": machines, "ready": _ready_callback(watch, time.monotonic())}
        built: Engine = kind(**spark) if engine == "spark" else kind()
    except ImportError as error:
        extra = "spark" if engine == "spark" else "train"
        raise RunFailed(
            f'The engine "{engine}" lacks {error.name}; install it with: pip install "prudent[{extra}]".'
        ) from error
    return built


def _ready_callback(watch: EventCallback | None, began_s: float) -> Callable[[SparkCluster], None]:
    def ready(cluster: SparkCluster) -> None:
        if watch is not None:
            took_s = time.monotonic() - began_s
            watch(ClusterReady(cluster.text, cluster.provider.name, cluster.master, cluster.ui, took_s))

    return ready


def run_training(
    request: TrainingRequest,
    engine: Engine,
    output: OutputFolder,
    machines: RentedMachines | None = None,
    began_s: float | None = None,
    watch: EventCallback | None = None,
) -> Leaderboard:
    """Search, put the models into their folders, and write the leaderboard.

    The budget of a request on rented `machines` covers all they cost, from their order to their end; they are
    given back before the models are ranked.
    """
    began_s = time.monotonic() if began_s is None else began_s
    run = TrainingRun(request, engine, output, machines, began_s, watch)
    trouble: PrudentError | None = None
    try:
        run.run()
    except PrudentError as error:
        if run.outcome is None:
            raise
        trouble = error  # machines that would not end: raised once the models that were paid for are safe
    finally:
        run.report_spending()
    assert run.outcome is not None
    outcome = run.outcome
    placed = output.place(outcome.entries, outcome.data_description)
    output.tidy()
    board = Leaderboard(
        placed,
        tuple(outcome.failures),
        request.domain,
        outcome.metric,
        engine.name,
        str(output.folder),
        time.monotonic() - began_s,
        run.spent_usd,
        outcome.ended,
        budget_usd=request.budget.usd,
        interrupted_usd=outcome.interrupted_usd,
    )
    output.write(board)
    if trouble is not None:
        raise trouble
    return board


@dataclass(frozen=True)
class SearchOutcome:
    """What a search gave: models best first, why it ended, and what is known of the data."""

    entries: Sequence[LeaderboardEntry]
    failures: Sequence[TrialFailure]
    ended: str
    metric: str
    data_description: Mapping[str, Any]
    interrupted_usd: float = 0.0


class TrainingRun:
    """The search of one request: data and machines made ready, trials, and the machines given back."""

    def __init__(
        self,
        request: TrainingRequest,
        engine: Engine,
        output: OutputFolder,
        machines: RentedMachines | None,
        began_s: float,
        watch: EventCallback | None,
    ) -> None:
        self._request, self._engine, self._output = request, engine, output
        self._machines, self._began_s = machines, began_s
        self._watch = watch or (lambda event: None)
        self._parallelism = request.parallelism or (
            available_cores() if machines is None else parallelism_of(machines)
        )
        self._price = (
            trial_price(request, self._parallelism)
            if machines is None
            else cluster_trial_price(machines, self._parallelism)
        )
        self._accounting: CostAccounting = PriceAccounting(self._price, request.budget.usd, self._parallelism)
        self.outcome: SearchOutcome | None = None

    @property
    def spent_usd(self) -> float:
        """What was paid so far, in all sessions."""
        return self._accounting.spent_usd if self._machines is None else self._machines.meter.spent_usd()

    def report_spending(self) -> None:
        self._watch(SpendingUpdated(self.spent_usd))

    def run(self) -> None:
        """Fill `outcome`; whatever goes wrong, no machine is left."""
        with ExitStack() as stack:
            guard: BudgetGuard | None = None
            if self._machines is not None:
                guard = stack.enter_context(BudgetGuard(self._machines.meter, self._machines.abort))
                self._accounting = MeterAccounting(self._machines.meter, lambda: guard.acted)
            try:
                session = stack.enter_context(self._open_session())
            except Exception:
                if guard is None or not guard.acted:
                    self._undo()
                    raise
                self.outcome = self._nothing_trained()
                return
            except BaseException:
                self._undo()
                raise
            self.outcome = self._search(session, stack)

    def _undo(self) -> None:
        """Remove what was written, unless machines were paid for: a resumed request counts their cost."""
        if self._machines is None or self._machines.meter.spent_usd() == 0:
            self._output.undo()

    def _open_session(self) -> TrainingSession:
        request, output = self._request, self._output
        if self._machines is not None:
            try:
                check_payable(self._machines)
            except BadInput:
                if not self._data_file.exists():
                    raise
                # The models of earlier sessions are ranked; that needs no machines.
                self._accounting = MeterAccounting(self._machines.meter, lambda: True)
                return SavedSession(self._data_file)
        if domain(request.domain).task == FUNCTION:
            return FunctionSession()
        output.engine_work.mkdir(parents=True, exist_ok=True)
        return self._engine.open(request, output.engine_work, self._parallelism)

    @property
    def _data_file(self) -> Path:
        """Where a session on rented machines keeps what it found out about the data."""
        return self._output.work / "data.json"

    def _nothing_trained(self) -> SearchOutcome:
        """The outcome when the money was gone before the machines, or the data on them, were ready."""
        ended = (
            f"the budget of {format_money(self._request.budget.usd or 0.0)} was spent before its machines "
            "were ready (raise it, or take fewer or smaller ones)"
        )
        return SearchOutcome((), (), ended, self._metric(0), {})

    def _metric(self, classes: int) -> str:
        return self._request.metric or domain(self._request.domain).metric_for(classes)

    def _search(self, session: TrainingSession, stack: ExitStack) -> SearchOutcome:
        request, metric = self._request, self._metric(session.shape.classes)
        elapsed_s = time.monotonic() - self._began_s
        ending_s = 0.0 if self._machines is None else self._machines.meter.ending_s
        limits = SearchLimits.of(request, self._price, self._parallelism, elapsed_s, metric, ending_s)
        if self._machines is not None:
            SavedSession.write(self._data_file, session)
        plans = method_plans(request, session.shape)
        more_data_plans = (
            [
                replace(plan, index=len(plans) + plan.index, search=ENQUEUED, default_trials=10**9)
                for plan in plans
            ]
            if plans[0].fraction is not None
            else []
        )
        all_plans = [*plans, *more_data_plans]
        reserved_share = LEFT_FOR_MORE_DATA if more_data_plans else 0.0
        training_s = limits.training_s(self._accounting.left_usd)
        search = TrainingSearch(
            all_plans,
            [self._proposer(plan, training_s, stack) for plan in all_plans],
            session,
            request,
            self._output.trials,
            replace(limits, methods=len(all_plans), reserved_share=reserved_share),
            self._accounting,
            TrialHeartbeats(self._output.work / "alive.json"),
            self._watch,
            len(more_data_plans),
        )
        search.run()
        data_description = {**session.description, "fingerprint": session.shape.fingerprint}
        results, lost_usd = search.results, search.interrupted_usd
        ranked = sorted(results.entries, key=rank_key)
        return SearchOutcome(ranked, results.failures, search.ended, metric, data_description, lost_usd)

    def _proposer(self, plan: MethodPlan, training_s: float, stack: ExitStack) -> Proposer:
        request, journal = self._request, self._output.journal(plan.index, plan.algorithm.name)
        proposer = proposer_for(
            plan, request.seed, request.fingerprint(), journal, True, self._price, training_s
        )
        stack.callback(proposer.close)
        return proposer
