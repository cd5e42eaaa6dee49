"""How long 100 clusters on EC2 take, launched and ended at once: python benchmarks/clusters_ec2.py

Against a server on this machine that plays EC2 (moto), one request at a time: what is measured is our side,
the calls that a cluster needs, and that none is left. Needs the extra `test`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cloud.ec2_cloud import CREDENTIALS, Ec2Cloud
from tests.cloud.ec2_faults import Faults

from prudent.cloud.providers.provider import LaunchOrder

CLUSTERS, MACHINES, THREADS = 100, 2, 32


def main() -> None:
    os.environ.update(CREDENTIALS)
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {CLUSTERS} clusters of {MACHINES} machines\n"
    )
    with tempfile.TemporaryDirectory() as folder, Ec2Cloud(Path(folder)) as cloud:
        provider = cloud.provider(sleep=time.sleep)
        counted = Faults(provider, {})
        end_s = time.time() + 3600
        orders = [
            LaunchOrder(f"c-{number}", "benchmark", "me", "m5.large", MACHINES, end_s)
            for number in range(CLUSTERS)
        ]
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(THREADS) as several:
            launched = list(several.map(provider.launch, orders))
            up_s = time.perf_counter()
            there = len(provider.list())
            listed_s = time.perf_counter()
            list(several.map(provider.terminate, launched))
            gone_s = time.perf_counter()
        cpu_s = time.process_time() - cpu_s
        left = len(provider.list())
        print("| step | s |\n|---|---|")
        print(f"| launch all | {up_s - begun_s:.1f} |")
        print(f"| list {there} machines | {listed_s - up_s:.2f} |")
        print(f"| end all | {gone_s - listed_s:.1f} |")
        print(f"| together | {gone_s - begun_s:.1f} |")
        print(f"| of it processor, the server's included | {cpu_s:.1f} |")
        print(f"\n{left} machines left; calls: {counted.calls}")


if __name__ == "__main__":
    main()
