"""The one way to read a web address: capped in size and time, and only from where the policy allows.

A service that fetches what strangers name is a way into the network it stands in. So the address is checked
when the connection is made (a name that is looked up twice can answer differently), for every redirect, and
the connection goes to the very address that was checked.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urljoin, urlsplit

from prudent._version import __version__
from prudent.core.errors import BadInput, RunFailed

_BLOCK = 1 << 16
_REDIRECTS = 5
_MOVED = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class AccessPolicy:
    """What may be read: from where, how much, for how long.

    `private` are all addresses that are not of the public internet: this machine, its network, the
    link-local address at which clouds tell credentials; `networks` are exceptions to it, as "10.1.0.0/16".
    `roots` are the folders from which local files may be read, `buckets` those that may be read; None is any.
    """

    private: bool = True
    networks: tuple[str, ...] = ()
    schemes: frozenset[str] = frozenset({"file", "http", "https", "s3"})
    roots: tuple[Path, ...] | None = None
    buckets: tuple[str, ...] | None = None
    largest_mb: float = 100_000.0
    """Of a file, and of what comes out of it when it is packed."""
    most_columns: int = 1_000_000
    largest_table_mb: float = 17_200.0
    """Of the data as a table of numbers, four bytes each; beyond that, they want a cluster."""
    longest_s: float = 3600.0
    connect_s: float = 20.0

    def permits(self, address: str) -> bool:
        """Whether a connection to this IP address may be made.

        >>> AccessPolicy(private=False, networks=("10.1.0.0/16",)).permits("10.1.2.3")
        True
        """
        if self.private or is_public(address):
            return True
        ip = ipaddress.ip_address(address.partition("%")[0])
        return any(ip in ipaddress.ip_network(network, strict=False) for network in self.networks)


UNRESTRICTED = AccessPolicy()
"""For someone at their own machine: everything, within generous caps."""

_in_force: AccessPolicy | None = None


def restrict(policy: AccessPolicy) -> None:
    """From now on this process reads only what `policy` allows, whatever its callers say.

    For a process that works for others: one call where it starts covers every way to data.
    """
    global _in_force  # noqa: PLW0603 - one process, one policy
    _in_force = policy


def policy_in_force(policy: AccessPolicy = UNRESTRICTED) -> AccessPolicy:
    """The policy that this process was restricted to, or else the one at hand."""
    return policy if _in_force is None else _in_force


def fetch(url: str, to: Path, policy: AccessPolicy = UNRESTRICTED) -> Path:
    """Write what `url` holds to the file `to`, whole or not at all; answers `to`."""
    policy = policy_in_force(policy)
    deadline = time.monotonic() + policy.longest_s
    part = to.with_name(f".{to.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        _follow(url, part, policy, deadline)
        part.replace(to)
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline:
            raise _too_slow(url, policy) from error
        raise RunFailed(
            f'Cannot read "{without_secrets(url)}" ({_reason(error)}); check the address and the network.'
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return to


def without_secrets(url: str) -> str:
    """An address without what may be secret in it: user, password and query.

    >>> without_secrets("https://user:word@host/data.csv?key=secret")
    'https://host/data.csv'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet, also when one is wrapped in another.

    >>> is_public("93.184.216.34"), is_public("10.0.0.1"), is_public("::ffff:169.254.169.254")
    (True, False, False)
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]
        if inner is None and (ip in _NAT64 or ip in _COMPATIBLE):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not any(ip in n for n in _CLOSED)


_CLOSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments: one cloud tells credentials at 192.0.0.192
        "192.88.99.0/24",  # 6to4 relays
        "168.63.129.16/32",  # a cloud's own address inside its virtual networks
        "fec0::/10",  # site-local, as fc00::/7 was called before
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


def _follow(url: str, part: Path, policy: AccessPolicy, deadline: float) -> None:
    for _ in range(_REDIRECTS + 1):
        moved = _get(url, part, policy, deadline)
        if moved is None:
            return
        url = urljoin(url, moved)
    raise RunFailed(
        f'"{without_secrets(url)}" redirects more than {_REDIRECTS} times; give the final address.'
    )


