"""One Spark session for all tests here: starting one takes longer than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.training.engines.spark import spark_session
from prudent.training.engines.spark.spark_session import start_spark, stop_spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    work = tmp_path_factory.mktemp("spark")
    try:
        spark_session.java_home(work)
    except BadInput:
        pytest.skip("needs Java")
    settings = {"spark.driver.memory": "1g", "spark.default.parallelism": "2"}
    session, own = start_spark("local[2]", work, settings, small=True)
    assert own
    session.conf.set("spark.sql.shuffle.partitions", "1")
    assert session.range(10).count() == 10
    yield session
    stop_spark(session, wait_s=300)


@pytest.fixture(scope="session")
def examples() -> Path:
    """The data files that come with pyspark."""
    pyspark = pytest.importorskip("pyspark")
    return Path(os.path.dirname(pyspark.__file__)) / "data" / "mllib"
