"""Keeps Spark's classes for later starts (see `prudent.cloud.clusters.spark_java`).

    python -m prudent.training.engines.spark.warming

They are those that two small requests have used. Made once for each Java and Spark, after the first session,
by a process of low priority, or by this command; it takes about a minute.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from prudent.cloud.clusters import spark_java
from prudent.cloud.leases.dead_mans_switch import CLUSTER, MACHINE
from prudent.core.errors import PrudentError
from prudent.tuning.trial import Progress

_UNUSED_S = 30 * 24 * 3600.0
_LEFT_S = 24 * 3600.0
_LONGEST_S = 600.0
_TRAINED: dict[str, dict[str, dict[str, int]]] = {
    "regression": {
        "linear-regression": {"maxIter": 2},
        "random-forest-regression": {"numTrees": 2},
        "gradient-boosted-tree-regression": {"maxIter": 2},
    },
    "classification": {
        "binomial-logistic-regression": {"maxIter": 2},
        "decision-tree-classification": {},
        "gradient-boosted-tree-classification": {"maxIter": 2},
    },
}
"""Algorithms and their settings by domain; the target has the domain's name."""
_left_alone: list[subprocess.Popen[bytes]] = []
"""Processes that nobody waits for: Python would warn of one that it has lost sight of."""


def make_later(file: Path) -> None:
    """Start a process that makes the file, and go on without it."""
    if file.exists() or _refused(file).exists():
        return
    # It is nothing of the cluster that its starter may be a part of, and must not end with it.
    environment = {name: value for name, value in os.environ.items() if name not in (CLUSTER, MACHINE)}
    command = [sys.executable, "-m", __name__, "--gently"]
    quiet = subprocess.DEVNULL
    with suppress(OSError):
        _left_alone.append(
            subprocess.Popen(
                command,
                stdin=quiet,
                stdout=quiet,
                stderr=quiet,
                start_new_session=True,
                env=environment,
                cwd="/",
            )
        )


def make(file: Path) -> bool:
    """Make the file, unless it is there or somebody is at it; False if Java would not."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        if file.exists():
            return True
        with tempfile.TemporaryDirectory(prefix="making-", dir=file.parent) as folder:
            fresh = Path(folder) / file.name
            with suppress(Exception):  # whatever it is, Spark starts without the file, and as before
                _use_spark(Path(folder), fresh)
            if not fresh.exists():
                _refused(file).touch()
                return False
            fresh.replace(file)
    _clean(file)
    return True


def _use_spark(folder: Path, fresh: Path) -> None:
    """Do what requests do, in a Java that writes down its classes when it ends."""
    from prudent.training.engines.spark.spark_session import JAVA_OPTIONS, start_spark, stop_spark

    data = folder / "rows.csv"
    rows = [f"{n % 7},{'abc'[n % 3]},{n % 5 or ''},{n % 11 > 4},{n / 2}" for n in range(120)]
    data.write_text("\n".join(["number,letter,gaps,classification,regression", *rows]))
    settings = {"spark.driver.memory": "1g", JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={fresh}"'}
    spark, own = start_spark("local[2]", folder, settings, small=True)
    try:
        for domain, trained in _TRAINED.items():
            _train(domain, trained, data, folder / domain)
    finally:
        if own:
            stop_spark(spark, _LONGEST_S)


def _train(domain: str, trained: Mapping[str, Mapping[str, int]], data: Path, work: Path) -> None:
    from prudent.training.engines.engine import TrialSpec
    from prudent.training.engines.spark.engine import SparkEngine
    from prudent.training.request.request import TrainingRequest

    source = {"path": str(data), "target": domain}
    held_out = {"validation": {"holdout": 0.3}, "test": False}
    request = TrainingRequest.parse({"domain": domain, "dataset": source, **held_out})
    with SparkEngine().open(request, work, 1) as session:
        for number, (name, said) in enumerate(trained.items(), 1):
            run = session.start(TrialSpec(number, name, said, {}, 1.0, 0, work / name))
            while isinstance(run.next(_LONGEST_S), Progress):
                pass


def _refused(file: Path) -> Path:
    """Says that this Java does not keep classes, so that nobody tries again and again."""
    return file.with_suffix(".refused")


def _clean(file: Path) -> None:
    """Remove what nobody has used for long, and what was left by one who was killed as he made it."""
    now_s = time.time()
    for other in file.parent.glob("spark-*"):
        with suppress(OSError):
            if other.stem != file.stem and now_s - other.stat().st_mtime > _UNUSED_S:
                other.unlink()
    for folder in file.parent.glob("making-*"):
        with suppress(OSError):
            if now_s - folder.stat().st_mtime > _LEFT_S:
                shutil.rmtree(folder)


def main() -> int:
    from prudent.training.engines.spark.spark_session import java_home

    if "--gently" in sys.argv[1:]:
        os.nice(19)
    try:
        with tempfile.TemporaryDirectory() as work:
            file = spark_java.class_archive_path(java_home(Path(work)))
        os.environ[spark_java.CLASS_ARCHIVE_SWITCH] = (
            "off"  # the session that makes them is not one that misses them
        )
        if file is None or make(file):
            return 0
        said = "This Java does not keep classes; Spark starts as slowly as before."
    except PrudentError as error:
        said = str(error)
    except OSError as error:
        said = f"Spark's classes cannot be kept ({error}); name another folder with XDG_CACHE_HOME."
    sys.stderr.write(f"prudent: {said}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
