"""From a request to ranked models in a folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.cloud.leases.register import Register
from prudent.core.errors import RunFailed, unknown
from prudent.training.engine import Engine
from prudent.training.events import ClusterReady, Watch
from prudent.training.leaderboard import Leaderboard
from prudent.training.output import Output
from prudent.training.race import carry_out
from prudent.training.request import TrainingRequest
from prudent.training.resources import LOCAL, machines_for, paid_before, run_name

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
    if machines is not None:
        meter = machines.meter
        meter.allowed_usd = math.inf if asked.budget.usd is None else asked.budget.usd
        run = run_name(output.folder)
        meter.earlier_usd = paid_before(output.work, Register(leases), machines.provider, run)
    return carry_out(asked, chosen, output, machines, began_s, watch)


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
