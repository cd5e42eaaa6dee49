"""`prudent worker`: works off what was submitted to a service, on any machine that reaches its database."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from typing import Annotated

import typer

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
from prudent.core.processes import end_with_parent


def worker(
    home: Home = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    artifacts: Artifacts = None,
    data: Data = None,
    where: Where = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Do so many runs at a time.")] = None,
    name: Annotated[str | None, typer.Option(help="Its name; host and process otherwise.")] = None,
    attached: Annotated[int | None, typer.Option("--attached", hidden=True)] = None,
) -> None:
    """Work runs off. SIGTERM or Ctrl-C: no new work, what runs ends or is handed to another worker."""
    if attached is not None:  # a service started it, and it shall not outlive that
        end_with_parent(attached, signal.SIGTERM)
    from prudent.service.engine.worker import Worker
    from prudent.service.notify.courier import Courier
    from prudent.service.store.store import Store
    from prudent.service.web.log_stream import json_lines
    from prudent.service.work import artifacts as results
    from prudent.service.work import machines, walled_machines

    said = {"artifacts": artifacts, "data": data, "where": where, "concurrency": concurrency}
    settings = read_settings(home, config, database_url, said)
    settings.create()
    machines.check(settings.where, settings.home)
    results.check(settings.artifacts)
    with private_files(), json_lines(), Store(settings.database) as store:
        made = Worker(settings, store, name)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: made.drain())

        def reap_walled() -> None:
            walled_machines.reap(made.hands.wall, settings.runs)

        with nullcontext() if attached is not None else reaping(settings.home, also=reap_walled):
            courier = Courier(settings).start()  # what this worker announces lies in its own home
            made.run()
            courier.stop()
    sys.stdout.flush()
    # Threads of workflows that were handed over wait for an end that comes elsewhere.
    os._exit(0)
