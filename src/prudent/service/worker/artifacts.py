"""Where results lie: in the run's folder, and if the operator says so in another folder or a bucket."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput, PrudentError, RunFailed
from prudent.reports.page import without_plotly

RESULT, REPORT, MODELS, LOG, PLAN = "result.json", "report.html", "models", "log.txt", "plan.json"
PLOTLY = "/static/plotly.js"
"""Where reports that the service shows find Plotly."""
_KEPT = (RESULT, REPORT, PLAN)
_ABSENT = ("404", "NoSuchKey", "NotFound")
_AT_ONCE = 1000


def write_report(folder: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make the report of a run; one that cannot be written must not cost the answer."""
    path = folder / REPORT
    try:
        write(path)
    except (OSError, PrudentError):
        path.unlink(missing_ok=True)


def store_results(artifacts: str | None, run_id: str, folder: Path) -> str:
    """Copy a run's results to where they are kept; answers that place (its own folder without one).

    Copying again is harmless: a worker that takes over does so.
    """
    if artifacts is None:
        _load_plotly_from_service(folder / REPORT)
        return str(folder)
    paths = [folder / name for name in _KEPT if is_plain(folder / name)]
    models = folder / MODELS
    if models.is_dir() and not models.is_symlink():
        paths += [path for path in sorted(models.rglob("*")) if is_plain(path) and ".work" not in path.parts]
    place = f"{artifacts.rstrip('/')}/{run_id}"
    if artifacts.startswith("s3://"):
        with _bucket(place) as (client, bucket, prefix):
            for path in paths:
                client.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(folder).as_posix()}")
        return place
    for path in paths:
        to = Path(place) / path.relative_to(folder)
        to.parent.mkdir(parents=True, exist_ok=True)
        part = to.with_name(f".{to.name}.{os.getpid()}")
        shutil.copyfile(path, part)
        part.replace(to)
    return place


def _load_plotly_from_service(report: Path) -> None:
    """Plotly is nearly all of a report: the service keeps it once, and adds it to reports that are saved."""
    if not is_plain(report):
        return
    page = without_plotly(report.read_text(encoding="utf-8"), PLOTLY)
    part = report.with_name(f".{report.name}.{os.getpid()}")
    part.write_text(page, encoding="utf-8")
    part.replace(report)


def local(place: str, name: str, cache: Path) -> Path | None:
    """A local copy of a kept file; None if there is none. `name` is one of ours, never a request's."""
    if not place.startswith("s3://"):
        path = Path(place) / name
        return path if is_plain(path) else None
    to = _cached(place, cache) / name
    if to.is_file():
        return to
    with _bucket(place) as (client, bucket, prefix):
        return _fetched(client, bucket, f"{prefix}/{name}", to)


def is_plain(path: Path) -> bool:
    """Whether it is a file itself: a command could have left a link there to what others must not see."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def local_folder(place: str, cache: Path) -> Path | None:
    """A model's folder, as a folder here; all of it, with the forms that it has beside ONNX."""
    if not place.startswith("s3://"):
        path = Path(place)
        return path if path.is_dir() else None
    to = _cached(place, cache)
    whole = to.with_name(f"{to.name}.whole")
    if not whole.exists():
        with _bucket(place) as (client, bucket, prefix):
            names = [name for name in _names(client, bucket, f"{prefix}/") if ".." not in name.split("/")]
            for name in names:
                path = to / name.removeprefix(f"{prefix}/").lstrip("/")
                if not path.is_file():
                    _fetched(client, bucket, name, path)
        if not names:
            return None
        whole.touch()
    return to


def remove(artifacts: str | None, run_id: str, folder: Path, cache: Path) -> None:
    """Throw a run's files away, with copies of them."""
    if artifacts is not None and artifacts.startswith("s3://"):
        with _bucket(f"{artifacts.rstrip('/')}/{run_id}") as (client, bucket, prefix):
            names = _names(client, bucket, f"{prefix}/")
            for first in range(0, len(names), _AT_ONCE):
                some = [{"Key": name} for name in names[first : first + _AT_ONCE]]
                client.delete_objects(Bucket=bucket, Delete={"Objects": some, "Quiet": True})
    elif artifacts is not None:
        shutil.rmtree(Path(artifacts) / run_id, ignore_errors=True)
    for path in cache.glob(f"*{run_id}*"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def check(artifacts: str | None) -> None:
    """Raise at the start of the service if there is no such place for results, or no package for it."""
    if artifacts is None or "://" not in artifacts:
        return
    scheme, _, rest = artifacts.partition("://")
    if scheme != "s3" or not rest.strip("/"):
        raise BadInput(f'"{artifacts}" is not a place for results; name a folder, or s3://bucket/prefix.')
    _session()


def _cached(place: str, cache: Path) -> Path:
    return cache / place.removeprefix("s3://").replace("/", "_")


def _names(client: Any, bucket: str, prefix: str) -> list[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [str(fact["Key"]) for page in pages for fact in page.get("Contents", ())]


def _fetched(client: Any, bucket: str, name: str, to: Path) -> Path | None:
    """An object as a file, whole or not at all; None if there is no such object."""
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f".{to.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        client.download_file(bucket, name, str(part))
        part.replace(to)
    except client.exceptions.ClientError as error:
        if error.response.get("Error", {}).get("Code") in _ABSENT:
            return None
        raise
    finally:
        part.unlink(missing_ok=True)
    return to


@contextmanager
def _bucket(place: str) -> Iterator[tuple[Any, str, str]]:
    """A client, and the place's bucket and prefix; trouble becomes a sentence."""
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    client = _session().client("s3")
    try:
        yield client, bucket, prefix
    except Exception as error:  # the client's own errors have no common family
        said = " ".join(str(error).split())
        raise RunFailed(
            f"The bucket {bucket} with the results cannot be used ({said}); check that it is there, and "
            "what these credentials may do."
        ) from error
    finally:
        client.close()


def _session() -> Any:
    """A session of one's own: the one that all share is not safe to use from several threads."""
    try:
        import boto3
    except ImportError as error:
        raise BadInput('Keeping results in s3:// needs boto3; pip install "prudent[aws]".') from error
    return boto3.session.Session()


JOURNAL, LOGS = "journal.jsonl", "logs"


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Write the result as JSON; numbers that JSON does not have become null."""
    text = json.dumps(_plain(dict(result)), ensure_ascii=False, allow_nan=False, default=_number)
    part = folder / f".{RESULT}.{os.getpid()}"
    part.write_text(text, encoding="utf-8")
    part.replace(folder / RESULT)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _number(value: Any) -> Any:
    """numpy scalars as plain numbers."""
    item = getattr(value, "item", None)
    return str(value) if item is None else _plain(item())
