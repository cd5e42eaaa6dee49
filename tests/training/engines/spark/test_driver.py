"""A driver whose machines go while it waits for them ends with them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from prudent.core.errors import BadInput
from prudent.training.engines.spark import spark_session

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(300)
_DRIVER = """
import sys, threading
from pathlib import Path
from prudent.core.errors import RunFailed
from prudent.training.engines.spark.spark_session import start_spark

ends = []
def end():
    sys.stdin.readline()
    ends[0]()

threading.Thread(target=end, daemon=True).start()
try:
    start_spark(sys.argv[1], Path(sys.argv[2]), {"spark.driver.memory": "512m"}, True, {}, ends.append)
except RunFailed as error:
    print(error)
"""


def test_one_that_waits_for_its_master_ends_at_once(tmp_path: Path) -> None:
    """A master that takes calls and never answers: left alone, the driver gives up after a minute."""
    try:
        spark_session.java_home(tmp_path)
    except BadInput:
        pytest.skip("needs Java")
    with socket.create_server(("127.0.0.1", 0)) as master:
        master.settimeout(240)
        address = f"spark://127.0.0.1:{master.getsockname()[1]}"
        driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, address, str(tmp_path / "work")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            call, _ = master.accept()  # it is at it
            with call:
                out, _ = driver.communicate("end\n", timeout=40)
        finally:
            driver.kill()
            driver.communicate()
    assert out.startswith(f"Spark did not start at {address}")
    left = subprocess.run(["pgrep", "-f", str(tmp_path / "work")], capture_output=True, check=False)
    assert left.stdout == b"", "its Java process is there yet"
