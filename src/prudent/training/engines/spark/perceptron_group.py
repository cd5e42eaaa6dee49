"""How the processes of a distributed perceptron find each other, and know that nobody else is among them.

Torch's own meeting place listens at all addresses and believes anybody; gloo takes whoever connects first
for the process that it expects. Here all listen at the cluster's own addresses only, the meeting place wants
proof of a secret that came with the task, and each pair of processes proves it again over gloo's connection.
Like the worker's module, this one is sent to the executors whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any

_RENDEZVOUS_S = 300.0
"""How long the first process may take to open the meeting place."""
_AGAIN_S = 0.02
_NONCE_BYTES = 32
_GET_ADDRESS = 0x8915  # SIOCGIFADDR of Linux


class RendezvousServer:
    """Names and values that processes leave for each other; only who knows the secret may read or write."""

    def __init__(self, address: str, port: int, secret: bytes) -> None:
        self._secret = secret
        self._values: dict[str, str] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server((address, port))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(Connection(one.detach()),), daemon=True).start()

    def _serve(self, line: Connection) -> None:
        with line, contextlib.suppress(OSError, EOFError, AuthenticationError):
            deliver_challenge(line, self._secret)
            answer_challenge(line, self._secret)
            while True:
                line.send_bytes(json.dumps(self._answer(*json.loads(line.recv_bytes()))).encode())

    def _answer(self, verb: str, key: str, *said: str) -> str | None:
        with self._lock:
            before = self._values.get(key)
            if verb == "set":
                self._values[key] = said[0]
            elif verb == "add":
                self._values[key] = str(int(bytes.fromhex(before or "30")) + int(said[0])).encode().hex()
            elif verb == "compare_set" and said[0] == (before or ""):
                self._values[key] = said[1]
            return self._values.get(key)


def rendezvous_store(address: str, port: int, secret: bytes) -> Any:
    """A `torch.distributed.Store` whose values are at a meeting place."""
    import torch.distributed as dist

    line, turn = _connected(address, port, secret), threading.Lock()

    def ask(*said: str) -> str | None:
        with turn:
            line.send_bytes(json.dumps(said).encode())
            answer: str | None = json.loads(line.recv_bytes())
            return answer

    class Store(dist.Store):  # type: ignore[misc]
        def set(self, key: str, value: bytes) -> None:
            ask("set", key, value.hex())

        def get(self, key: str) -> bytes:
            self.wait([key])
            return bytes.fromhex(ask("get", key) or "")

        def add(self, key: str, amount: int) -> int:
            return int(bytes.fromhex(ask("add", key, str(amount)) or ""))

        def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
            return bytes.fromhex(ask("compare_set", key, expected.hex(), desired.hex()) or expected.hex())

        def check(self, keys: Sequence[str]) -> bool:
            return all(ask("get", key) is not None for key in keys)

        def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
            until_s = time.monotonic() + (timeout.total_seconds() if timeout else _RENDEZVOUS_S)
            while not self.check(keys):
                if time.monotonic() > until_s:
                    raise dist.DistStoreError(f"nobody left {', '.join(keys)} at the meeting place")
                time.sleep(_AGAIN_S)

    return Store()


def _connected(address: str, port: int, secret: bytes) -> Connection:
    until_s = time.monotonic() + _RENDEZVOUS_S
    while True:
        try:
            return Client((address, port), authkey=secret)
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(_AGAIN_S)


@contextlib.contextmanager
def process_group(secret: bytes) -> Iterator[None]:
    """Torch's process group, of the processes that the environment tells of and of no others."""
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    first, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    interface = _interface(_local_address_to(first))
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    place = RendezvousServer(first, port, secret) if rank == 0 else None
    try:
        store = rendezvous_store(
            first, port, secret
        )  # held here for as long as the group is: torch does not hold it
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        try:
            _authenticate(torch, dist, rank, size, secret)
            yield
        finally:
            dist.destroy_process_group()
    finally:
        if place is not None:
            place.close()


def _authenticate(torch: Any, dist: Any, rank: int, size: int, secret: bytes) -> None:
    """Ask every other process for proof over the very connection that gloo will use, and give it."""
    others = [other for other in range(size) if other != rank]
    asked = {other: secrets.token_bytes(_NONCE_BYTES) for other in others}
    got = _exchange(torch, dist, asked)
    proofs = _exchange(torch, dist, {other: _proof(secret, rank, other, got[other]) for other in others})
    for other in others:
        if not hmac.compare_digest(proofs[other], _proof(secret, other, rank, asked[other])):
            raise RuntimeError(f"somebody else is in the place of process {other}")


def _proof(secret: bytes, speaker: int, listener: int, nonce: bytes) -> bytes:
    return hmac.digest(secret, f"{speaker} to {listener} ".encode() + nonce, "sha256")


def _exchange(torch: Any, dist: Any, said: dict[int, bytes]) -> dict[int, bytes]:
    sent = [dist.isend(torch.tensor(list(what), dtype=torch.uint8), other) for other, what in said.items()]
    heard = {}
    for other in said:
        words = torch.zeros(_NONCE_BYTES, dtype=torch.uint8)
        dist.recv(words, other)
        heard[other] = bytes(words.tolist())
    for one in sent:
        one.wait()
    return heard


def _local_address_to(address: str) -> str:
    """The own address on the way to another one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((address, 9))
        return str(one.getsockname()[0])


def _interface(address: str) -> str | None:
    """The name of the network interface with an address, by which gloo is told where to listen."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(one, _GET_ADDRESS, struct.pack("256s", name.encode()))[20:24]
                if socket.inet_ntoa(found) == address:
                    return name
    return None
