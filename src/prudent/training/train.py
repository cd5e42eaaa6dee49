"""From a request to ranked models in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.cloud.catalog import Catalog
from prudent.cloud.leases.register import Register
from prudent.core.errors import RunFailed, unknown
from prudent.core.ledger import Entry as Charge
from prudent.core.money import Price
from prudent.training.algorithms.domains import FUNCTION, domain
from prudent.training.engine import Engine, Session
from prudent.training.events import ClusterReady, Watch
from prudent.training.functions import FunctionSession
from prudent.training.leaderboard import Entry, Failure, Leaderboard, standing
from prudent.training.methods import Plan, plans
from prudent.training.output import Output
from prudent.training.request import TrainingRequest
from prudent.training.resources import (
    LOCAL,
    machines_for,
    paid_before,
    parallelism_of,
    price_of,
    run_name,
)
from prudent.training.search import LEFT_FOR_MORE_DATA, Search
from prudent.training.seekers import GIVEN, Seeker, seeker
from prudent.training.terms import Terms

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark import SparkCluster

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
    watch: Watch | None = None,
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
    asked = TrainingRequest.parse(request)
    if asked.machines is not None:
        from prudent.training.joint.train import train_jointly

        places: dict[str, Any] = {"master": master, "cluster": cluster, "where": where, "home": home}
        return train_jointly(asked, engine, out, **places, resume=resume, watch=watch)
    leases = None if home is None else Path(home)
    machines = machines_for(asked, engine, master, cluster, where, Path(out), leases)
    chosen = engine_of(engine, master, machines, watch)
    output = Output(out, asked, chosen.name, resume)
    earlier_usd = 0.0
    if machines is not None:
        run = run_name(output.folder)
        earlier_usd = paid_before(output.work, Register(leases), machines.provider, run)
    return _ranked(asked, chosen, output, machines, earlier_usd, began_s, watch)


def _ranked(
    asked: TrainingRequest,
    engine: Engine,
    output: Output,
    machines: SparkCluster | None,
    earlier_usd: float,
    began_s: float,
    watch: Watch | None,
) -> Leaderboard:
    """Open the data, search, put the models in their places, and write the leaderboard."""
    parallelism = asked.parallelism or (cores() if machines is None else parallelism_of(machines))
    with ExitStack() as stack:
        session = stack.enter_context(_opened(asked, engine, output, parallelism))
        race = _Race(asked, session, output, parallelism, began_s, watch, stack, machines, earlier_usd)
        entries, failures, spent_usd, ended = race.run()
        described = {**session.description, "fingerprint": session.shape.fingerprint}
        placed = output.place(entries, described)
    spent_usd = spent_usd if machines is None else max(spent_usd, earlier_usd + machines.cost_usd())
    output.tidy()
    board = Leaderboard(
        placed,
        tuple(failures),
        asked.domain,
        race.metric,
        engine.name,
        str(output.folder),
        time.monotonic() - began_s,
        spent_usd,
        ended,
    )
    output.write(board)
    return board


def engine_of(
    engine: str | Engine,
    master: str | None = None,
    machines: SparkCluster | None = None,
    watch: Watch | None = None,
) -> Engine:
    """The engine of that name, imported when it is first used."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    module, name = ENGINES[engine]
    try:
        kind: Any = getattr(import_module(module), name)
        spark = {"master": master, "cluster": machines, "ready": _announcing(watch, time.monotonic())}
        built: Engine = kind(**spark) if engine == "spark" else kind()
    except ImportError as error:
        extra = "spark" if engine == "spark" else "train"
        raise RunFailed(
            f'The engine "{engine}" lacks {error.name}; install it with: pip install "prudent[{extra}]".'
        ) from error
    return built


def _announcing(watch: Watch | None, began_s: float) -> Callable[[SparkCluster], None]:
    def ready(cluster: SparkCluster) -> None:
        if watch is not None:
            took_s = time.monotonic() - began_s
            watch(ClusterReady(cluster.text, cluster.provider.name, cluster.master, cluster.ui, took_s))

    return ready


