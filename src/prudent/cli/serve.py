"""`prudent serve`: requests by REST, browser, queue or dropped file; `prudent worker` runs them."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from prudent.cli.clusters import reaping
from prudent.cli.console import out, say
from prudent.cli.exits import handled_signals
from prudent.core.errors import BadInput
from prudent.core.processes import end_with_parent

if TYPE_CHECKING:
    from prudent.service.settings import Settings

_BACKLOG = 2048


Home = Annotated[
    Path | None,
    typer.Option(
        help="The folder of the service: database, data, runs. "
        "\\[default: $PRUDENT_HOME, or ~/.local/share/prudent]"
    ),
]
Config = Annotated[Path | None, typer.Option(help="A YAML file of settings.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        help="postgresql://host/name; give a password in PRUDENT_DATABASE_URL instead. "
        "\\[default: SQLite in the home]"
    ),
]
Artifacts = Annotated[
    str | None, typer.Option(help="Where results go: a folder or s3://bucket/prefix. \\[default: the home]")
]
Data = Annotated[
    list[Path] | None,
    typer.Option(help="Another folder, besides HOME/data, whose files requests may read; may be repeated."),
]
Where = Annotated[
    str | None,
    typer.Option(
        help="Where to rent machines for requests that ask for them: local, local:PRICES.csv, "
        "hosts:INVENTORY.yaml or ec2:CONFIG.yaml. \\[default: nowhere]"
    ),
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="The most runs at a time per worker. \\[default: 2]")
]


def serve(
    home: Home = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on. \\[default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port. \\[default: 8080]")] = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    artifacts: Artifacts = None,
    data: Data = None,
    where: Where = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="How many workers to start on this machine; 0 for none. \\[default: 1]"),
    ] = None,
    concurrency: Concurrency = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="A file of users and the hashes of their tokens. \\[default: those of prudent users]"
        ),
    ] = None,
    public_url: Annotated[
        str | None, typer.Option(help="The address at which people reach the service, for links in e-mails.")
    ] = None,
    watch: Annotated[
        Path | None, typer.Option(help="A folder; requests that are dropped there are submitted.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help="A queue to read requests from: an SQS URL or file:///DIR.")
    ] = None,
    bucket: Annotated[
        str | None, typer.Option(help="A bucket to read requests from: s3://bucket/prefix.")
    ] = None,
    is_open: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Require no token, for use on this machine only; remembered in the home. "
            "\\[default: as last time, at first --no-open]",
        ),
    ] = None,
) -> None:
    """Serve Prudent to a team: REST, dashboard, queues; submitted requests survive crashes."""
    said = {
        "host": host,
        "port": port,
        "artifacts": artifacts,
        "data": data,
        "where": where,
        "workers": workers,
        "concurrency": concurrency,
        "tokens": tokens,
        "public_url": public_url,
        "watch": watch,
        "queue": queue,
        "bucket": bucket,
    }
    settings = read_service_settings(home, config, database_url, said)
    _run(settings, is_open)


def _run(settings: Settings, is_open: bool | None) -> None:
    from prudent.service.intake.sources import SourceThreads, sources_of
    from prudent.service.logs import json_lines
    from prudent.service.notify.notifier import Notifier
    from prudent.service.security import protection
    from prudent.service.security.tokens import make_token
    from prudent.service.store.store import Store
    from prudent.service.web.app import create_app
    from prudent.service.worker import artifacts, machines
    from prudent.service.worker.sandbox import NO_SANDBOX, sandbox_of
    from prudent.service.worker.supervisor import WorkerSupervisor

    settings.create()
    machines.check(settings.where, settings.home)
    artifacts.check(settings.artifacts)
    with ExitStack() as stack:
        stack.enter_context(private_files())
        stack.enter_context(json_lines())
        store = stack.enter_context(Store(settings.database))
        access = protection.check_access(settings, store, is_open)
        wall = sandbox_of(settings)
        token = make_token(settings.home)
        settings = protection.with_own_folders(settings)
        app = create_app(settings, store)
        # The web server ends at a signal and then raises it again; workers are still to drain.
        stack.enter_context(handled_signals(lambda *_: None, signal.SIGTERM, signal.SIGINT))
        stack.enter_context(reaping(settings.home, also=lambda: machines.reap_sandboxed(wall, settings.runs)))
        supervisor = WorkerSupervisor(settings, settings.workers)
        stack.callback(supervisor.stop)
        supervisor.start()
        stack.callback(Notifier(settings).start().stop)
        stack.callback(SourceThreads(sources_of(settings, store)).start().stop)
        said = sign_in_lines(settings.home, access.chosen_open, token)
        _serve(app, settings, said if wall is not None else (*said, NO_SANDBOX), wall is not None)


def _serve(app: Any, settings: Settings, said: Sequence[str], walled: bool) -> None:
    """Serve; `said` is told when the address is known, for which {address} stands."""
    import uvicorn

    from prudent.service.security.checklist import write_service_file
    from prudent.service.web.connections import (
        GradualServer,
        answer_promptly,
        connection_type,
        raise_open_files,
    )

    raise_open_files()
    answer_promptly()
    config = uvicorn.Config(
        app,
        http=connection_type(settings.headers_s),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    server = GradualServer(config)
    listening = _listening(settings)
    place = listening.getsockname()
    shown = f"[{place[0]}]" if ":" in place[0] else place[0]
    address = f"http://{shown}:{place[1]}"
    write_service_file(settings, address, walled)
    say(out(), f"Prudent serves at {address} (home: {settings.home}). Ctrl-C ends it.")
    for line in said:  # a link that is broken in two cannot be followed
        out().print(line.replace("{address}", address), soft_wrap=True, markup=False)
    server.run(sockets=[listening])


def sign_in_lines(home: Path, is_open: bool, token: str | None) -> tuple[str, ...]:
    """Who gets in. A new token is shown this once; afterwards it is only in its file."""
    if is_open:
        return (
            "No token is required: anybody who can log in to this machine may do everything here, and run "
            "commands as you. --no-open requires tokens.",
        )
    kept = f"{home / 'operator.token'}"
    if token is None:
        return (f"Sign in with the token in {kept}.",)
    return (
        f"Sign in at {{address}}/sign-in?token={token}",
        f"This is shown once; the token is kept in {kept}.",
    )


def _listening(settings: Settings) -> socket.socket:
    """The socket to serve on.

    Its protocol is named: only then does asyncio switch off the waiting of small packets for one another,
    which makes answers of two parts 40 ms late.
    """
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, _, _, place = found[0]
        listening = socket.socket(family, kind, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)  # at once: who reads the address may ask, and is not refused
    except OSError as error:
        raise BadInput(
            f"Cannot listen on {settings.host}:{settings.port} ({error.strerror}); choose another --port."
        ) from error
    return listening


@contextmanager
def private_files() -> Iterator[None]:
    """What is written meanwhile can be read by its owner only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def read_service_settings(
    home: Path | None, config: Path | None, database_url: str | None, said: Mapping[str, Any]
) -> Settings:
    """Settings of flags, variables and a file."""
    try:
        from prudent.service.settings import load
    except ImportError as error:
        raise BadInput(f'The service needs {error.name}; pip install "prudent[serve]".') from error
    if database_url is not None and urlsplit(database_url).password:
        raise BadInput(
            "A password on the command line is visible to everybody; put the URL into PRUDENT_DATABASE_URL."
        )
    return load({**said, "home": home, "database_url": database_url}, config)


