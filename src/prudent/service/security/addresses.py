"""Where the data of a request may lie: http(s) and s3, and folders that the operator allows.

What is refused here is refused at once, with the request. The address that a name leads to is checked again
when the connection is made, by the one function that reads addresses: `prudent.training.data.fetch`, which
the work's process is restricted to with `policy`.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from prudent.core.errors import BadInput
from prudent.service.security.paths import within
from prudent.training.data.fetch import Policy, shown

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
) -> Policy:
    """What the service reads for others; `networks` are private ones that the operator allows."""
    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError as error:
            raise BadInput(f'"{network}" is no network; write it as 10.1.0.0/16.') from error
    schemes = {"http", "https", "s3", *(["file"] if roots else [])}
    return Policy(
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


def check_place(place: str, policy: Policy) -> str:
    """The place of a data set as it is read: an address, or a path below an allowed folder.

    >>> check_place("https://example.org/data.csv", policy_of())
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


def _checked_bucket(rest: str, policy: Policy) -> str:
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket or not key:
        raise BadInput(f'"s3://{rest}" names no file in a bucket; write it as s3://bucket/path.')
    if policy.buckets is not None and bucket not in policy.buckets:
        raise BadInput(f'The bucket "{bucket}" is not read here; put the data into one that is.')
    return f"s3://{bucket}/{key}"


def _checked_address(place: str, policy: Policy) -> str:
    try:
        parts = urlsplit(place)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadInput("The address of the data is none; write it as https://host/path.") from error
    if not host or parts.username is not None or parts.password is not None or "\\" in place or " " in place:
        raise BadInput(
            f'"{shown(place)}" is no address that is read here; write it as https://host/path, without a '
            "user, spaces or backslashes."
        )
    if port == 0:
        raise BadInput(f'"{shown(place)}" has port 0, where nothing answers; correct it.')
    address = _literal(host)
    if address is not None and not policy.permits(address):
        raise BadInput(
            f'"{shown(place)}" leads to an address inside a private network, which is not read here; put the '
            "data where the internet can read them, or into the bucket."
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
