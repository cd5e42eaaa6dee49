"""Logs: one JSON object a line, with the run it is about, and without secrets."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from prudent.service.security.redaction import scrubbed

current_run: ContextVar[str] = ContextVar("current_run", default="")
"""The run that a thread works for; every line it logs tells it."""


@contextmanager
def about(run_id: str) -> Iterator[None]:
    """Log lines inside are about this run."""
    token = current_run.set(run_id)
    try:
        yield
    finally:
        current_run.reset(token)


class JsonLines(logging.Formatter):
    """A log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": scrubbed(record.getMessage()),
        }
        run = getattr(record, "run", "") or current_run.get()
        if run:
            said["run"] = run
        if record.exc_info and record.exc_info[0] is not None:
            said["error"] = scrubbed(self.formatException(record.exc_info))
        return json.dumps(said, ensure_ascii=False)


def set_up(level: str = "INFO", stream: Any = None) -> None:
    """Log to a stream, standard error by default, for whatever gathers logs there."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "dbos"):
        # A handler that does nothing: DBOS brings its own where there is none.
        logging.getLogger(name).handlers[:] = [logging.NullHandler()]
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.access").setLevel("WARNING")
    logging.getLogger("botocore").setLevel("WARNING")
