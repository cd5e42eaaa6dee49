"""Dask's scheduler and worker as Prudent runs them: one port each, and only for those with a certificate.

`python -m prudent.cloud.clusters.dask_node` is the worker on a machine. What it is to do comes in its
environment, for other users can read arguments; commands that it runs do not inherit it.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from prudent.cloud.clusters.dask_security import of_worker

TOLD = "PRUDENT_DASK"
"""The environment variable that holds the arguments of `serve` as JSON."""
_LOST_S = 60.0


def without_pages(node: Any) -> Any:
    """A class of Dask's without its pages: nobody looks at them, and their port would let anybody in."""
    return type(node.__name__, (node,), {"start_http_server": _no_pages})


def _no_pages(self: Any, *_: Any, **__: Any) -> None:
    """Instead of Dask's own, which opens a port even where its dashboard is off."""


def scheduler(scratch: str, security: Any, host: str) -> Any:
    """A scheduler in this process, as a context manager; its files are in `scratch`."""
    import dask
    import distributed

    options = {"host": host, "port": 0, "protocol": "tls", "security": security, "dashboard": False}
    spec = {"cls": without_pages(distributed.Scheduler), "options": options}
    with dask.config.set({"temporary-directory": scratch}):
        return distributed.SpecCluster(scheduler=spec, security=security, silence_logs=60)


async def serve(
    scheduler: str, name: str, threads: int, host: str, scratch: str, certificates: Mapping[str, str]
) -> None:
    """Be a worker of a scheduler until the end."""
    import distributed

    tempfile.tempdir = scratch  # Dask puts the key into a file for a moment; it goes with the scratch folder
    worker = without_pages(distributed.Worker)(
        scheduler,
        name=name,
        nthreads=threads,
        resources={"slot": threads},
        host=host,
        local_directory=scratch,
        memory_limit=0,
        death_timeout=_LOST_S,
        security=of_worker(certificates),
    )
    async with worker:
        await worker.finished()


if __name__ == "__main__":
    os.makedirs("scratch", exist_ok=True)
    asyncio.run(serve(**json.loads(os.environ.pop(TOLD)), scratch=os.path.abspath("scratch")))
