"""Does the service ever answer a malformed request with an error of its own, whoever sends it?

python benchmarks/service_malformed.py                    # 10,000 requests, on SQLite
python benchmarks/service_malformed.py --requests 100000 --jobs 2
python benchmarks/service_malformed.py --requests 300 --seed 3
python benchmarks/service_malformed.py --postgres         # on a PostgreSQL server of its own

Half of the requests are made by schemathesis of the service's own OpenAPI description, half by hypothesis:
broken JSON, wrong values at every place of right documents, odd addresses and headers. They are sent as bytes
to a server in a process of its own, by users of every role and by strangers. Exits with 1 if an answer is 5xx
or none, if something that is surely wrong was taken, or if the server's memory grows from the middle on.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import uvicorn
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import prudent
from prudent.service.security.tokens import hash_token, new_token
from prudent.service.settings import Settings
from prudent.service.store import events, models, runs, trials, users
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table
from prudent.service.store.trials import TrialRow
from prudent.service.store.users import ROLES, User
from prudent.service.web.app import create_app
from prudent.service.web.connections import connection_type

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "service" / "web"))

from malformed import DOCUMENTS, Call, Known, of_corpus, of_schema

_fork = multiprocessing.get_context("fork")  # what is loaded need not be loaded again
_PARTS, _GROWTH, _GROWTH_MB = 10, 1.1, 20.0


@dataclass
class Tally:
    """What was answered to what."""

    statuses: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    roles: Counter[tuple[str, int]] = field(default_factory=Counter)
    broken: list[tuple[int, Call]] = field(default_factory=list)

    def note(self, status: int, call: Call, role: str) -> None:
        self.statuses[status] += 1
        self.kinds[call.about] += 1
        self.roles[role, status // 100] += 1
        if not 200 <= status < 500 or (call.wrong and status < 400):
            self.broken.append((status, call))

    def add(self, other: Tally) -> None:
        self.statuses += other.statuses
        self.kinds += other.kinds
        self.roles += other.roles
        self.broken += other.broken


class Stumbles(logging.Handler):
    """Writes down the requests that were refused only because their check stumbled."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        with self._path.open("a") as file:
            file.write(f"{record.getMessage()}: {type(error).__name__} {str(error)[:120]!r}\n")


def trained(folder: Path) -> Path:
    """The folder of a small model."""
    rows = "\n".join(
        f"{n},{('red', 'green')[n % 2]},{n % 7},{'big' if n > 20 else 'small'}" for n in range(40)
    )
    (folder / "rows.csv").write_text(f"age,colour,weight,label\n{rows}\n")
    request = {
        "domain": "classification",
        "dataset": {"path": str(folder / "rows.csv"), "target": "label"},
        "methods": [{"algorithm": "binomial-logistic-regression"}],
        "budget": "1 trials",
    }
    return Path(prudent.train(request, out=folder / "models").entries[0].model_path)


def furnish(store: Store, settings: Settings, model: Path) -> Known:
    """Runs and a model, so that requests find something to go wrong with."""
    made = []
    for number in range(2):
        new = NewRun("train", "local", DOCUMENTS["train"], "rest", f"hash{number}", title="cars")
        made.append(store.write(runs.insert, new)[0].id)
    begun = table.update().where(table.c.id == made[0]).values(status="running", fence=1, started_s=1.0)
    store.write(lambda connection: connection.execute(begun))
    store.write(trials.record, TrialRow(made[0], 1, "f", {"x": 1}, "finished", 0.5), 1)
    kept = StoredModel(f"{made[0]}-1", made[0], "local", 1, "x", 0.9, "mcc", 0.9, str(model), 1.0)
    store.write(models.record, [kept], made[0], 1)
    store.write(events.append, made[0], "progress", {"progress": 0.5})
    folder = settings.folder_of(made[0])
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"best": 1}', encoding="utf-8")
    (folder / "report.html").write_text("<h1>Report</h1>", encoding="utf-8")
    store.write(runs.finish, made[0], 1, "succeeded")
    return Known(made[0], made[1], kept.id)