def worker(
    home: Home = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    artifacts: Artifacts = None,
    data: Data = None,
    where: Where = None,
    concurrency: Concurrency = None,
    name: Annotated[
        str | None, typer.Option(help="The name of the worker. \\[default: host and process]")
    ] = None,
    attached: Annotated[int | None, typer.Option("--attached", hidden=True)] = None,
) -> None:
    """Run submitted requests, on any machine that reaches the database and the home of the service.

    After SIGTERM or Ctrl-C it takes no new runs; running ones finish or are handed to another worker.
    """
    if attached is not None:  # a service started it, and it shall not outlive that
        end_with_parent(attached, signal.SIGTERM)
    said = {"artifacts": artifacts, "data": data, "where": where, "concurrency": concurrency}
    _work(read_service_settings(home, config, database_url, said), name, attached is not None)
    sys.stdout.flush()
    # Threads of workflows that were handed over wait for an end that comes elsewhere.
    os._exit(0)


def _work(settings: Settings, name: str | None, attached: bool) -> None:
    from prudent.service.logs import json_lines
    from prudent.service.notify.notifier import Notifier
    from prudent.service.store.store import Store
    from prudent.service.worker import artifacts, machines
    from prudent.service.worker.worker import Worker

    settings.create()
    machines.check(settings.where, settings.home)
    artifacts.check(settings.artifacts)
    with private_files(), json_lines(), Store(settings.database) as store:
        worker = Worker(settings, store, name)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.drain())

        def reap_walled() -> None:
            machines.reap_sandboxed(worker.pool.sandbox, settings.runs)

        with nullcontext() if attached else reaping(settings.home, also=reap_walled):
            notifier = Notifier(settings).start()  # what this worker announces is kept in its own home
            worker.run()
            notifier.stop()