def cores() -> int:
    """The processors that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trial_price(request: TrainingRequest, parallelism: int) -> Price:
    """What an hour of a trial costs: the machine's price, shared by the trials that run on it at once.

    The machine is the request's own, or the first that its computational resources name, or the smallest
    general one with a processor for each trial.
    """
    catalog = Catalog.load()
    resources = request.computational_resources
    named = [found.ec2_instance for found in resources.instances] if resources else []
    name = request.machine or next((type_ for type_ in named if type_ in catalog), None)
    roomy = [machine for machine in catalog.machines("m5") if machine.vcpus >= parallelism]
    machine = catalog[name] if name else (roomy or list(catalog.machines("m5"))[-1:])[0]
    rate = machine.price.usd_per_h / parallelism
    # The machine is rented for the request: its billing minimum is not due for every trial.
    return Price(rate, machine.price.date, f"{machine.price.source} {machine.name} / {parallelism}")


def _opened(request: TrainingRequest, engine: Engine, output: Output, parallelism: int) -> Session:
    try:
        return _session(request, engine, output, parallelism)
    except BaseException:
        output.undo()
        raise


def _session(request: TrainingRequest, engine: Engine, output: Output, parallelism: int) -> Session:
    if domain(request.domain).task == FUNCTION:
        return FunctionSession()
    output.engine_work.mkdir(parents=True, exist_ok=True)
    return engine.open(request, output.engine_work, parallelism)


class _Race:
    """The search of one request, made of what the request says and the session knows."""

    def __init__(
        self,
        request: TrainingRequest,
        session: Session,
        output: Output,
        parallelism: int,
        began_s: float,
        watch: Watch | None,
        stack: ExitStack,
        machines: SparkCluster | None = None,
        earlier_usd: float = 0.0,
    ) -> None:
        self._request, self._session, self._output = request, session, output
        self._earlier_usd = earlier_usd
        self._stack, self._watch = stack, watch
        self.metric = request.metric or domain(request.domain).metric_for(session.shape.classes)
        self._price = trial_price(request, parallelism)
        if machines is not None and not request.machine:
            self._price = price_of(machines, parallelism)
        elapsed_s = time.monotonic() - began_s
        self._terms = Terms.of(request, self._price, parallelism, elapsed_s, self.metric)
        if machines is not None and self._terms.price_of_all_usd is not None:
            # Machines cost while they boot: that is gone before the first trial.
            left_usd = max(self._terms.price_of_all_usd - machines.cost_usd(), 0.0)
            self._terms = replace(self._terms, price_of_all_usd=left_usd)

    def run(self) -> tuple[list[Entry], list[Failure], float, str]:
        """Models best first, failures, money spent, and why it ended."""
        asked = plans(self._request, self._session.shape)
        again = (
            [replace(plan, index=len(asked) + plan.index, search=GIVEN, enough=10**9) for plan in asked]
            if asked[0].fraction is not None
            else []
        )
        every = [*asked, *again]
        put_by = LEFT_FOR_MORE_DATA if again else 0.0
        terms = replace(self._terms, methods=len(every), put_by=put_by)
        seekers = [self._seeker(plan) for plan in every]
        search = Search(
            every, seekers, self._session, self._request, self._output.trials, terms, self._watch, len(again)
        )
        idle_usd = self._earlier_usd - search.ledger.spent_usd
        if idle_usd > 0:
            # Machines of earlier sessions cost more than their trials: they booted, and waited.
            search.ledger.restore(Charge("machines of earlier sessions", idle_usd, 0.0, self._price))
        search.run()
        return sorted(search.entries, key=standing), search.failures, search.ledger.spent_usd, search.ended

    def _seeker(self, plan: Plan) -> Seeker:
        journal = self._output.journal(plan.index, plan.algorithm.name)
        request, price = self._request, self._terms.price
        found = seeker(
            plan, request.seed, request.fingerprint(), journal, True, price, self._terms.training_s
        )
        self._stack.callback(found.close)
        return found
