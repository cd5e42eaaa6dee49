"""Where results lie: in the run's folder, and if the operator says so in another folder or a bucket."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput, RunFailed

RESULT, REPORT, MODELS, LOG, PLAN = "result.json", "report.html", "models", "log.txt", "plan.json"
_KEPT = (RESULT, REPORT, PLAN)


def keep(artifacts: str | None, run_id: str, folder: Path) -> str:
    """Copy a run's results to where they are kept; answers that place (its own folder without one).

    Copying again is harmless: a worker that takes over does so.
    """
    if artifacts is None:
        return str(folder)
    paths = [folder / name for name in _KEPT if (folder / name).is_file()]
    models = folder / MODELS
    if models.is_dir():
        paths += [path for path in sorted(models.rglob("*")) if path.is_file() and ".work" not in path.parts]
    place = f"{artifacts.rstrip('/')}/{run_id}"
    if artifacts.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        client = _client()
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


def local(place: str, name: str, cache: Path) -> Path | None:
    """A file of a kept place, as a file here; None if it is not there. `name` is ours, never a request's."""
    if not place.startswith("s3://"):
        path = Path(place) / name
        return path if path.is_file() else None
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    to = cache / prefix.replace("/", "_") / name
    if to.is_file():
        return to
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        _client().download_file(bucket, f"{prefix}/{name}", str(part))
    except Exception as error:  # the client's own errors have no common family
        part.unlink(missing_ok=True)
        if "404" in str(error) or "Not Found" in str(error):
            return None
        raise RunFailed("The bucket with the results does not answer; try again later.") from error
    part.replace(to)
    return to


def local_folder(place: str, cache: Path) -> Path | None:
    """A model's folder, as a folder here."""
    if not place.startswith("s3://"):
        path = Path(place)
        return path if path.is_dir() else None
    for name in ("model.onnx", "model.json"):
        found = local(place, name, cache)
        if found is None:
            return None
    local(place, "facts.json", cache)
    return found.parent if found else None


def remove(artifacts: str | None, run_id: str, folder: Path) -> None:
    """Throw a run's files away."""
    shutil.rmtree(folder, ignore_errors=True)
    if artifacts is not None and not artifacts.startswith("s3://"):
        shutil.rmtree(Path(artifacts) / run_id, ignore_errors=True)
    elif artifacts is not None:
        bucket, _, prefix = f"{artifacts.rstrip('/')}/{run_id}/".removeprefix("s3://").partition("/")
        client = _client()
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for fact in page.get("Contents", ()):
                client.delete_object(Bucket=bucket, Key=fact["Key"])


def _client() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise BadInput('Keeping results in s3:// needs boto3; pip install "prudent[aws]".') from error
    return boto3.client("s3")
