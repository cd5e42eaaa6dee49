"""Where Spark's classes are kept, for which Java and which Spark."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from prudent.cloud.clusters import spark_java


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A Java and a Spark, as far as anybody looks."""
    monkeypatch.delenv(spark_java.CLASS_ARCHIVE_SWITCH, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    java, spark = tmp_path / "java", tmp_path / "spark"
    (java / "lib" / "server").mkdir(parents=True)
    (java / "lib" / "server" / "classes.jsa").touch()
    (java / "release").write_text('JAVA_VERSION="17.0.1"')
    (spark / "jars").mkdir(parents=True)
    return java, spark


def test_each_java_and_each_spark_has_a_file_of_its_own(homes: tuple[Path, Path], tmp_path: Path) -> None:
    java, spark = homes
    first = spark_java.class_archive_path(java, spark)
    assert first is not None
    assert first.parent == tmp_path / "my cache" / "prudent"
    assert spark_java.class_archive_path(java, spark) == first
    other = tmp_path / "other"
    shutil.copytree(spark, other)
    assert spark_java.class_archive_path(java, other) != first
    os.utime(spark / "jars", (1, 1))
    assert spark_java.class_archive_path(java, spark) != first
    os.utime(spark / "jars", ns=(first_ns := (other / "jars").stat().st_mtime_ns, first_ns))
    (java / "release").write_text('JAVA_VERSION="17.0.2"')
    assert spark_java.class_archive_path(java, spark) != first


def test_nothing_is_kept_where_java_cannot_or_nobody_wants_it(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    java, spark = homes
    with monkeypatch.context() as changed:
        changed.setenv(spark_java.CLASS_ARCHIVE_SWITCH, "off")
        assert spark_java.class_archive_path(java, spark) is None
    (java / "lib" / "server" / "classes.jsa").unlink()
    assert spark_java.class_archive_path(java, spark) is None
    assert spark_java.class_archive_path(java / "none", spark) is None
    assert spark_java.class_archive_options(None) == ""


def test_java_is_told_only_of_a_file_that_is_there_and_use_is_marked(homes: tuple[Path, Path]) -> None:
    file = spark_java.class_archive_path(*homes)
    assert file is not None
    assert spark_java.class_archive_options(file) == ""
    file.parent.mkdir(parents=True)
    file.touch()
    os.utime(file, (1, 1))
    assert spark_java.class_archive_options(file) == f'"-XX:SharedArchiveFile={file}"'
    assert time.time() - file.stat().st_mtime < 60
