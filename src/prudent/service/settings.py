"""How a service is set up: by flags, PRUDENT_* variables and a YAML file, in this order."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from prudent.core.errors import BadInput, unknown
from prudent.core.memory import total_mb
from prudent.core.processes import WORK_NICE

PREFIX = "PRUDENT_"
SECRETS = ("database_url", "smtp_password", "webhook_secret")
"""Read from files or the environment only, and never shown."""
_SHARE = 0.8
LEAST_MB = 512.0
"""A run is given no less memory than this."""


@dataclass(frozen=True)
class Settings:
    """Everything that an operator can set. `load` reads it; tests may build it directly.

    >>> Settings(Path("/srv/prudent"), smtp_password="hush").database
    'sqlite:////srv/prudent/prudent.db'
    >>> "hush" in repr(Settings(Path("/srv/prudent"), smtp_password="hush"))
    False
    """

    home: Path
    host: str = "127.0.0.1"
    port: int = 8080
    database_url: str | None = field(default=None, repr=False)
    """Where runs are kept; a SQLite file in the home otherwise."""
    artifacts: str | None = None
    """Where results go: a folder or s3://bucket/prefix; the run's own folder otherwise."""
    public_url: str | None = None
    """How people reach the service, for links in mails."""
    data: tuple[Path, ...] = ()
    """Folders, beside HOME/data, from which requests may read data."""
    own_data: tuple[Path, ...] = ()
    """Folders from which only the operator's own requests may read data."""

    # Work
    workers: int = 1
    concurrency: int = 2
    """Runs at a time per worker."""
    per_user: int = 8
    """Runs of one user at a time, over all workers."""
    memory_mb: float | None = None
    """Memory that one run may use, with everything it starts; unless it is set, the runs that this machine
    does at a time share four fifths of what it has."""
    tries: int = 3
    """A run that ended its worker so often is not tried again."""
    heartbeat_s: float = 2.0
    takeover_s: float = 20.0
    """A worker that has not been heard of for so long is dead; its runs go to others."""
    grace_s: float = 30.0
    """How long running work may go on after SIGTERM."""
    poll_s: float = 0.1
    nice: int = WORK_NICE
    """How far work gives way to the processes that answer, as `nice` has it; 0 where workers have a machine
    of their own."""
    warm: bool = True
    """Have the libraries of training loaded before the first request asks for them; without, workers begin
    sooner and need less memory."""
    engine: Literal["local", "spark"] = "local"
    """Where training requests are done that ask for no machines."""
    where: str | None = None
    """Where machines are rented for training requests that ask for some: local, local:PRICES.csv,
    hosts:INVENTORY.yaml or ec2:CONFIG.yaml; None rents none."""
    keep_days: float | None = None
    """Ended runs older than this are removed; None keeps all."""

    # Who may what
    tokens: Path | None = None
    """A YAML or JSON file of users, their tokens' hashes, roles and limits."""
    trusted_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    rate_per_s: float = 1000.0
    """Requests of one user per second, in the long run."""
    requests_at_once: int = 4
    """Requests of one user that are worked on at a time, and below how many more may wait for their turn."""
    requests_waiting: int = 50
    body_mb: float = 8.0
    private_networks: tuple[str, ...] = ()
    """Private addresses from which data may be read all the same, such as 10.1.0.0/16."""
    buckets: tuple[str, ...] = ()
    """Buckets from which data may be read; none named is any that the service's account may."""
    largest_data_mb: float = 2000.0
    """Of a file of data, and of what comes out of a packed one."""
    longest_fetch_s: float = 600.0
    most_columns: int = 100_000
    largest_table_mb: float = 4000.0
    """Of data as a table of numbers, four bytes each."""
    waiting: int = 100_000
    """Runs that may wait, of all users, and below of one; more are answered 429."""
    waiting_per_user: int = 10_000
    waiting_mb: float = 2000.0
    """Documents of waiting runs in all, and below of one user; those below 64 kB do not count."""
    waiting_mb_per_user: float = 200.0
    followers: int = 500
    """Event streams at a time, in all and below of one user; more are answered 429."""
    followers_per_user: int = 50
    headers_s: float = 10.0
    """A connection whose request is not begun by then, or not whole up to its body, is closed."""

    # Commands of requests
    run_as: str | None = None
    """The account that commands of requests run as; only root can change to it."""
    bubblewrap: bool = True
    """Run them in bubblewrap, where it is installed and there is no `run_as`."""
    command_environment: tuple[str, ...] = ()
    """Variables that they get beside harmless ones, such as AWS_ACCESS_KEY_ID."""
    command_memory_mb: float | None = None
    """The memory of each of their processes; that of the machine otherwise."""
    command_cpu_s: float = 86400.0
    command_processes: int = 4096
    command_file_mb: float = 20_000.0
    secret_files: tuple[Path, ...] = ()
    """Files that secrets were read from; commands do not see them."""

    # Other sources of requests
    watch: Path | None = None
    """A folder in which dropped documents are taken."""
    queue: str | None = None
    """A queue by URL: sqs (https://sqs…) or a folder (file:///…)."""
    bucket: str | None = None
    """A bucket in which dropped documents are taken: s3://bucket/prefix."""
    intake_user: str | None = None
    """Whose the documents from folder, queue and bucket are, with that user's role and limits; otherwise
    those of a plain member named after the source."""

    # Telling people
    smtp_host: str | None = None
    smtp_port: int = 587
    smtp_user: str | None = None
    smtp_password: str | None = field(default=None, repr=False)
    smtp_from: str | None = None
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    smtp_ca: Path | None = None
    """A file of certificates that vouch for the mail server, where it is of the house's own authority."""
    mail_domains: tuple[str, ...] = ()
    """Domains to which requests may have mail sent; otherwise to their sender's own address only."""
    webhook_url: str | None = None
    webhook_secret: str | None = field(default=None, repr=False)

    @property
    def database(self) -> str:
        """The URL of the store, as SQLAlchemy wants it."""
        if self.database_url is None:
            return f"sqlite:///{self.home.absolute() / 'prudent.db'}"
        for short in ("postgresql://", "postgres://"):
            if self.database_url.startswith(short):
                return f"postgresql+psycopg://{self.database_url.removeprefix(short)}"
        return self.database_url

    @property
    def engine_database(self) -> str:
        """The URL of what the engine remembers: a file of its own beside a SQLite store, so that neither
        waits for the other; the same database, in a schema of its own, on PostgreSQL."""
        if self.database.startswith("sqlite:///"):
            return self.database.removesuffix(".db") + "-engine.db"
        return self.database

    @property
    def run_memory_mb(self) -> float:
        """What one run may use, with everything it starts."""
        if self.memory_mb is not None:
            return self.memory_mb
        return max(_SHARE * total_mb() / (max(self.workers, 1) * self.concurrency), LEAST_MB)

    @property
    def runs(self) -> Path:
        """The folder of the runs' folders."""
        return self.home / "runs"

    @property
    def data_folders(self) -> tuple[Path, ...]:
        """The folders of local data; relative paths are looked for there, in this order."""
        return (self.home / "data", *self.data)

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the service."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def folder_of(self, run_id: str) -> Path:
        """Where a run keeps its journal, models, report and log."""
        return self.runs / run_id

    def create(self) -> None:
        """Make the folders there must be; only their owner may look in, also where they were there before."""
        for folder in (self.home, self.runs, self.home / "data"):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _close(folder)
            except OSError as error:
                raise BadInput(
                    f'Cannot write to "{folder}" ({error.strerror}); choose another --home.'
                ) from error
        for path in self.home.iterdir():
            _close(path)


