"""A small real run on a rented cluster, as a program of its own, to be killed: see kill_matrix.py.

renter.py HOME WHERE TYPE COUNT LEASE_S RENEW_S WORK_S
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.registry import provider_of
from prudent.core.processes import kill_point

# A daemon that leaves its session, and work that takes its time: both must not outlive the machine.
COMMAND = "setsid sleep 300 & echo ready; sleep {work_s}; echo 42 > job/result"


def work(cluster: Rental, work_s: float, home: str) -> None:
    channel = cluster.channel(0)
    with tempfile.TemporaryDirectory(dir=home) as folder:  # who is killed cannot remove it
        (Path(folder) / "input").write_text("6 * 7\n")
        channel.put(Path(folder), "job")
        kill_point("trial.put")
        started = channel.start(COMMAND.format(work_s=work_s))
        assert started.stdout.readline() == b"ready\n"
        kill_point("trial.started")
        code = started.wait()
        kill_point("trial.ended")
        channel.get("job", Path(folder) / "back")
        kill_point("trial.fetched")
        print(code, (Path(folder) / "back" / "result").read_text())


def main() -> None:
    home, where, type_name, count, lease_s, renew_s, work_s = sys.argv[1:]
    provider = provider_of(json.loads(where), Path(home), Path("/"))
    rental = Rental(
        provider,
        type_name,
        int(count),
        run="killed",
        register=LeaseRegister(Path(home)),
        lease_s=float(lease_s),
        renew_s=float(renew_s),
    )
    with rental as cluster:
        work(cluster, float(work_s), home)


if __name__ == "__main__":
    main()
