"""One Spark session for all tests here: starting one takes longer than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.training.engines.spark.context import started, stop

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session, _ = started("local[2]", tmp_path_factory.mktemp("spark"), SETTINGS, small=True)
    yield session
    stop(session)


@pytest.fixture(scope="session")
def examples() -> Path:
    """The data files that come with pyspark."""
    pyspark = pytest.importorskip("pyspark")
    return Path(os.path.dirname(pyspark.__file__)) / "data" / "mllib"
