"""Where a request may read data from: http(s) and s3, and folders that the operator allows.

What is refused here is refused at once, with the request. The address that a name leads to is checked again
when the connection is made, by the one function that reads addresses: `prudent.training.data.fetch`, which
the work's process is restricted to with `policy`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prudent.core.errors import BadInput, did_you_mean
from prudent.training.data.fetch import AccessPolicy, without_secrets

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def policy_of(
    roots: Sequence[Path] = (),
    networks: Sequence[str] = (),
    buckets: Sequence[str] | None = None,
    largest_mb: float = 10_000.0,
    longest_s: float = 1800.0,
    most_columns: int = 100_000,
    largest_table_mb: float = 4000.0,
) -> AccessPolicy:
    """What the service reads for others; `networks` are private ones that the operator allows."""
    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError as error:
            raise BadInput(f'"{network}" is not a network; write it as 10.1.0.0/16.') from error
    schemes = {"http", "https", "s3", *(["file"] if roots else [])}
    return AccessPolicy(
        private=False,
        networks=tuple(networks),
        schemes=frozenset(schemes),
        roots=tuple(Path(root).expanduser().resolve() for root in roots),
        buckets=None if buckets is None else tuple(buckets),
        largest_mb=largest_mb,
        longest_s=longest_s,
        most_columns=most_columns,
        largest_table_mb=largest_table_mb,
    )


def check_location(place: str, policy: AccessPolicy) -> str:
    """The place of a data set as it is read: an address, or a path below an allowed folder.

    >>> check_location("https://example.org/data.csv", policy_of())
    'https://example.org/data.csv'
    """
    if not isinstance(place, str) or not place or len(place) > 4096:
        raise BadInput("Data need a place of 1 to 4096 characters; name an http, https or s3 address.")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in place):
        raise BadInput("The place of the data has control characters in it; correct it.")
    scheme, separator, rest = place.partition("://")
    if not separator:
        if _SCHEME.match(place) and not place.lower().startswith("file:"):
            raise _unread(place.partition(":")[0])
        return str(within(place, policy.roots or ()))
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme.lower(), scheme.lower())
    if scheme == "file":
        return str(within(place, policy.roots or ()))
    if scheme not in policy.schemes:
        raise _unread(scheme)
    if scheme == "s3":
        return _checked_bucket(rest, policy)
    return _checked_address(place, policy)


def _checked_bucket(rest: str, policy: AccessPolicy) -> str:
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket or not key:
        raise BadInput(f'"s3://{rest}" names no file in a bucket; write it as s3://bucket/path.')
    if policy.buckets is not None and bucket not in policy.buckets:
        raise BadInput(f'The bucket "{bucket}" is not read here; put the data into one that is.')
    return f"s3://{bucket}/{key}"


def _checked_address(place: str, policy: AccessPolicy) -> str:
    try:
        parts = urlsplit(place)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadInput("The address of the data is not valid; write it as https://host/path.") from error
    if not host or parts.username is not None or parts.password is not None or "\\" in place or " " in place:
        raise BadInput(
            f'"{without_secrets(place)}" is not an address that is read here; write it as '
            "https://host/path, without a user, spaces or backslashes."
        )
    if port == 0:
        raise BadInput(f'"{without_secrets(place)}" has port 0, where nothing answers; correct it.')
    address = _literal(host)
    if address is not None and not policy.permits(address):
        raise BadInput(
            f'"{without_secrets(place)}" leads to an address inside a private network, which is not read '
            "here; put the data where the internet can read them, or into the bucket."
        )
    return place


def _literal(host: str) -> str | None:
    """The IP address that a host is another spelling of, without asking anybody; None for a name.

    >>> _literal("0x7f.1"), _literal("2130706433"), _literal("example.org")
    ('127.0.0.1', '127.0.0.1', None)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))  # decimal, octal, hexadecimal, short
    except (OSError, UnicodeError):
        return None


def _unread(scheme: str) -> BadInput:
    return BadInput(f'Data are not read by "{scheme[:20]}"; use an http, https or s3 address.')


def scheme_of(path: str) -> str:
    """What a path begins with, `file` if nothing.

    >>> scheme_of("S3://bucket/key"), scheme_of("table.csv")
    ('s3', 'file')
    """
    scheme, sign, _ = path.partition("://")
    return scheme.lower() if sign else "file"


def resolve_in_folders(said: str, folders: Sequence[Path]) -> Path:
    """The file or folder that a request names, links followed; BadInput if it is not in a data folder.

    A relative path is looked for in each folder; what is hidden there (.ssh, .env) is no data. The message is
    the same whether something outside exists or not: what is there is nobody's business.
    """
    path = Path(said.partition("://")[2] if "://" in said else said)
    if "\0" in said:
        raise BadInput("The path has a zero byte in it; write it without.")
    for folder in folders:
        root = folder.resolve()
        found = _resolved(root / path)
        if found is None or not found.is_relative_to(root) or found == root:
            continue
        if not any(part.startswith(".") for part in found.relative_to(root).parts):
            return found
    near = [each.name for folder in folders if folder.is_dir() for each in folder.iterdir()]
    raise BadInput(
        f'There is no "{said[:200]}" in the data folders of this service.{did_you_mean(path.name, near)} '
        "Put the data there, or give an http(s) or s3 address."
    )


def _resolved(path: Path) -> Path | None:
    """What a path leads to, if there is something."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # not there, too long, a loop of links
        return None


def within(path: str, roots: Sequence[Path]) -> Path:
    """The file that `path` names, if it lies below one of `roots` after all links are followed.

    A relative path is looked for below each root. Nothing is said about files outside, not even whether they
    exist: the answer is the same.
    """
    plain = _plain(path)
    for root in roots:
        base = root.expanduser().resolve()
        found = Path(os.path.realpath(base / plain))
        if found.is_relative_to(base) and (found.exists() or len(roots) == 1 or plain.is_absolute()):
            return found
    raise _outside(path, roots)


def _plain(path: str) -> Path:
    if not path or len(path) > 4096 or any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise BadInput("A path must have 1 to 4096 printable characters; correct it.")
    text = unquote(urlsplit(path).path) if path.lower().startswith("file:") else path
    if "\0" in text or "\\" in text or text.startswith("~"):
        raise BadInput(f'"{path}" is not a path here; write it with / and without ~.')
    if ".." in Path(text).parts:
        raise BadInput(f'"{path}" goes up with ".."; write the path that is meant.')
    return Path(text)


def _outside(path: str, roots: Sequence[Path]) -> BadInput:
    if not roots:
        return BadInput(
            f'"{path}" is a path on the server, and none may be read; use an http, https or s3 address.'
        )
    return BadInput(f'"{path}" is outside the folders that are read here; put the data into one of them.')
