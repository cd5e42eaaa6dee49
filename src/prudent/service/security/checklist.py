"""The checklist of a secure service, tried on one that runs: what is not as it should be, and the remedy."""

from __future__ import annotations

import grp
import http.client
import ipaddress
import json
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import sqlalchemy as sa

from prudent.core.errors import BadInput
from prudent.core.memory import total_mb
from prudent.service.security.accounts import all_accounts
from prudent.service.security.data_locations import policy_of
from prudent.service.security.protection import hosts_of, is_local_only
from prudent.service.security.tokens import TOKEN_FILE, AccessMode, operator, write_private_file
from prudent.service.settings import LEAST_MB, PREFIX, SECRETS, Settings, environment_of, load
from prudent.service.store.store import Store
from prudent.service.store.users import COMMANDER, OPERATOR, User
from prudent.service.worker.sandbox import ACCOUNT, NO_SANDBOX, sandbox_of

_PATIENCE_S = 10.0
_MOST_BODY_MB, _MOST_PER_S = 100.0, 10_000.0
_MOST_HEADERS_S = 60.0
_SHORTEST_TOKEN = 32
_METADATA = (
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "169.254.170.2",
    "169.254.170.23",
    "fd00:ec2::254",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
)
"""Where clouds tell credentials to whoever asks."""
_SANDBOX = "null"
"""What a browser says instead of the origin of a page in a sandbox, which any site can make."""
_PASSWORD_ELSEWHERE = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLCERT")
FILE = "service.json"
_SECRET = {f"{PREFIX}{name.upper()}" for name in SECRETS}


@dataclass(frozen=True)
class ServiceFile:
    """A service that runs, or ran last."""

    address: str
    pid: int
    settings: Settings
    sandboxed: bool = True
    """Whether it found a wall around commands when it was started."""
    secrets: frozenset[str] = frozenset()
    """Which secret settings it has; what they are is not told."""

    @classmethod
    def read(cls, home: Path) -> ServiceFile:
        try:
            said = json.loads((home / FILE).read_text(encoding="utf-8"))
            settings = load({}, None, {**said["settings"], **(_own_database() if said["elsewhere"] else {})})
            secrets = frozenset(str(name) for name in said["secrets"])
            return cls(str(said["address"]), int(said["pid"]), settings, bool(said["walled"]), secrets)
        except FileNotFoundError:
            raise BadInput(
                f'No service has run in "{home}"; start it with "prudent serve --home {home}", then check.'
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f'"{home / FILE}" cannot be read ({error}); start the service again.') from error


def _own_database() -> dict[str, str]:
    """The database of a service whose users are not in its home; its address is a secret."""
    names = (f"{PREFIX}DATABASE_URL", f"{PREFIX}DATABASE_URL_FILE")
    found = {name: os.environ[name] for name in names if name in os.environ}
    if not found:
        raise BadInput(
            "Its users are in a database; set PRUDENT_DATABASE_URL as for the service, then check."
        )
    return found


def write_service_file(settings: Settings, address: str, sandboxed: bool) -> Path:
    """Write it, for `prudent check --service`; answers the file."""
    said = {name: value for name, value in environment_of(settings).items() if name not in _SECRET}
    elsewhere = settings.database_url is not None
    document = {
        "address": address,
        "pid": os.getpid(),
        "elsewhere": elsewhere,
        "walled": sandboxed,
        "secrets": [name for name in SECRETS if getattr(settings, name)],
        "settings": said,
    }
    write_private_file(settings.home / FILE, json.dumps(document, indent=2) + "\n")
    return settings.home / FILE


Check = Callable[[ServiceFile, tuple[User, ...]], Iterator[str]]


