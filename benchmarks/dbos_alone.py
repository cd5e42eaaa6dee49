"""What DBOS's own queues hold without Prudent's claims, heartbeats and fences.

python benchmarks/dbos_alone.py                       # on SQLite, two minutes
python benchmarks/dbos_alone.py --postgres            # on a PostgreSQL server of its own

One queue has priorities, so many runs at a time for each worker, and so many for each user (partitions). It
is measured how many submissions it takes a second; whether one user's runs wait for another's, and whether
priorities hold between users; and what becomes of runs whose worker is killed with -9 and does not come back,
as a machine that is gone, while another worker of the same queue is idle. Wanted: at least 200 submissions a
second, none lost, and all taken over within 30 s. Exits with 1 if something of that does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer

QUEUE, APPLICATION, VERSION = "runs", "alone", "1"
PER_WORKER, PER_USER = 2, 2
STEPS, STEP_S = 3, 0.5
WANTED_PER_S, TAKEOVER_S = 200.0, 30.0
_steps = Path()


@DBOS.workflow(name="run")
def perform(number: int) -> int:
    """Three steps of half a second."""
    for step in range(STEPS):
        _step(number, step)
    return number


@DBOS.step(name="step")
def _step(number: int, step: int) -> None:
    time.sleep(STEP_S)
    (_steps / f"{number}.{step}.{time.time_ns()}").touch()


def worker(url: str, name: str, folder: Path) -> None:
    """A process that works the queue off until it is ended."""
    global _steps  # noqa: PLW0603 - DBOS calls functions, and one process is one worker
    _steps = folder / "steps"
    launch(url, name)
    (folder / f"{name}.ready").touch()
    signal.pause()


def launch(url: str, name: str) -> None:
    config: DBOSConfig = {
        "name": APPLICATION,
        "system_database_url": url,
        "application_version": VERSION,
        "executor_id": name,
        "log_level": "ERROR",
        "serializer": DBOSPortableJSONSerializer(),
    }
    DBOS(config=config)
    DBOS.listen_queues([QUEUE])
    DBOS.launch()
    DBOS.register_queue(
        QUEUE,
        worker_concurrency=PER_WORKER,
        partition_concurrency=PER_USER,
        polling_interval_sec=0.1,
        on_conflict="always_update",
    )


@contextlib.contextmanager
def working(url: str, name: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker, from when it is ready."""
    command = [sys.executable, __file__, "--worker", name, "--database-url", url, "--folder", str(folder)]
    ready = folder / f"{name}.ready"
    ready.unlink(missing_ok=True)
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise SystemExit((folder / f"{name}.log").read_text()[-3000:])
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


class Front:
    """Who submits; the same DBOS client that a web process would have."""

    def __init__(self, url: str) -> None:
        self._client = DBOSClient(
            system_database_url=url,
            serializer=DBOSPortableJSONSerializer(),
            system_database_pool_size=16,
            application_name=APPLICATION,
        )

    def submit(self, number: int, user: str = "ada", priority: int = 1) -> str:
        handle = self._client.enqueue(
            {
                "workflow_name": "run",
                "queue_name": QUEUE,
                "queue_partition_key": user,
                "priority": priority,
                "app_version": VERSION,
            },
            number,
        )
        return str(handle.workflow_id)

    def statuses(self, ids: list[str]) -> Counter[str]:
        found = self._client.list_workflows(workflow_ids=ids, load_input=False, load_output=False)
        return Counter(each.status for each in found)

    def forget(self) -> None:
        """Cancel what waits, so that the next measure begins with nothing."""
        waiting = self._client.list_workflows(status=["ENQUEUED", "PENDING"], load_input=False)
        if waiting:
            self._client.cancel_workflows([each.workflow_id for each in waiting])


def submissions(front: Front, seconds: float, clients: int) -> float:
    """How many a second, with nobody who works them off."""
    counts = [0] * clients
    until_s = time.monotonic() + seconds

    def send(place: int) -> None:
        while time.monotonic() < until_s:
            front.submit(counts[place], f"user{place}")
            counts[place] += 1

    threads = [threading.Thread(target=send, args=(place,)) for place in range(clients)]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - began_s)


def order(front: Front, folder: Path) -> list[int]:
    """Eight runs of ada's wait; then bob asks for one that is urgent (1 is the highest). Their numbers."""
    for number in range(100, 108):
        front.submit(number, "ada", 9)
    front.submit(200, "bob", 1)
    return [*range(100, 108), 200]


