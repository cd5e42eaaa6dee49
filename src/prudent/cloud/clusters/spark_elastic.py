"""A Spark cluster that grows while trials wait for a core and shrinks when machines stand idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from prudent.cloud.clusters.autoscaling import Step, step
from prudent.cloud.clusters.spark_cluster import SparkCluster
from prudent.core.errors import PrudentError

WAIT_S = 1.0
"""Trials that wait so long get another machine."""

IDLE_S = 15.0
"""A machine that is not needed for so long is given back: to start it again would cost as much."""

_LOOK_S = 0.25
_AGAIN_S = 60.0


class Elastic:
    """Looks after a cluster until it is closed; `trials` tells how many are under way."""

    def __init__(
        self,
        cluster: SparkCluster,
        trials: Callable[[], int],
        wait_s: float = WAIT_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._cluster, self._trials = cluster, trials
        self._wait_s, self._idle_s = wait_s, idle_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="elastic Spark", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking; what is being done at the moment is stopped by closing the cluster."""
        self._over.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _look_after(self) -> None:
        cores, wanted, since_s, refused_s = self._cluster.cores(), None, 0.0, 0.0
        while not self._over.wait(_LOOK_S):
            try:
                self._cluster.mend()
                now_s = time.monotonic()
                if self._cluster.refused and now_s - refused_s > _AGAIN_S:
                    refused_s = now_s
                    self._cluster.refused.clear()
                held, refused = self._cluster.held, self._cluster.refused
                found = step(self._cluster.wish, held, cores, self._trials(), refused)
                if found != wanted:
                    wanted, since_s = found, now_s
                elif found is not None and now_s - since_s >= (self._wait_s if found.add else self._idle_s):
                    self._take(found)
                    wanted = None
            except PrudentError:
                continue  # a provider in trouble: look again

    def _take(self, found: Step) -> None:
        (self._cluster.grow if found.add else self._cluster.shrink)(found.type)