def answer(port: int, call: Call) -> int:
    """The status that a server answers these bytes with; 0 if it hangs up."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as line:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may answer before it heard all
            line.sendall(call.raw())
        with contextlib.suppress(ConnectionResetError):
            while block := line.recv(4096):
                found += block
                while found.startswith(b"HTTP/1.1 1") and b"\r\n\r\n" in found:
                    found = found.partition(b"\r\n\r\n")[2]  # 100 Continue
                if b"\r\n" in found and not found.startswith(b"HTTP/1.1 1"):
                    break
    words = found.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def send_all(
    calls: SearchStrategy[Call], tokens: Mapping[str, str], count: int, port: int, tally: Tally, seed: int
) -> None:
    """Make so many calls, each by anybody; where hypothesis finds nothing new, it begins again."""
    roles = st.sampled_from(sorted(tokens))
    while count > 0:

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=count,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(calls, roles)
        def one(call: Call, role: str) -> None:
            call = call.with_token(tokens[role])
            tally.note(answer(port, call), call, role)

        before = tally.statuses.total()
        one()
        count, seed = count - (tally.statuses.total() - before), seed + 1


def serve(settings: Settings, ready: Any, log: Path) -> None:
    """The server, in a process of its own, until it is ended; tells its port and how it describes itself."""
    logging.getLogger("prudent").addHandler(Stumbles(log))
    logging.getLogger("prudent").propagate = False
    with Store(settings.database) as store, socket.create_server(("127.0.0.1", 0)) as listening:
        app = create_app(settings, store)
        ready.send((listening.getsockname()[1], app.openapi()))
        config = uvicorn.Config(app, http=connection_type(settings.headers_s), log_level="critical")
        uvicorn.Server(config).run(sockets=[listening])


@contextlib.contextmanager
def serving(settings: Settings, log: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The server's process, port and description."""
    ours, theirs = multiprocessing.Pipe()
    process = _fork.Process(target=serve, args=(settings, theirs, log), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield process.pid, *ours.recv()
    finally:
        process.terminate()
        process.join(20)
        process.kill()


def send_part(
    description: dict[str, Any], known: Known, tokens: Mapping[str, str], port: int, count: int, seed: int
) -> Tally:
    tally = Tally()
    send_all(of_schema(description, known), tokens, count // 2, port, tally, seed)
    send_all(of_corpus(known), tokens, count - count // 2, port, tally, seed)
    return tally


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def told(tally: Tally, stumbles: Counter[str], memory: list[float], took_s: float) -> None:
    total = tally.statuses.total()
    own = sum(count for status, count in tally.statuses.items() if not 200 <= status < 500)
    print(f"{total} requests in {took_s:.0f} s ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})\n")
    print("| status | answers |\n|---|---|")
    for status, count in sorted(tally.statuses.items()):
        print(f"| {status or 'none'} | {count} |")
    print("\n| who | 2xx | 3xx | 4xx | 5xx or none |\n|---|---|---|---|---|")
    for role in sorted({role for role, _ in tally.roles}):
        counts = [tally.roles[role, kind] for kind in (2, 3, 4)]
        bad = tally.roles[role, 5] + tally.roles[role, 0]
        print(f"| {role} | {' | '.join(map(str, counts))} | {bad} |")
    print("\nmade: " + ", ".join(f"{count} {about}" for about, count in tally.kinds.most_common()))
    print(f"answers that are errors of ours (5xx, or none): {own}")
    print(f"surely wrong, and taken: {len(tally.broken) - own}")
    for status, call in tally.broken[:20]:
        print(f"- {status} {call.about}: {call.raw()[:400]!r}")
    print(f"refused because their check stumbled: {stumbles.total()}")
    for words, count in stumbles.most_common(20):
        print(f"- {count} x {words}")
    first, middle, last = memory[0], memory[len(memory) // 2], memory[-1]
    spread = f"{first:.0f} in the beginning, {middle:.0f} in the middle, {last:.0f} at the end"
    print(f"memory of the server, MB: {spread}")


def accounts(store: Store) -> dict[str, str]:
    """A user of every role, with their tokens; a stranger has none."""
    tokens = {role: new_token() for role in ROLES}
    for role, token in tokens.items():
        store.write(users.put, User(role, role, None, hash_token(token)))
    return {**tokens, "stranger": ""}


def run(said: argparse.Namespace, database_url: str | None) -> bool:
    """Send all, in parts between which memory is read; False if something broke."""
    tally, memory = Tally(), list[float]()
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "stumbles"
        log.touch()
        settings = Settings(Path(name) / "home", database_url=database_url, rate_per_s=1e9)
        settings.create()
        with Store(settings.database) as store:
            tokens = accounts(store)
            known = furnish(store, settings, said.model or trained(Path(name)))
        began_s = time.perf_counter()
        with serving(settings, log) as (pid, port, description):
            for part, count in enumerate(parts(said.requests, said.jobs)):
                seeds = [said.seed + 1000 * (part * said.jobs + job) for job in range(said.jobs)]
                shared = (description, known, tokens, port, count)
                if said.jobs == 1:
                    tally.add(send_part(*shared, seeds[0]))
                else:
                    with _fork.Pool(said.jobs) as pool:
                        for found in pool.starmap(send_part, [(*shared, seed) for seed in seeds]):
                            tally.add(found)
                memory.append(memory_mb(pid))
        stumbles = Counter(log.read_text().splitlines())
        told(tally, stumbles, memory, time.perf_counter() - began_s)
    flat = memory[-1] <= memory[len(memory) // 2] * _GROWTH + _GROWTH_MB
    return not tally.broken and flat


def parts(requests: int, jobs: int) -> list[int]:
    """How many requests each job sends, part by part; memory is read after each."""
    number = min(_PARTS, max(1, requests // (jobs * 50)))
    return [requests // (jobs * number)] * number


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--requests", type=int, default=10_000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--jobs", type=int, default=1, help="processes that send")
    words.add_argument("--database-url")
    words.add_argument("--model", type=Path, help="the folder of a model, instead of training one")
    words.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    said = words.parse_args()
    if not said.postgres:
        sys.exit(not run(said, said.database_url))
    from service_chaos import Postgres

    with tempfile.TemporaryDirectory(prefix="prudent-pg-") as name:
        server = Postgres(Path(name))
        try:
            fine = run(said, server.url)
        finally:
            server.stop()
    sys.exit(not fine)


if __name__ == "__main__":
    main()