def load(
    flags: Mapping[str, Any], file: Path | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Settings of what is said on the command line, in the environment and in a file; the first wins.

    A secret is named in a file only by a path, such as `smtp_password_file: /run/secrets/smtp`.

    >>> load({"home": "/srv/prudent", "port": 9000}, environment={"PRUDENT_PER_USER": "3"}).per_user
    3
    """
    said: dict[str, Any] = {}
    if file is not None:
        said.update(_of_file(file))
    said.update(_of_environment(os.environ if environment is None else environment))
    said.update({name: value for name, value in flags.items() if value not in (None, (), [])})
    said.setdefault("home", Path.home() / ".local" / "share" / "prudent")
    return _checked(said)


def _close(path: Path) -> None:
    """Shut others out of a folder or file; the group of `run_as` may keep its way through folders."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # it was there for a moment only
        return
    if stat.S_ISDIR(mode) and stat.S_IMODE(mode) not in (0o700, 0o710, 0o750):
        path.chmod(0o700)
    elif stat.S_ISREG(mode) and mode & 0o077:
        path.chmod(stat.S_IMODE(mode) & 0o700)


def environment_of(settings: Settings) -> dict[str, str]:
    """The variables by which another process gets the same settings; for it alone, there are secrets in it.

    >>> environment_of(Settings(Path("/srv/prudent"), data=(Path("/a"), Path("/b"))))["PRUDENT_DATA_FOLDERS"]
    '/a,/b'
    """
    said: dict[str, str] = {}
    for each in fields(Settings):
        value = getattr(settings, each.name)
        if isinstance(value, tuple):
            value = ",".join(str(part) for part in value) or None
        if value is not None:
            said[_variable(each.name)] = str(value.absolute()) if isinstance(value, Path) else str(value)
    return said


def _variable(name: str) -> str:
    """PRUDENT_DATA is taken: it tells tests where data are."""
    return f"{PREFIX}{'DATA_FOLDERS' if name == 'data' else name.upper()}"


def _of_file(path: Path) -> dict[str, Any]:
    from prudent.core.documents import read_yaml

    try:
        said = read_yaml(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise BadInput(f'Cannot read the settings "{path}" ({error.strerror}); check the path.') from error
    if not isinstance(said, Mapping):
        raise BadInput(f'"{path}" holds no settings; write them like "port: 8080".')
    for name in SECRETS:
        if name in said and not (name == "database_url" and "@" not in str(said[name])):
            raise BadInput(
                f'"{path}" holds the secret {name}; write {name}_file with the path of a file that has it.'
            )
    return _read_secrets({str(name): value for name, value in said.items()}, path.parent)


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    known = [each.name for each in fields(Settings)] + [f"{name}_file" for name in SECRETS]
    found = {name: environment[key] for name in known if (key := _variable(name)) in environment}
    return _read_secrets(found, Path())


def _read_secrets(said: dict[str, Any], folder: Path) -> dict[str, Any]:
    for name in SECRETS:
        path = said.pop(f"{name}_file", None)
        if path is not None:
            try:
                said[name] = (folder / str(path)).read_text(encoding="utf-8").strip()
                said["secret_files"] = (*_listed(said.get("secret_files")), (folder / str(path)).absolute())
            except OSError as error:
                raise BadInput(
                    f'Cannot read {name}_file "{path}" ({error.strerror}); check the path.'
                ) from error
    return said


def _listed(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value or ())


def _checked(said: dict[str, Any]) -> Settings:
    from pydantic import TypeAdapter, ValidationError

    known = {each.name: str(each.type) for each in fields(Settings)}
    for name, value in said.items():
        if name not in known:
            raise unknown("setting", name, known)
        if known[name].startswith("tuple") and isinstance(value, str | list):
            said[name] = _listed(value)
    try:
        settings = TypeAdapter(Settings).validate_python(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"The setting {place} does not fit ({first['msg']}); correct it.") from None
    _check_numbers(settings)
    for name in settings.buckets:
        if "/" in name or ":" in name:
            raise BadInput(
                f'"{name}" is not a name of a bucket; write buckets as names, without s3:// or a path.'
            )
    return settings


def _check_numbers(settings: Settings) -> None:
    least = {"concurrency": 1, "per_user": 1, "tries": 1, "workers": 0, "waiting": 1, "waiting_per_user": 1}
    least |= {"followers": 0, "followers_per_user": 0, "most_columns": 1, "command_processes": 1}
    least |= {"requests_at_once": 1, "requests_waiting": 0, "nice": 0}
    if settings.memory_mb is not None:
        least["memory_mb"] = int(LEAST_MB)
    for name, lowest in least.items():
        if getattr(settings, name) < lowest:
            raise BadInput(f"The setting {name} is {getattr(settings, name)}; give {lowest} or more.")
    if not 0 < settings.heartbeat_s * 3 <= settings.takeover_s:
        raise BadInput(
            f"A worker is given up after {settings.takeover_s:g} s but heard of every "
            f"{settings.heartbeat_s:g} s; set takeover_s to at least three heartbeats."
        )
