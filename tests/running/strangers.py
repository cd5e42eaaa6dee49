"""Somebody without the secret speaks to a port of ours, in the language that is spoken there."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .listening import Port

_ANSWER_S = 10.0
_SILENCE_S = 1.0
NOBODYS = b"\x00\xffhello\r\n\r\n"


def answer(port: int, said: bytes, wait_s: float = _ANSWER_S) -> bytes:
    """What comes back until the other end hangs up, or is silent for so long."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=wait_s) as line, contextlib.suppress(OSError):
        line.sendall(said)
        while part := line.recv(1 << 16):
            heard += part
            line.settimeout(_SILENCE_S)
    return heard


def spark_call() -> bytes:
    """A call as Spark's processes send it, without the talk about the secret before."""
    body = b"\x00" * 8
    head = struct.pack(">bqi", 3, 7, len(body))
    return struct.pack(">q", 8 + len(head) + len(body)) + head + body


SECRET_WANTED, PAGES, TOKEN_WANTED, SILENCE = "secret wanted", "pages", "token wanted", "silence"
OTHER_SECRET_WANTED = "secret of Spark's Python processes wanted"
_NO_PYTHON = b"\x00\x00\x00\x03err"
"""How they send away who does not begin with it."""
_PY4J = b"r\nu\njava.lang.System\nrj\ne\n"
"""Asks Java for one of its classes, as the Python that owns it does."""


def spark_answers(ports: Iterable[Port]) -> dict[Port, str]:
    """How the ports of Spark's processes send a stranger away; an error if one does not."""
    ports = list(ports)
    with ThreadPoolExecutor(max(1, len(ports))) as threads:
        return dict(zip(ports, threads.map(lambda port: _spark_answer(port.number), ports), strict=True))


def _spark_answer(port: int) -> str:
    said = answer(port, spark_call())
    if b"SaslMessage" in said:
        return SECRET_WANTED
    if said.startswith(b"HTTP/1.1 400"):
        return PAGES
    if said.endswith(_NO_PYTHON):
        return OTHER_SECRET_WANTED
    assert said == b"" or b"Authentication error" in said, (port, said)
    said = answer(port, _PY4J)
    assert said == b"" or b"Authentication error" in said, (port, said)
    return TOKEN_WANTED if said else SILENCE


def without_certificate(port: int) -> bytes:
    """What a TLS client without a certificate of its own reads; nothing if it is sent away."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S) as raw,
        context.wrap_socket(raw) as line,
    ):
        return line.recv(100)
    return b""


def order_dask(ports: Sequence[int], folder: Path) -> list[str]:
    """Ask Dask processes to make a file in a folder: plainly, and with certificates of another run.

    Answers what each try came to. Nobody may have made a file.
    """
    from distributed.core import rpc
    from distributed.protocol.pickle import dumps

    from prudent.cloud.clusters.dask_node import security_of_run

    foreign = security_of_run().get_connection_args("client")
    foreign["ssl_context"].verify_mode = ssl.CERT_NONE  # whoever wants in believes anything

    async def order(address: str, arguments: dict[str, Any], verb: str) -> str:
        file = folder / f"{verb}-{address.replace('/', '')}"
        peer = rpc(address, timeout=_SILENCE_S, connection_args=arguments)
        try:
            await asyncio.wait_for(
                getattr(peer, verb)(function=dumps(Path.touch), args=dumps((file,)), kwargs=dumps({})),
                _ANSWER_S,
            )
        except (OSError, TimeoutError, ValueError) as error:
            return type(error).__name__
        finally:
            await peer.close_rpc()
        return "taken"

    async def all_orders() -> list[str]:
        tries = [
            order(f"{protocol}://127.0.0.1:{port}", arguments, verb)
            for port in ports
            for protocol, arguments in (("tcp", {}), ("tls", foreign))
            for verb in ("run", "run_function")  # of a worker, of a scheduler
        ]
        return await asyncio.gather(*tries)

    return asyncio.run(all_orders())
