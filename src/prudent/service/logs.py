"""Logs: one JSON object a line, with the run it is about, and without secrets."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from prudent.service.security.redaction import redacted, scrubbed

current_run: ContextVar[str] = ContextVar("current_run", default="")
"""The run that a thread works for; every line it logs tells it."""


@contextmanager
def log_run(run_id: str) -> Iterator[None]:
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


_LONGEST = 1 << 20
_STDERR = 2
_LEAVE_S = 2.0
_log = logging.getLogger("prudent")
_one_line_at_a_time = threading.Lock()


@contextlib.contextmanager
def json_lines(level: str = "INFO") -> Iterator[None]:
    """Until the end, logs, warnings, uncaught errors and what processes below say are lines of JSON."""
    sys.stderr.flush()
    real = os.dup(_STDERR)
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _LONGEST)
    os.dup2(writer, _STDERR)
    os.close(writer)
    thread = threading.Thread(target=_forward, args=(reader, real), name="log", daemon=True)
    thread.start()
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    sys.excepthook, threading.excepthook, sys.unraisablehook = _uncaught, _in_thread, _unraisable
    alone = not faulthandler.is_enabled()
    if alone:
        faulthandler.enable(file=real)  # when the process crashes, nobody is left to read the pipe
    logging.captureWarnings(True)
    set_up(level, _LineWriter(real))
    try:
        yield
    finally:
        logging.captureWarnings(False)
        if alone:
            faulthandler.disable()
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        sys.stderr.flush()
        os.dup2(real, _STDERR)
        thread.join(_LEAVE_S)  # a process below that lives on may still write
        set_up(level)


class _LineWriter:
    """A stream to a file by its number, a whole line at a time."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def write(self, text: str) -> None:
        _write_whole(self._handle, text.encode("utf-8", "replace"))

    def flush(self) -> None:
        """Do nothing: every line is written at once."""


def _forward(reader: int, real: int) -> None:
    rest = b""
    while chunk := os.read(reader, 1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST:
            lines, rest = [*lines, rest], b""
        for line in lines:
            _write(real, line)
    _write(real, rest)
    os.close(reader)


def _write(real: int, line: bytes) -> None:
    text = line.decode("utf-8", "replace").strip()
    if text:
        with contextlib.suppress(OSError):
            _write_whole(real, f"{as_json(text)}\n".encode("utf-8", "replace"))


def _write_whole(handle: int, line: bytes) -> None:
    """Long lines are written in parts where the reader is slow; no other line may come in between."""
    with _one_line_at_a_time:
        while line:
            try:
                line = line[os.write(handle, line) :]
            except BlockingIOError:
                select.select([], [handle], [])


def as_json(line: str) -> str:
    """A line as an object; one that is an object stays as it is, but for its secrets.

    >>> as_json('{"message": "x"}')
    '{"message": "x"}'
    >>> as_json('{"password": "hush"}')
    '{"password": "***"}'
    >>> json.loads(as_json("Segmentation fault"))["message"]
    'Segmentation fault'
    """
    if line.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(line, parse_constant=_refuse)
            shown = redacted(said)
            return line if shown == said else json.dumps(shown, ensure_ascii=False)
    return JsonLines().format(logging.LogRecord("stderr", logging.WARNING, "", 0, "%s", (line,), None))


def _refuse(word: str) -> None:
    """Reject NaN and Infinity: Python reads them as JSON numbers, log collectors do not."""
    raise ValueError(f"{word} is not JSON")


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _log.critical("An error that nobody caught ends the process", exc_info=(kind, error, trace))


def _in_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None:
        name = told.thread.name if told.thread is not None else "?"
        caught = (told.exc_type, told.exc_value, told.exc_traceback)
        _log.error("An error that nobody caught ends the thread %s", name, exc_info=caught)


def _unraisable(told: Any) -> None:
    said = told.err_msg or "An error that could not be raised"
    if told.exc_value is not None:
        _log.error("%s", said, exc_info=(told.exc_type, told.exc_value, told.exc_traceback))
