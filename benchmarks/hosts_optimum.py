"""Tuning on hosts: is the answer the true optimum, found by measuring everything?

Three SSH servers on loopback are hosts of two types (one has two CPUs). A training job that is really faster
on more machines and more CPUs is measured at every configuration, in full; then it is tuned within a budget.

    python benchmarks/hosts_optimum.py [--seeds 3] [--share 0.75] [--repeats 2]

The budget is a share of what it costs to measure everything once, booting included.

Needs the extra `hosts`, and two CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cloud.ssh_server import SshHosts
from tests.tuning import test_tune_on_hosts as end_to_end


def study(path: Path, journal: Path, **options: Any) -> Any:
    from prudent.tuning.job_file import JobFile
    from prudent.tuning.tune import tune

    said = JobFile.read(path)
    job = said.build(journal.with_suffix(".logs"))
    return tune(job, said.goal, journal=journal, **options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.75)
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    shares = {"alpha": (cpus[0],), "beta": (cpus[1],), "gamma": (cpus[0], cpus[1])}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["PRUDENT_HOME"] = str(folder / "home")
        with SshHosts(folder / "ssh", shares) as servers:
            inventory = servers.inventory(end_to_end.TYPES, folder / "inventory.yaml")
            compare(end_to_end.job_file(folder / "job", inventory, "$1"), folder, chosen)


def compare(path: Path, folder: Path, chosen: argparse.Namespace) -> None:
    measured: dict[str, list[Any]] = {}
    spent = []
    for repeat in range(chosen.repeats):
        result = study(path, folder / f"all-{repeat}.jsonl", strategy="grid", early_stop=False, seed=repeat)
        spent.append(result.spent_usd)
        for trial in result.trials:
            measured.setdefault(json.dumps(trial.configuration), []).append(trial)
    print(f"{'configuration':44} {'time':>8} {'cost':>12}  fast enough")
    costs = {}
    for name, trials in measured.items():
        time_s = statistics.median(trial.time_s for trial in trials)
        usd = statistics.median(trial.cost_usd for trial in trials)
        feasible = all(trial.feasible for trial in trials)
        print(f"{name:44} {time_s:7.2f}s ${usd:11.7f}  {'yes' if feasible else 'no'}")
        if feasible:
            costs[name] = usd
    optimum = min(costs, key=lambda name: costs[name])
    print(f"true optimum: {optimum}; measuring everything once cost ${statistics.mean(spent):.6f}\n")
    budget_usd = chosen.share * statistics.mean(spent)
    print(f"{'seed':>4} {'answer':44} {'optimum':>8} {'trials':>6} {'spent':>10} {'budget':>10} {'took':>7}")
    for seed in range(chosen.seeds):
        began_s = time.monotonic()
        result = study(path, folder / f"seed-{seed}.jsonl", budget_usd=budget_usd, seed=seed)
        answer = json.dumps(result.best.configuration) if result.best else "none"
        print(
            f"{seed:4} {answer:44} {answer == optimum!s:>8} {len(result.trials):6} ${result.spent_usd:.6f} "
            f"${budget_usd:8.6f} {time.monotonic() - began_s:6.1f}s"
        )


if __name__ == "__main__":
    main()