def _get(url: str, part: Path, policy: AccessPolicy, deadline: float) -> str | None:
    """One request; answers where to go instead, if the server says so."""
    parts = _checked(url, policy)
    connection = _connect(url, parts, policy, deadline)
    # A server that drips bytes keeps every single read within its time limit, so the whole is limited too.
    watch = threading.Timer(max(deadline - time.monotonic(), 0.0), _hang_up(connection))
    watch.daemon = True
    watch.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"User-Agent": f"prudent/{__version__}", "Accept-Encoding": "identity", "Accept": "*/*"}
        connection.request("GET", target, headers=headers)
        response = connection.getresponse()
        if response.status in _MOVED and response.getheader("Location"):
            return response.getheader("Location")
        if response.status != 200:
            raise RunFailed(
                f'"{without_secrets(url)}" answers {response.status} {response.reason}; check the '
                "address and whether it needs a login."
            )
        _write(url, response, part, policy, deadline)
        return None
    finally:
        watch.cancel()
        connection.close()


def _checked(url: str, policy: AccessPolicy) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadInput(f'"{url}" is not a web address ({error}); correct it.') from error
    if parts.scheme not in ("http", "https") or parts.scheme not in policy.schemes:
        raise BadInput(
            f'"{without_secrets(url)}" is not read here; use an http or https address that is allowed.'
        )
    if not parts.hostname:
        raise BadInput(f'"{without_secrets(url)}" names no host; write it as https://host/path.')
    if parts.username or parts.password:
        raise BadInput(
            f'"{without_secrets(url)}" has a user name in it, which is not sent; use an address without one.'
        )
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
        raise BadInput(f'"{without_secrets(url)}" has spaces in it; write them as %20.')
    return parts


def _connect(
    url: str, parts: SplitResult, policy: AccessPolicy, deadline: float
) -> http.client.HTTPConnection:
    """A connection to an address that the policy allows; the name is looked up once."""
    host, secure = str(parts.hostname), parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RunFailed(f'The host "{host}" is not known; check the address and the network.') from error
    addresses = list(dict.fromkeys(str(place[4][0]) for place in found))
    if not all(policy.permits(address) for address in addresses):
        raise BadInput(
            f'"{without_secrets(url)}" leads to an address inside a private network, which is not '
            "read here; put the data where the internet can read them, or into the bucket."
        )
    wait_s = max(min(policy.connect_s, deadline - time.monotonic()), 0.001)
    raw = _first_that_answers(addresses, port, wait_s)
    try:
        sock = ssl.create_default_context().wrap_socket(raw, server_hostname=host) if secure else raw
    except OSError:
        raw.close()
        raise
    connection = http.client.HTTPConnection(host, port, timeout=wait_s)
    connection.sock = sock
    if secure:
        connection.default_port = 443  # decides whether the Host header names the port
    return connection


def _first_that_answers(addresses: list[str], port: int, wait_s: float) -> socket.socket:
    for number, address in enumerate(addresses):
        try:
            return socket.create_connection((address, port), timeout=wait_s)
        except OSError:
            if number == len(addresses) - 1:
                raise
    raise OSError("no address")


def _hang_up(connection: http.client.HTTPConnection) -> Callable[[], None]:
    sock = connection.sock

    def hang_up() -> None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            sock.close()

    return hang_up


def _write(
    url: str, response: http.client.HTTPResponse, part: Path, policy: AccessPolicy, deadline: float
) -> None:
    most = int(policy.largest_mb * 1e6)
    if response.getheader("Content-Encoding", "identity") != "identity":
        raise RunFailed(
            f'"{without_secrets(url)}" is sent compressed although it was not asked to be; store it plainly.'
        )
    if response.length is not None and response.length > most:
        raise _too_large(url, policy)
    size = 0
    with part.open("wb") as file:
        while block := response.read1(_BLOCK):
            size += len(block)
            if size > most:
                raise _too_large(url, policy)
            file.write(block)
    if time.monotonic() >= deadline:
        raise _too_slow(url, policy)
    if response.length:
        raise RunFailed(f'"{without_secrets(url)}" ended {response.length} bytes early; try again.')


def _too_large(url: str, policy: AccessPolicy) -> BadInput:
    return BadInput(
        f'"{without_secrets(url)}" is larger than the {policy.largest_mb:g} MB that are read here; use a '
        "smaller file."
    )


def _too_slow(url: str, policy: AccessPolicy) -> RunFailed:
    return RunFailed(
        f'"{without_secrets(url)}" took longer than {policy.longest_s:g} s; try again, or fetch it '
        "yourself first."
    )


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
