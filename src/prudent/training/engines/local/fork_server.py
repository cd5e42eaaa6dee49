"""The process that workers are forked from: libraries are loaded once, a new worker is there in milliseconds.

A process of its own, started afresh, because forking the caller's is not safe: it may have threads, and
locks that they hold would stay locked for ever in the child. Its argument is the number of the socket over
which it gets its requests, one JSON packet each.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from prudent.core.processes import end_with_parent

PACKET_BYTES = 1 << 16


def main(arguments: Sequence[str]) -> None:
    with socket.socket(fileno=int(arguments[0])) as connection:
        ForkServer(connection).serve()


class ForkServer:
    """Forks workers and ends them; ends itself, and them, when nobody is at the other end any more."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._workers: set[int] = set()

    def serve(self) -> None:
        try:
            while True:
                packet, handles, _, _ = socket.recv_fds(self._socket, PACKET_BYTES, 1)
                if not packet:
                    return
                request = json.loads(packet)
                if "load" in request:
                    for module in request["load"]:
                        if not self._abandoned():  # to load the rest would take seconds for nobody
                            import_modules([module])
                elif "fork" in request:
                    self._answer({"pid": self._fork(handles[0], request["fork"])})
                elif "end" in request:
                    self._answer({"status": self._end(request["end"])})
        finally:
            for worker in list(self._workers):
                self._end(worker)

    def _abandoned(self) -> bool:
        """Whether nobody is at the other end any more."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False

    def _answer(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.send(json.dumps(answer).encode())

    def _fork(self, handle: int, setup: dict[str, Any]) -> int:
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._socket.close()
            _become_worker(server, handle, setup)
        os.close(handle)
        self._workers.add(pid)
        return pid

    def _end(self, pid: int) -> int:
        """Kill a worker that has not ended by itself; returns how it ended.

        Only here are workers reaped, so the number cannot belong to a stranger.
        """
        if pid not in self._workers:
            return 0
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        self._workers.discard(pid)
        return status


def import_modules(modules: Sequence[str]) -> None:
    """Import what will be needed; what is not installed is told by the trial that needs it."""
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def _become_worker(server: int, handle: int, setup: dict[str, Any]) -> NoReturn:
    """In the child: train until the connection closes; never returns into the server's code."""
    code = 0
    try:
        end_with_parent(server, signal.SIGKILL)
        from prudent.training.engines.local.worker import run_worker

        run_worker(handle, setup)
    except BaseException:  # noqa: BLE001 - told in the log; the caller sees that the connection is closed
        traceback.print_exc()
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code)
