"""`prudent serve`: requests by REST, browser, queue or dropped file, worked off by workers."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.console import out, say
from prudent.cli.reaping import reaping
from prudent.cli.service_options import (
    Artifacts,
    Config,
    Data,
    DatabaseUrl,
    Home,
    Where,
    private_files,
    read_settings,
)
from prudent.core.errors import BadInput

if TYPE_CHECKING:
    from prudent.service.settings import Settings

_BACKLOG = 2048


def serve(
    home: Home = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; 127.0.0.1 otherwise.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 8080 otherwise.")] = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    artifacts: Artifacts = None,
    data: Data = None,
    where: Where = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Workers on this machine; 1 otherwise, 0 for none.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Runs at a time per worker.")] = None,
    tokens: Annotated[Path | None, typer.Option(help="A file of users and their tokens' hashes.")] = None,
    public_url: Annotated[str | None, typer.Option(help="How people reach it, for links in mails.")] = None,
    watch: Annotated[Path | None, typer.Option(help="A folder in which dropped requests are taken.")] = None,
    queue: Annotated[str | None, typer.Option(help="A queue of requests: an SQS URL or file:///DIR.")] = None,
    bucket: Annotated[str | None, typer.Option(help="A bucket of requests: s3://bucket/prefix.")] = None,
    is_open: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Ask nobody for a token, on this machine only; kept in the home. Tokens otherwise.",
        ),
    ] = None,
) -> None:
    """Serve Prudent to a team: REST, dashboard, queues; requests survive crashes and are worked off."""
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
    settings = read_settings(home, config, database_url, said)
    _run(settings, is_open)


def _run(settings: Settings, is_open: bool | None) -> None:
    from prudent.service.engine.crew import Crew
    from prudent.service.intake.fronts import Fronts, fronts_of
    from prudent.service.notify.courier import Courier
    from prudent.service.security import guard
    from prudent.service.security.access import make_token
    from prudent.service.store.store import Store
    from prudent.service.web.app import create_app
    from prudent.service.web.log_stream import json_lines
    from prudent.service.work import artifacts, machines, walled_machines
    from prudent.service.work.wall import NO_WALL, wall_of

    settings.create()
    machines.check(settings.where, settings.home)
    artifacts.check(settings.artifacts)
    with ExitStack() as stack:
        stack.enter_context(private_files())
        stack.enter_context(json_lines())
        store = stack.enter_context(Store(settings.database))
        access = guard.check_access(settings, store, is_open)
        wall = wall_of(settings)
        token = make_token(settings.home)
        settings = guard.with_own_folders(settings)
        app = create_app(settings, store)
        stack.enter_context(_heeded_signals())
        stack.enter_context(reaping(settings.home, also=lambda: walled_machines.reap(wall, settings.runs)))
        crew = Crew(settings, settings.workers)
        stack.callback(crew.stop)
        crew.start()
        courier = Courier(settings).start()
        stack.callback(courier.stop)
        fronts = Fronts(fronts_of(settings, store)).start()
        stack.callback(fronts.stop)
        said = who_may(settings.home, access.chosen_open, token)
        _serve(app, settings, said if wall is not None else (*said, NO_WALL), wall is not None)


def _serve(app: Any, settings: Settings, said: Sequence[str], walled: bool) -> None:
    """Serve; `said` is told when the address is known, for which {address} stands."""
    import uvicorn

    from prudent.service.security.running import tell
    from prudent.service.web.connections import Front, answer_promptly, connection_type, raise_open_files

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
    server = Front(config)
    listening = _listening(settings)
    place = listening.getsockname()
    shown = f"[{place[0]}]" if ":" in place[0] else place[0]
    address = f"http://{shown}:{place[1]}"
    tell(settings, address, walled)
    say(out(), f"Prudent serves at {address} (home: {settings.home}). Ctrl-C ends it.")
    for line in said:  # a link that is broken in two cannot be followed
        out().print(line.replace("{address}", address), soft_wrap=True, markup=False)
    server.run(sockets=[listening])


def who_may(home: Path, is_open: bool, token: str | None) -> tuple[str, ...]:
    """Who gets in. A new token is shown this once; afterwards it is only in its file."""
    if is_open:
        return (
            "It is open: whoever can log in to this machine may do everything here, and run commands as you. "
            "--no-open asks for a token.",
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
def _heeded_signals() -> Iterator[None]:
    """The web server ends at a signal and then raises it again; we still have workers to let drain."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
