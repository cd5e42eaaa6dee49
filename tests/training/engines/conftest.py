"""What tests of all engines share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def jpmml() -> Iterator[Any]:
    """Another maker's engine for PMML: JPMML, which is Java and shares nothing with us."""
    evaluator = pytest.importorskip("jpmml_evaluator")
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    from jpmml_evaluator.py4j import Py4JBackend
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    port, process = launch_gateway(
        classpath=os.pathsep.join(evaluator._classpath([])),
        javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"],
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield Py4JBackend(gateway)
    gateway.shutdown()
    process.stdin.close()
    process.wait(60)
