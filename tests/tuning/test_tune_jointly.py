"""Machine type, a parameter of the job and the share of the data, searched together on rented machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from prudent.cli.main import run
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider

# Twice the vCPUs for a little more money. Only depth 2 learns enough, and only all of the data, which takes
# longest.
PRICES = "name,vcpus,memory_gb,price_usd_per_h,minimum_s\nsmall,1,2,0.10,0\nlarge,2,4,0.12,0\n"
JOB: dict[str, Any] = {
    "command": f"{sys.executable} learn.py {{depth}} {{share}} {{cluster.vcpus}}",
    "where": {"local": "prices.csv"},
    "parameters": {
        "cluster": {"machine": {"types": ["small", "large"], "count": [1]}},
        "depth": [1, 2],
        "share": [0.25, 0.5, 1.0],
    },
    "fraction": "share",
    "measures": ["error"],
    "goal": "minimise cost_usd subject to error <= 0.12",
    "budget": "$0.02",
    "lease": "60 s",
}
LEARN = """
import sys, time
depth, share, vcpus = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
time.sleep(0.4 * share / vcpus)
print('PRUDENT {"error": %g}' % ((0.1 if depth == 2 else 0.3) + 0.1 * (1 - share)))
"""


def test_machines_parameters_and_data_are_searched_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # The machines live in the job's own folder, as they do for who works in the home folder.
    job, home = tmp_path / "job", tmp_path / "job" / "share" / "prudent"
    job.mkdir()
    (job / "prices.csv").write_text(PRICES)
    (job / "learn.py").write_text(LEARN)
    (job / "job.yaml").write_text(json.dumps(JOB))
    monkeypatch.setenv("PRUDENT_HOME", str(home))
    code = run(["tune", str(job / "job.yaml"), "--json", "--seed", "3"])
    said = capfd.readouterr()
    assert code == 0, said.err
    result = json.loads(said.out)
    tried = [trial["configuration"] for trial in result["trials"]]
    assert {one["cluster"] for one in tried} == {"1*small", "1*large"}
    assert min(one["share"] for one in tried) < 1.0
    # How long a run takes is this computer's affair; what it learns, and at least sleeps, is not.
    finished = [trial for trial in result["trials"] if trial["status"] == "finished"]
    for trial in finished:
        chosen, vcpus = trial["configuration"], 2 if trial["configuration"]["cluster"] == "1*large" else 1
        error = (0.1 if chosen["depth"] == 2 else 0.3) + 0.1 * (1 - chosen["share"])
        assert trial["measures"] == {"error": pytest.approx(error)}
        assert trial["time_s"] >= 0.4 * chosen["share"] / vcpus
    able = [one for one in finished if one["measures"]["error"] <= 0.12]
    assert {(one["configuration"]["depth"], one["configuration"]["share"]) for one in able} == {(2, 1.0)}
    hourly = {"1*small": 0.10, "1*large": 0.12}
    cheapest = min(able, key=lambda one: one["time_s"] * hourly[one["configuration"]["cluster"]])
    assert result["best"]["configuration"] == cheapest["configuration"]
    assert result["spent_usd"] <= 0.02
    bill_usd = sum(lease.cost_usd(0.0) for lease in LeaseRegister(home).leases())
    assert result["spent_usd"] == pytest.approx(bill_usd, abs=1e-6)
    assert LocalProvider(home).list() == ()
