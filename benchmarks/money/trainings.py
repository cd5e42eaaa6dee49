"""Requests that train on rented machines of a cloud that is a clock and a book of its own."""

from __future__ import annotations

import importlib
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from money.played import Played

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.training.search.rented import Cloud, Cluster, LookedAt, OnMachines
from tests.training.search.test_search import CLOCKED, Clock, asked

import prudent.cloud.meter
from prudent.cloud.clusters.autoscaling import ClusterRequest
from prudent.cloud.providers.provider import Instance
from prudent.core.errors import BadInput, RunFailed
from prudent.training.models.output import OutputFolder
from prudent.training.request.request import TrainingRequest
from prudent.training.train import run_training


class Fickle(Cloud):
    """Its price may rise between offer and launch; while machines boot, somebody may look at the money."""

    rises = 1.0
    cluster: Cluster

    def launch(self, order: Any) -> Any:
        self.usd_per_h["a"] *= self.rises
        return super().launch(order)

    def ready(self, instances: Sequence[Instance], timeout_s: float) -> tuple[Instance, ...]:
        until_s = max(one.launched_s for one in instances) + self.boot_s
        while self.clock.now_s < until_s:
            self.clock.now_s += min(1.0, until_s - self.clock.now_s)
            assert isinstance(self.cluster.meter, LookedAt)
            self.cluster.meter.wait_for_look(self.cluster.closed)
            if self.cluster.closed.is_set():
                raise RunFailed("Its machines are gone.")
        return tuple(instances)


def play(seed: int, folder: Path) -> Played:
    """Boot, data, trials and give-back of random length, with too little, enough or ample money."""
    chance = random.Random(f"trainings {seed}")
    clock = Clock()
    for module in CLOCKED:
        importlib.import_module(f"prudent.{module}").time = clock  # type: ignore[attr-defined]
    prudent.cloud.meter._LOOK_S = 0.002
    usd_per_s, count = chance.uniform(0.001, 0.02), chance.randint(1, 5)
    cloud = Fickle(
        clock,
        {"a": usd_per_s * 3600},
        minimum_s=chance.choice([0.0, 60.0]),
        boot_s=chance.choice([0.0, 20.0, 60.0]),
        end_s=chance.choice([0.0, 2.0, 4.0]),
    )
    cloud.rises = chance.choice([1.0, 1.0, 1.0, 1.5])
    values = [0.1 * step for step in range(chance.randint(1, 6))]
    takes_s, data_s = chance.uniform(0.5, 40.0), chance.choice([0.0, 5.0, 40.0])
    budget_usd = usd_per_s * count * chance.uniform(20.0, 400.0)
    request = TrainingRequest.parse(
        asked(values, parameterSearch="grid", parallelism=chance.randint(1, 3), budget=f"${budget_usd:.6f}")
    )
    cluster = Cluster(cloud, ClusterRequest.exactly(count, "a"), folder / "leases", request.budget.usd)
    cloud.cluster = cluster
    engine = OnMachines(cluster, takes_s, data_s)
    troubles: Counter[str] = Counter()
    over_usd = booked_usd = 0.0
    try:
        board = run_training(
            request, engine, OutputFolder(folder / "out", request, engine.name, False), cluster
        )
        booked_usd, over_usd = board.spent_usd, board.over_usd
        troubles["without a model"] += not board.entries
    except BadInput:
        troubles["refused"] += 1  # less than the first minimum
    except RunFailed as error:
        troubles["price rose" if "more than" in str(error) else str(error)] += 1
        booked_usd = cluster.meter.spent_usd()
    assert cloud.running == 0, "machines are left"
    return Played(
        "train, clock of its own",
        seed,
        budget_usd,
        cloud.bill_usd(),
        booked_usd,
        usd_per_s * count,
        over_usd,
        troubles=troubles,
    )
