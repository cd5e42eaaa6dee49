"""A job that is really faster on more machines and more vCPUs: linear regression by gradient descent.

`train` runs on the first machine and hands shards of the data to the `worker` on each of the others. A vCPU
reads one shard at a time, and a shard takes its time to read, as from a disk across a network: so the time
depends on the machines and not on how busy the computer is that plays them. Only the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

SHARDS, EPOCHS = 8, 3
READ_S, REQUEST_S = 0.25, 0.3
SLOPE, OFFSET = 3.0, -1.0


def gradient(shard: int, weights: list[float]) -> list[float]:
    time.sleep(READ_S)
    points = [(index + shard) % 17 / 17 for index in range(200)]
    errors = [weights[0] * x + weights[1] - (SLOPE * x + OFFSET) for x in points]
    return [
        sum(error * x for error, x in zip(errors, points, strict=True)),
        sum(errors),
        sum(e * e for e in errors),
    ]


def work(shards: list[int], weights: list[float], batch: int) -> list[float]:
    """A share of an epoch: `batch` shards are asked for at a time, by as many readers as there are vCPUs."""
    total = [0.0, 0.0, 0.0]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as readers:
        for at in range(0, len(shards), batch):
            time.sleep(REQUEST_S)
            for part in readers.map(lambda shard: gradient(shard, weights), shards[at : at + batch]):
                total = [have + more for have, more in zip(total, part, strict=True)]
    return total


def serve(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as stream:
                for line in stream:
                    said = json.loads(line)
                    stream.write(json.dumps(work(said["shards"], said["weights"], said["batch"])) + "\n")
                    stream.flush()


def connected(address: str, port: int):  # type: ignore[no-untyped-def]
    end_s = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((address, port)).makefile("rw")
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)


def train(port: int, batch: int) -> None:
    addresses = os.environ["PRUDENT_ADDRESSES"].split(",")
    workers = [connected(address, port) for address in addresses[1:]]
    weights = [0.0, 0.0]
    for epoch in range(EPOCHS):
        shares = [list(range(SHARDS))[place :: len(addresses)] for place in range(len(addresses))]
        for stream, shards in zip(workers, shares[1:], strict=True):
            stream.write(json.dumps({"shards": shards, "weights": weights, "batch": batch}) + "\n")
            stream.flush()
        parts = [work(shares[0], weights, batch), *(json.loads(stream.readline()) for stream in workers)]
        slope, offset, error = (sum(column) / (200 * SHARDS) for column in zip(*parts, strict=True))
        weights = [weights[0] - slope, weights[1] - offset]
        print("PRUDENT", json.dumps({"error": error, "progress": (epoch + 1) / EPOCHS}), flush=True)
    with open("weights.json", "w") as file:
        json.dump(weights, file)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        threading.Timer(120, lambda: os._exit(1)).start()
        serve(int(sys.argv[2]))
    train(int(sys.argv[2]), int(sys.argv[3]))