def done(folder: Path, numbers: list[int]) -> bool:
    finished = {int(path.name.split(".")[0]) for path in (folder / "steps").glob(f"*.{STEPS - 1}.*")}
    return finished >= set(numbers)


def first_begun(folder: Path) -> list[int]:
    """Runs in the order in which their first step ended."""
    paths = sorted((folder / "steps").glob("*.0.*"), key=lambda path: int(path.name.split(".")[2]))
    return [int(path.name.split(".")[0]) for path in paths]


def wait(happened: Callable[[], bool], longest_s: float) -> float | None:
    """How long it took; None if it did not happen."""
    began_s = time.monotonic()
    while not happened():
        if time.monotonic() - began_s > longest_s:
            return None
        time.sleep(0.2)
    return time.monotonic() - began_s


@dataclass(frozen=True)
class Takeover:
    """How runs of a worker stood that was killed beside an idle one."""

    runs: int
    stuck: Counter[str]
    """After twice the time in which others should have gone on."""
    after: Counter[str]
    """When an executor of the same name had come back."""
    back_s: float | None


def takeover(front: Front, url: str, folder: Path) -> Takeover:
    """Kill a worker that has runs, while another of the queue is idle."""
    with working(url, "second", folder), working(url, "first", folder) as first:
        ids = [front.submit(number, f"user{number}") for number in range(300, 308)]
        wait(lambda: front.statuses(ids)["PENDING"] == 2 * PER_WORKER, 30)
        first.kill()
        wait(lambda: front.statuses(ids)["SUCCESS"] == len(ids), 2 * TAKEOVER_S)
        stuck = front.statuses(ids)
        with working(url, "first", folder):  # an executor of the same name, which is what DBOS waits for
            back_s = wait(lambda: front.statuses(ids)["SUCCESS"] == len(ids), 2 * TAKEOVER_S)
            after = front.statuses(ids)
    return Takeover(len(ids), stuck, after, back_s)


def twice(folder: Path) -> int:
    """Steps that were done more than once."""
    found = Counter(path.name.rpartition(".")[0] for path in (folder / "steps").iterdir())
    return sum(count > 1 for count in found.values())


def measure(url: str, folder: Path, seconds: float) -> bool:
    (folder / "steps").mkdir()
    with working(url, "maker", folder):  # makes the tables and the queue
        pass
    front = Front(url)
    per_s = submissions(front, seconds, 8)
    print(f"submissions: {per_s:.0f}/s by 8 threads ({WANTED_PER_S:.0f} wanted)")
    front.forget()
    with working(url, "only", folder):
        numbers = order(front, folder)
        wait(lambda: done(folder, numbers), 120)
    begun = first_begun(folder)
    place = begun.index(200) + 1 if 200 in begun else None
    print(f"bob's urgent run, behind eight of ada's, at most {PER_USER} of a user: began as number {place}")
    found = takeover(front, url, folder)
    print(
        f"{found.runs} runs, a worker killed, another idle: after {2 * TAKEOVER_S:.0f} s {dict(found.stuck)}"
    )
    said = "not done" if found.back_s is None else f"done {found.back_s:.1f} s after"
    print(f"an executor of the same name came back: {said}, {dict(found.after)}")
    lost = found.runs - found.after["SUCCESS"]
    taken = found.stuck["SUCCESS"] == found.runs
    print(f"lost: {lost}; steps done twice: {twice(folder)}")
    print(f"taken over within {TAKEOVER_S:.0f} s: {'yes' if taken else 'NO'}")
    print(f"cores {os.cpu_count()}, load average {os.getloadavg()[0]:.1f}")
    return per_s >= WANTED_PER_S and not lost and taken


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=10.0, help="of submissions")
    words.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    words.add_argument("--worker", help=argparse.SUPPRESS)
    words.add_argument("--database-url", help=argparse.SUPPRESS)
    words.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    said = words.parse_args()
    if said.worker:
        worker(said.database_url, said.worker, said.folder)
        return
    with tempfile.TemporaryDirectory(prefix="prudent-alone-") as name, contextlib.ExitStack() as stack:
        folder, url = Path(name), f"sqlite:///{name}/engine.db"
        if said.postgres:
            from service_chaos import Postgres

            base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prudent-alone-pg-")))
            server = Postgres(base)
            stack.callback(server.stop)
            url = server.url.replace("postgresql://", "postgresql+psycopg://")
        sys.exit(0 if measure(url, folder, said.seconds) else 1)


if __name__ == "__main__":
    main()
