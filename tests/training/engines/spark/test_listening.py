"""What a Spark session on this computer listens at, and to whom."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

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