def run_checklist(home: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Each part of the checklist, with what is wrong there."""
    service = ServiceFile.read(home)
    with Store(service.settings.database) as store:
        users = all_accounts(store, service.settings)
    return [(name, tuple(check(service, users))) for name, check in PARTS]


def _modes(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    del users
    home = service.settings.home
    folders = (0o700, 0o710) if service.settings.run_as else (0o700,)
    found = home.stat()
    if found.st_uid != _owner(service.pid):
        yield f'"{home}" belongs to another account; give it to the one that the service runs as.'
    if stat.S_IMODE(found.st_mode) not in folders:
        yield f'Others may look into "{home}"; chmod 700 it, or start the service again.'
    shared = 0o007 if service.settings.run_as else 0o077  # that account passes through, and reads data
    for path in sorted(home.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            yield f'Others may read "{path}"; chmod 600 it, or start the service again.'
        if stat.S_ISDIR(mode) and mode & shared:
            yield f'Others may look into "{path}"; chmod 700 it, or start the service again.'
    for parent in dict.fromkeys((*home.absolute().parents, *home.resolve().parents)):
        if _others_write(parent.stat()):
            yield f'Others may put another home in place of this one: chmod go-w "{parent}".'
    for file in dict.fromkeys(service.settings.secret_files):
        if file.exists() and file.stat().st_mode & 0o077:
            yield f'Others may read the secret in "{file}"; chmod 600 it.'


def _tokens(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    home = service.settings.home
    if AccessMode(home).chosen_open:
        yield "It is open: whoever can log in to this machine may do everything; say --no-open at its start."
    elif operator(home) is None:
        yield f'There is no "{home / TOKEN_FILE}"; start the service again to get one.'
    elif len((home / TOKEN_FILE).read_text(encoding="utf-8").strip()) < _SHORTEST_TOKEN:
        yield f'The token in "{home / TOKEN_FILE}" can be guessed; delete it and start the service again.'
    file = service.settings.tokens
    if file is not None and file.exists() and file.stat().st_mode & 0o022:
        yield f'Others may write to the tokens "{file}"; chmod 600 it.'
    without = [user.name for user in users if not user.token_hash]
    if without:
        yield f"Some users have no token ({', '.join(without)}); remove them, or give them one."


def _strangers(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    """What somebody without a token gets, asked for at the running service."""
    del users
    for origin in service.settings.cors_origins:
        if "*" in origin or origin == _SANDBOX:
            yield f'cors_origins has "{origin}", which is no one site; name those whose scripts may call.'
    try:
        plain = _status(service, {})
        forwarded = _status(service, {"Via": "1.1 proxy", "X-Forwarded-Host": "elsewhere.example"})
        misnamed = _status(service, {"Host": "elsewhere.example"})
    except OSError as error:
        yield f"Nothing answers at {service.address} ({error.strerror or error}); start the service first."
        return
    if plain != 401 and not AccessMode(service.settings.home).chosen_open:
        yield f"A request without a token is answered with {plain}, not 401; start the service again."
    if forwarded != 401:
        yield f"What a proxy brings without a token is answered with {forwarded}, not 401; upgrade Prudent."
    if hosts_of(service.settings) and misnamed != 421:
        yield f"A request for another host is answered with {misnamed}, not 421; start the service again."


def _proxy(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    del users
    settings = service.settings
    if is_local_only(settings):
        return
    if urlsplit(settings.public_url or "").scheme != "https":
        yield (
            "Others reach it, and tokens may travel unencrypted; put a proxy with a certificate in front and "
            "set public_url to its https address."
        )
    if not settings.loopback:
        yield f'It listens on "{settings.host}" itself; listen on 127.0.0.1 and let the proxy be reached.'
    if not settings.trusted_hosts:
        yield "It answers to any name; set trusted_hosts to those it is known by."


def _limits(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    settings = service.settings
    if settings.body_mb > _MOST_BODY_MB:
        yield f"Bodies may have {settings.body_mb:g} MB; set body_mb to what requests need."
    if settings.rate_per_s > _MOST_PER_S:
        yield f"A user may send {settings.rate_per_s:g} requests a second; set rate_per_s lower."
    if settings.headers_s > _MOST_HEADERS_S:
        yield f"A connection may say nothing for {settings.headers_s:g} s; set headers_s lower."
    at_once = max(settings.workers, 1) * settings.concurrency
    if at_once * settings.run_memory_mb > max(total_mb(), at_once * LEAST_MB):
        yield (
            f"Its {at_once} runs at a time may use {settings.run_memory_mb:,.0f} MB each, together more than "
            "this machine has; set memory_mb or concurrency lower."
        )
    if settings.where is not None:
        free = [user.name for user in users if user.name != OPERATOR and user.daily_usd is None]
        if free:
            yield f"Some may spend any amount on machines ({', '.join(free)}); give them --daily-usd."


def _data(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    del users
    settings = service.settings
    for network in settings.private_networks:
        try:
            policy = policy_of(networks=(network,))
        except BadInput as error:
            yield str(error)
            continue
        if ipaddress.ip_network(network, strict=False).prefixlen == 0:
            yield f'private_networks has "{network}", which is every address; name the networks with data.'
        elif any(policy.permits(address) for address in _METADATA):
            yield (
                f'private_networks has "{network}", where the cloud tells the credentials of this machine; '
                "name a smaller network."
            )
    closed = [path.resolve() for path in (settings.home, settings.tokens, *settings.secret_files) if path]
    data = settings.home.resolve() / "data"
    for folder in (each.expanduser().resolve() for each in settings.data):
        inside = folder.is_relative_to(closed[0]) and not folder.is_relative_to(data)
        found = [path for path in closed if path.is_relative_to(folder)] or closed[: int(inside)]
        if found:
            yield f'Requests may read "{found[0]}": "{folder}" is in data; name a folder of data alone.'


def _database(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    """Whether the server lets us in without a password, as far as can be told from the URL."""
    del users
    url = sa.make_url(service.settings.database)
    said = {name.lower() for name in url.query}
    elsewhere = any(name in os.environ for name in _PASSWORD_ELSEWHERE) or (Path.home() / ".pgpass").exists()
    if url.get_backend_name() != "postgresql" or url.password or elsewhere:
        return
    if said & {"password", "passfile", "service", "sslcert"}:
        return
    hosts = url.query.get("host", ()) if "host" in said else (url.host or "",)
    hosts = (hosts,) if isinstance(hosts, str) else hosts
    if any(host and not host.startswith(("/", "@")) for each in hosts for host in each.split(",")):
        yield (
            "The database seems to let anybody in who reaches it: its URL has no password; have the server "
            "ask for one (scram-sha-256 in pg_hba.conf), and put it into the URL."
        )


def _commands(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    try:
        sandbox = sandbox_of(service.settings)
    except BadInput as error:
        yield str(error)
        return
    if sandbox is not None and not service.sandboxed:
        yield "It was started before there was a wall around commands; start it again."
    if sandbox is None:
        names = [user.name for user in users if user.name != OPERATOR and user.may(COMMANDER)]
        yield NO_SANDBOX + (f" These may run commands: {', '.join(names)}." if names else "")
    elif sandbox.kind != ACCOUNT and _owner(service.pid) == 0:
        yield "It runs as root; start it as an account of its own, or set run_as."


def _mail(service: ServiceFile, users: tuple[User, ...]) -> Iterator[str]:
    del users
    settings = service.settings
    if settings.smtp_host is not None and settings.smtp_security == "none":
        yield "Mail goes unencrypted; set smtp_security to starttls or tls."
    if settings.webhook_url is not None and urlsplit(settings.webhook_url).scheme != "https":
        yield "The webhook is told unencrypted; give it an https address."
    if settings.webhook_url is not None and "webhook_secret" not in service.secrets:
        yield "The webhook is not signed, and anybody may send such news; set webhook_secret_file."


PARTS: tuple[tuple[str, Check], ...] = (
    ("modes", _modes),
    ("tokens", _tokens),
    ("strangers", _strangers),
    ("proxy", _proxy),
    ("limits", _limits),
    ("data", _data),
    ("database", _database),
    ("commands", _commands),
    ("mail", _mail),
)


def _status(service: ServiceFile, headers: dict[str, str]) -> int:
    parts = urlsplit(service.address)
    line = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=_PATIENCE_S)
    try:
        line.request("GET", "/v1/runs", headers=headers)
        return line.getresponse().status
    finally:
        line.close()


def _others_write(found: os.stat_result) -> bool:
    """Whether others may rename what is in a folder; in a sticky one, nobody but its owner may.

    A group that is its owner's own, as many systems give to each account, is no other.
    """
    if found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & 0o002) or (bool(found.st_mode & 0o020) and not _own_group(found))


def _own_group(found: os.stat_result) -> bool:
    try:
        group, owner = grp.getgrgid(found.st_gid), pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return False
    return group.gr_name == owner and not set(group.gr_mem) - {owner}


def _owner(pid: int) -> int:
    """The account of a process; ours if it does not run, or not on this machine."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return os.geteuid()
