"""What a Spark session on this computer listens at, and to whom."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import psutil
import pytest

from prudent.training.engines.spark import listening

from ....running import strangers
from ....running.listening import ports_of

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine


def test_only_loopback_is_listened_at_and_strangers_are_refused(spark: Any) -> None:
    """There is a port for calls, one for blocks of data, and the one by which Python speaks to Java."""
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)
    ports = [port for one in [java, *java.children(recursive=True)] for port in ports_of(one)]
    assert all(port.on_loopback for port in ports), ports
    answers = list(strangers.spark_answers(ports).values())
    assert answers.count(strangers.SECRET_WANTED) == 2, answers
    assert answers.count(strangers.TOKEN_WANTED) == 1, answers


JOINING = """
import psutil
from xgboost import collective
from xgboost.tracker import RabitTracker
from prudent.training.engines.spark.listening import listen_only_at, local_address_to

listen_only_at("127.0.0.9")
listen_only_at(local_address_to("127.0.0.1"))  # the last one counts
tracker = RabitTracker(n_workers=1, host_ip="127.0.0.1", sortby="task")
tracker.start()
with collective.CommunicatorContext(**tracker.worker_args(), dmlc_task_id="0"):
    open_at = psutil.Process().net_connections()
    print("OPEN", *(each.laddr.ip for each in open_at if each.status == psutil.CONN_LISTEN))
tracker.wait_for(60)
"""


def test_a_process_of_xgboost_listens_at_one_address() -> None:
    """Left to itself it listens at all of them; beside its own port there is the tracker's."""
    pytest.importorskip("xgboost")
    ran = subprocess.run(
        [sys.executable, "-c", JOINING], capture_output=True, text=True, check=False, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("OPEN")]
    assert line.split()[1:] == ["127.0.0.1"] * 2


def test_a_library_whose_table_may_not_be_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """To write there would end the process; `bind` itself lies in memory that may only be read and run."""
    pytest.importorskip("xgboost")
    code = ctypes.cast(ctypes.CDLL(None).bind, ctypes.c_void_p).value
    monkeypatch.setattr(listening, "_loaded_at", lambda library: code)
    monkeypatch.setattr(listening, "_slots", lambda library, symbol: iter([0]))
    with pytest.raises(RuntimeError, match="cannot be kept from listening"):
        listening.listen_only_at("127.0.0.1")
