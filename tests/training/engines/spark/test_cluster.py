"""A standalone cluster that loses a worker in the middle of a request.

Spark has one context in a process, and this one is another than that of the other tests: it runs in a process
of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from .cluster import cluster

_REQUEST = """
import sys
from pathlib import Path

from prudent.training.engine import TrialSpec
from prudent.training.engines.spark.engine import SparkEngine
from prudent.training.request import TrainingRequest
from prudent.tuning.trial import Outcome

master, data, work = sys.argv[1], sys.argv[2], Path(sys.argv[3])
request = TrainingRequest.parse({"domain": "regression", "dataset": {"path": data, "format": "libsvm"}})
options = {
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def wait(run):
    while not isinstance(event := run.next(700), Outcome):
        assert event is not None, "it hangs"
    print("trial", event.status, event.measures.get("score"), event.why, flush=True)


with SparkEngine(master, options).open(request, work, 2) as session:
    cores = session._spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    print("executors", cores - 1, flush=True)
    specs = [
        TrialSpec(n, "linear-regression", {"regParam": 0.1 * n, "maxIter": 20}, {}, 1.0, 7, work / f"t{n}")
        for n in range(4)
    ]
    runs = [session.start(spec) for spec in specs[:2]]
    print("begun", flush=True)
    sys.stdin.readline()
    for run in runs:
        wait(run)
    for spec in specs[2:]:
        wait(session.start(spec))
"""


@pytest.mark.timeout(900)
def test_a_request_survives_the_loss_of_a_worker(tmp_path: Path, examples: Path) -> None:
    data = str(examples / "sample_linear_regression_data.txt")
    with cluster(tmp_path) as machines:
        program = [sys.executable, "-c", _REQUEST, machines.master, data, str(tmp_path / "work")]
        process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            seen = [process.stdout.readline().strip(), process.stdout.readline().strip()]
            assert seen == ["executors 2", "begun"]
            time.sleep(0.5)
            machines.kill(0)
            process.stdin.write("\n")
            process.stdin.flush()
            rest, _ = process.communicate(timeout=800)
        finally:
            process.kill()
            process.wait()
    trials = [line for line in rest.splitlines() if line.startswith("trial")]
    assert len(trials) == 4
    assert all(line.split()[1] == "finished" for line in trials), rest
