"""Signed lines by which a process on the cluster tells the driver how far it is.

Anybody can send lines to the driver's port: those that are signed with the secret of their training are
believed, others thrown away. The worker's half is sent to the executors whole.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

PROGRESS = "prudent-progress "
_LONGEST_LINE = 1 << 24
_CONNECT_S = 5.0


def sign_line(said: str, secret: bytes) -> str:
    """A line of progress, as the driver believes it."""
    return f"{PROGRESS}{hmac.digest(secret, said.encode(), 'sha256').hex()} {said}"


def verified_progress(line: str, secret: bytes) -> dict[str, Any] | None:
    """What a worker's line says about its progress; None if it is another line, or somebody else's."""
    _, brace, rest = line.partition("{")
    text = brace + rest
    if not hmac.compare_digest(line.encode(), sign_line(text, secret).encode()):
        return None
    said: dict[str, Any] = json.loads(text)
    return said


class LineClient:
    """Sends progress from a worker; a driver that does not hear is no reason to stop training."""

    def __init__(self, address: str, port: int, secret: bytes) -> None:
        self._secret = secret
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._socket = socket.create_connection((address, port), timeout=_CONNECT_S)

    def send(self, said: Mapping[str, Any]) -> None:
        if self._socket is None:
            return
        line = sign_line(json.dumps(said), self._secret).encode()
        with contextlib.suppress(OSError):
            self._socket.sendall(struct.pack(">i", len(line)) + line)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class LineServer:
    """Receives the lines that workers send, in the framing of Spark's distributor for torch."""

    def __init__(self, host: str, on_line: Callable[[str], None]) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while len(head := self.rfile.read(4)) == 4:
                    (size,) = struct.unpack(">i", head)
                    if not 0 <= size <= _LONGEST_LINE:
                        return
                    on_line(self.rfile.read(size).decode("utf-8", "replace"))

        self._server = socketserver.ThreadingTCPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
