"""How long it takes from a submission to its first trial running, on a service that has nothing else to do.

python benchmarks/service_first_trial.py --times 5
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

ROWS = "a,b,y\n" + "".join(f"{x},{x * x % 7},{3 * x + 1}\n" for x in range(200))
TABLE = "vm,time_s,price_usd_per_h\na,10,1\nb,20,0.2\nc,30,0.1\n"
REQUESTS: dict[str, dict[str, Any]] = {
    "train": {
        "domain": "regression",
        "dataset": {"path": "rows.csv", "target": "y"},
        "methods": [{"algorithm": "linear-regression"}],
        "budget": "2 trials",
    },
    "tune": {"table": {"csv": TABLE}, "parameters": ["vm"], "goal": "minimise cost_usd", "max_trials": 2},
}


def first_trial_s(client: httpx.Client, kind: str) -> float:
    """Seconds between the run's first event and its first trial's."""
    began_s = time.time()
    run = client.post(f"/v1/runs/{kind}", json=REQUESTS[kind]).raise_for_status().json()
    while True:
        shown = client.get(run["url"]).json()
        if shown["status"] in ("succeeded", "failed"):
            break
        time.sleep(0.1)
    assert shown["status"] == "succeeded", shown["error"]
    lines = client.get(f"{run['url']}/events").text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    return next(event["at_s"] for event in events if event["kind"] in ("begun", "trial")) - began_s


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--times", type=int, default=5)
    words.add_argument("--pause", type=float, default=5.0, help="seconds of rest between two submissions")
    said = words.parse_args()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "data").mkdir()
        (Path(name) / "data" / "rows.csv").write_text(ROWS)
        command = [sys.executable, "-m", "prudent.cli.main", "serve", "--open", "--home", name, "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        place = process.stdout.readline().split("http://")[1].split()[0]
        try:
            with httpx.Client(base_url=f"http://{place}", timeout=120, trust_env=False) as client:
                while not client.get("/ready").json()["workers"]:
                    time.sleep(0.5)
                for kind in REQUESTS:
                    first_trial_s(client, kind)  # the processes are warm after that
                for kind in REQUESTS:
                    took_s = []
                    for _ in range(said.times):
                        time.sleep(said.pause)
                        took_s.append(first_trial_s(client, kind))
                    print(
                        f"{kind}: median {statistics.median(took_s):.2f} s, worst {max(took_s):.2f} s "
                        f"(load average {os.getloadavg()[0]:.1f})"
                    )
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
