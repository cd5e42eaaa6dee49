"""Spark clusters on this computer: how soon they are ready, how soon gone, and whether limits are kept.

python benchmarks/clusters_spark.py            # both
python benchmarks/clusters_spark.py cluster    # three workers: ready in at most 15 s, gone in at most 2 s
python benchmarks/clusters_spark.py request    # maxTotalInstances: 3 with trials for more, sampled

Machines are those of the place `local`: folders with limits of their type's size, on loopback. A cluster is
gone when the place lists no machine and no process carries its mark.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from prudent.cloud.clusters.autoscaling import ClusterRequest
from prudent.cloud.clusters.spark_cluster import SparkCluster
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider

READY_S, GONE_S, MOST = 15.0, 2.0, 3


def cluster(times: int) -> bool:
    """Three workers, from nothing to all registered, and back to nothing."""
    good = True
    for number in range(times):
        folder = tempfile.TemporaryDirectory(prefix="prudent-clusters-")
        home = Path(folder.name)
        provider, register = LocalProvider(home), LeaseRegister(home)
        made = SparkCluster(
            provider,
            ClusterRequest.exactly(MOST, "m3.medium"),
            run="benchmark",
            register=register,
            logs=home / "logs",
        )
        busy, began_s = f"load {os.getloadavg()[0]:.1f}", time.monotonic()
        with made:
            ready_s = time.monotonic() - began_s
            workers, began_s = made.workers, time.monotonic()
        gone_s = _gone_after_s(provider, home, began_s)
        good = good and workers == MOST and ready_s <= READY_S and gone_s <= GONE_S
        print(f"{number + 1}: {workers} workers ready in {ready_s:.1f} s, gone in {gone_s:.1f} s ({busy})")
        folder.cleanup()
    print(f"at most {READY_S:g} s and {GONE_S:g} s: {'yes' if good else 'no'}")
    return good


def request() -> bool:
    """A request that could use eight cores and may have three machines of one."""
    with tempfile.TemporaryDirectory(prefix="prudent-clusters-") as folder:
        return _request(Path(folder))


def _request(home: Path) -> bool:
    import pyspark

    data = Path(pyspark.__file__).parent / "data" / "mllib" / "sample_linear_regression_data.txt"
    asked = {
        "domain": "regression",
        "methods": [{"algorithm": "linear-regression"}],
        "dataset": {"path": str(data), "format": "libsvm"},
        "parameterSearch": "random",
        "budget": "24 trials",
        "parallelism": 8,
        "computationalResources": {
            "instances": [{"ec2Instance": "m3.medium"}],
            "minTotalInstances": 1,
            "maxTotalInstances": MOST,
        },
    }
    (home / "request.json").write_text(json.dumps(asked))
    words = [
        "train",
        str(home / "request.json"),
        "--engine",
        "spark",
        "--out",
        str(home / "models"),
        "--json",
    ]
    run = subprocess.Popen(
        [sys.executable, "-m", "prudent.cli.main", *words],
        env={**os.environ, "PRUDENT_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    provider, seen = LocalProvider(home), []
    while run.poll() is None:
        seen.append(len(provider.list()))
        time.sleep(0.05)
    ended_s = time.monotonic()
    gone_s = _gone_after_s(provider, home, ended_s)
    assert run.stdout is not None
    board = json.loads(run.stdout.read())
    good = run.returncode == 0 and 1 < max(seen) <= MOST and gone_s <= GONE_S
    print(
        f"{len(board['entries'])} models on at most {max(seen)} machines in {len(seen)} samples, "
        f"${board['spent_usd']:.4f} in {board['time_s']:.0f} s; "
        f"gone {gone_s:.1f} s after the run"
    )
    print(f"grew, never above {MOST}, gone within {GONE_S:g} s: {'yes' if good else 'no'}")
    return good


def _gone_after_s(provider: LocalProvider, home: Path, since_s: float) -> float:
    while provider.list() or _processes(home):
        time.sleep(0.02)
    return time.monotonic() - since_s


def _processes(home: Path) -> list[int]:
    """Processes that work in the folders of the machines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd").startswith(str(home / "machines")):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["cluster", "request"])
    parser.add_argument("--times", type=int, default=3)
    told = parser.parse_args()
    results = []
    if told.what != "request":
        results.append(cluster(told.times))
    if told.what != "cluster":
        results.append(request())
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
