"""Training: from a request to ranked models in a folder, within its budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import BudgetGuard
from prudent.core.errors import BadInput, RunFailed, unknown
from prudent.core.units import format_money
from prudent.training.algorithms.algorithm import FUNCTION, domain
from prudent.training.engines.engine import Engine, TrainingSession
from prudent.training.engines.functions import FunctionSession
from prudent.training.engines.saved_session import SavedSession
from prudent.training.leaderboard import (
    ClusterReady,
    EventCallback,
    Leaderboard,
    SpendingUpdated,
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
from prudent.training.search.final import FinalBoard
from prudent.training.search.rented_job import MachinesInUse
from prudent.training.search.search import SearchOutcome, TrainingSearch
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
    try:
        outcome = run.run()
    finally:
        if machines is not None:
            run.report_spending()  # its last machines are gone
    final = outcome.final
    board = output.rank(
        Leaderboard(
            final.entries,
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
            warnings=final.warnings,
            guess=final.guess,
            tied=final.tied,
            unfinished=final.unfinished,
        ),
        outcome.data_description,
    )
    if outcome.trouble is not None:
        raise outcome.trouble  # machines that would not end: the models that were paid for are safe now
    return board


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
        self._spent_usd = 0.0

    @property
    def spent_usd(self) -> float:
        """What was paid so far, in all sessions."""
        return self._spent_usd if self._machines is None else self._machines.meter.spent_usd()

    def run(self) -> SearchOutcome:
        """Search; whatever goes wrong, no machine is left."""
        with ExitStack() as stack:
            use = None if self._machines is None else self._machines_in_use(self._machines, stack)
            session_stack = stack.enter_context(ExitStack())
            try:
                session, use = self._open_session(use)
                session_stack.enter_context(session)
            except Exception:
                if use is None or not use.is_gone():
                    self._undo()
                    raise
                return self._nothing_trained()
            except BaseException:
                self._undo()
                raise
            use = None if use is None else replace(use, give_back=session_stack.close)
            return self._search(session, use)

    def report_spending(self) -> None:
        self._watch(SpendingUpdated(self.spent_usd))

    def _machines_in_use(self, machines: RentedMachines, stack: ExitStack) -> MachinesInUse:
        guard = stack.enter_context(BudgetGuard(machines.meter, machines.abort))
        return MachinesInUse(machines.meter, machines.abort, lambda: guard.acted)

    def _undo(self) -> None:
        """Remove what was written, unless machines were paid for: a resumed request counts their cost."""
        if self._machines is None or self._machines.meter.spent_usd() == 0:
            self._output.undo()

    def _open_session(self, use: MachinesInUse | None) -> tuple[TrainingSession, MachinesInUse | None]:
        request, output = self._request, self._output
        if use is not None and self._machines is not None:
            try:
                check_payable(self._machines)
            except BadInput:
                if not SavedSession.exists(self._output.work):
                    raise
                # The models of earlier sessions are ranked; that needs no machines.
                return SavedSession.read(self._output.work), replace(use, is_gone=lambda: True)
        if domain(request.domain).task == FUNCTION:
            return FunctionSession(), use
        output.engine_work.mkdir(parents=True, exist_ok=True)
        return self._engine.open(request, output.engine_work, self._parallelism), use

    def _nothing_trained(self) -> SearchOutcome:
        """The outcome when the money was gone before the machines, or the data on them, were ready."""
        ended = (
            f"the budget of {format_money(self._request.budget.usd or 0.0)} was spent before its machines "
            "were ready (raise it, or take fewer or smaller ones)"
        )
        return SearchOutcome(FinalBoard(()), (), ended, self._metric(0), {})

    def _metric(self, classes: int) -> str:
        return self._request.metric or domain(self._request.domain).metric_for(classes)

    def _search(self, session: TrainingSession, use: MachinesInUse | None) -> SearchOutcome:
        elapsed_s = time.monotonic() - self._began_s
        ending_s = 0.0 if use is None else use.meter.ending_s
        metric = self._metric(session.shape.classes)
        limits = SearchLimits.of(self._request, self._price, self._parallelism, elapsed_s, metric, ending_s)
        if use is not None:  # so that a resumed request can rank without machines
            SavedSession.of(session).write(self._output.work)
        outcome = TrainingSearch(self._request, session, self._output, limits, self._watch, use).run()
        self._spent_usd = outcome.spent_usd
        return outcome
