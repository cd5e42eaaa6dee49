"""Where data lie: a file, a folder of parts, a web address, a bucket; always answered as local files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from prudent.core.errors import BadInput, RunFailed, did_you_mean
from prudent.training.data.fetch import AccessPolicy, fetch, policy_in_force

_MOST_PARTS = 100_000


def local_parts(path: str | Path, cache: Path) -> list[Path]:
    """The files that hold the data, in the order of their names; what is far away is copied into `cache`.

    A folder is all its files except those whose name begins with a dot or an underscore, as Spark and others
    mark what is not data.
    """
    policy, text = policy_in_force(), os.fspath(path)
    scheme, _, rest = text.partition("://")
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme.lower(), scheme.lower()) if rest else "file"
    if scheme not in policy.schemes:
        raise BadInput(
            f'"{text}" cannot be read: {scheme} is not a place for data here; use one of '
            f"{', '.join(sorted(policy.schemes))}."
        )
    if scheme == "file":
        return _local_files(Path(unquote(urlsplit(text).path)) if rest else Path(text), policy)
    cache.mkdir(parents=True, exist_ok=True)
    if scheme == "s3":
        return _from_bucket(f"s3://{rest}", cache, policy)
    return [fetch(text, cache / _cache_name(text, urlsplit(text).path), policy)]


def _local_files(path: Path, policy: AccessPolicy) -> list[Path]:
    path = path.expanduser()
    if policy.roots is not None:
        path = path.resolve()
        if not any(path.is_relative_to(root.resolve()) for root in policy.roots):
            raise BadInput(
                f'"{path}" is outside the folders that are read here; put the data into one of them.'
            )
    try:
        if path.is_file():
            return [path]
        if not path.exists():
            near = [str(p.name) for p in path.parent.iterdir()] if path.parent.is_dir() else []
            raise BadInput(
                f'There is no file or folder "{path}".{did_you_mean(path.name, near)} Check the path.'
            )
        parts = sorted(p for p in path.rglob("*") if p.is_file() and _is_data(p.relative_to(path)))
    except OSError as error:
        raise BadInput(f'Cannot read "{path}" ({error.strerror}); check the path and its rights.') from error
    if not parts:
        raise BadInput(f'The folder "{path}" has no files in it; give a folder with data.')
    parts = [part for part in parts if part.stat().st_size] or parts  # Spark writes empty ones
    if policy.roots is not None:
        for part in parts:
            _local_files(part, policy)  # a link can lead out of the folder
    return parts


def _is_data(path: Path) -> bool:
    return not any(name.startswith((".", "_")) for name in path.parts)


def _cache_name(address: str, path: str) -> str:
    """A file name that keeps the endings, by which the format is known.

    >>> _cache_name("http://host/a/data.csv.gz?x=1", "/a/data.csv.gz").endswith("data.csv.gz")
    True
    """
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in unquote(path).rsplit("/", 1)[-1])
    return f"{hashlib.blake2b(address.encode(), digest_size=8).hexdigest()}-{name[-80:]}"


def _from_bucket(address: str, cache: Path, policy: AccessPolicy) -> list[Path]:
    client, place = _client(), address.removeprefix("s3://").rstrip("/")
    try:
        if not place or "/" not in place:
            raise BadInput(f'"{address}" names no file in the bucket; write it as s3://bucket/path.')
        bucket, _, key = place.partition("/")
        if policy.buckets is not None and bucket not in policy.buckets:
            raise BadInput(f'The bucket "{bucket}" is not read here; put the data into one that is.')
        sizes = _sizes(client, bucket, key)
        if not sizes:
            raise BadInput(f'There is nothing at "{address}"; check the bucket and the path.')
        if len(sizes) > _MOST_PARTS or sum(sizes.values()) > policy.largest_mb * 1e6:
            raise BadInput(
                f'"{address}" is larger than the {policy.largest_mb:g} MB that are read here; use fewer.'
            )
        wanted = [name for name in sizes if sizes[name] or not any(sizes.values())]
        return [_copied(client, bucket, name, cache) for name in wanted]
    except BadInput:
        raise
    except Exception as error:  # the client's own errors have no common family
        said = " ".join(str(error).split())
        raise RunFailed(
            f'Cannot read "{address}" ({said}); check the bucket and your credentials.'
        ) from error


def _sizes(client: Any, bucket: str, key: str) -> dict[str, int]:
    """The object of a key, or the objects below it, with their bytes, by name; hidden ones left out."""
    found: dict[str, int] = {}
    for answer in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key):
        for fact in answer.get("Contents", ()):
            name = str(fact["Key"])
            below = name[len(key) :]
            if (not below or below.startswith("/")) and not name.endswith("/") and _is_data(Path(below[1:])):
                found[name] = int(fact["Size"])
    return dict(sorted(found.items()))


def _copied(client: Any, bucket: str, name: str, cache: Path) -> Path:
    to = cache / _cache_name(f"s3://{bucket}/{name}", name)
    part = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        client.download_file(bucket, name, str(part))
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
    return to


def _client() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise BadInput('Reading from s3:// needs more packages; pip install "prudent[aws,train]".') from error
    return boto3.client("s3")
