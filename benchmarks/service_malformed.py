"""Does the service ever answer a malformed request with an error of its own?

python benchmarks/service_malformed.py                    # 10,000 requests, on SQLite
python benchmarks/service_malformed.py --requests 300 --seed 3
python benchmarks/service_malformed.py --postgres         # on a PostgreSQL server of its own

Half of the requests are made by schemathesis of the service's own OpenAPI description, half by hypothesis:
broken JSON, wrong values at every place of right documents, odd addresses and headers. They are sent as bytes
to a real server. Exits with 1 if an answer is 5xx or none, or if something that is surely wrong was taken.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import uvicorn
from hypothesis import Phase
from hypothesis.strategies import SearchStrategy

import prudent
from prudent.service.security.access import Access
from prudent.service.settings import Settings
from prudent.service.store import events, models, runs, trials
from prudent.service.store.models import Model
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table
from prudent.service.store.trials import Trial
from prudent.service.web.app import create_app

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "service" / "web"))

from malformed import DOCUMENTS, Call, Known, of_corpus, of_schema


@dataclass
class Tally:
    """What was answered to what."""

    statuses: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, Call]] = field(default_factory=list)

    def note(self, status: int, call: Call) -> None:
        self.statuses[status] += 1
        self.kinds[call.about] += 1
        if not 200 <= status < 500 or (call.wrong and status < 400):
            self.broken.append((status, call))


class Unclear(logging.Handler):
    """Counts the requests that were refused only because their check stumbled."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.seen[f"{record.getMessage()}: {type(error).__name__} {str(error)[:120]}"] += 1


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
    store.write(trials.record, Trial(made[0], 1, "f", {"x": 1}, "finished", 0.5), 1)
    kept = Model(f"{made[0]}-1", made[0], "local", 1, "x", 0.9, "mcc", 0.9, str(model), 1.0)
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


def send_all(calls: SearchStrategy[Call], count: int, port: int, tally: Tally, seed: int) -> None:
    """Make so many calls; where hypothesis finds nothing new, it begins again from another seed."""
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
        @hypothesis.given(calls)
        def one(call: Call) -> None:
            tally.note(answer(port, call), call)

        before = tally.statuses.total()
        one()
        count, seed = count - (tally.statuses.total() - before), seed + 1


@contextlib.contextmanager
def serving(app: object) -> Iterator[int]:
    """The application on a free port."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical"))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)


def told(tally: Tally, unclear: Unclear, took_s: float) -> None:
    total = tally.statuses.total()
    own = sum(count for status, count in tally.statuses.items() if not 200 <= status < 500)
    print(f"{total} requests in {took_s:.0f} s ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})\n")
    print("| status | answers |\n|---|---|")
    for status, count in sorted(tally.statuses.items()):
        print(f"| {status or 'none'} | {count} |")
    print("\nmade: " + ", ".join(f"{count} {about}" for about, count in tally.kinds.most_common()))
    print(f"answers that are errors of ours (5xx, or none): {own}")
    print(f"surely wrong, and taken: {len(tally.broken) - own}")
    for status, call in tally.broken[:20]:
        print(f"- {status} {call.about}: {call.raw()[:400]!r}")
    print(f"refused because their check stumbled: {unclear.seen.total()}")
    for words, count in unclear.seen.most_common(20):
        print(f"- {count} x {words}")


def run(requests: int, seed: int, database_url: str | None, model: Path | None) -> bool:
    """Send all; False if something broke."""
    tally, unclear = Tally(), Unclear()
    logging.getLogger("prudent").addHandler(unclear)
    logging.getLogger("prudent").propagate = False
    with tempfile.TemporaryDirectory() as name:
        settings = Settings(Path(name) / "home", database_url=database_url, rate_per_s=1e9)
        settings.create()
        Access(settings.home).choose(True)
        with Store(settings.database) as store:
            known = furnish(store, settings, model or trained(Path(name)))
            app = create_app(settings, store)
            began_s = time.perf_counter()
            with serving(app) as port:
                send_all(of_schema(app.openapi(), known), requests // 2, port, tally, seed)
                send_all(of_corpus(known), requests - requests // 2, port, tally, seed)
            told(tally, unclear, time.perf_counter() - began_s)
    return not tally.broken


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--requests", type=int, default=10_000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--database-url")
    words.add_argument("--model", type=Path, help="the folder of a model, instead of training one")
    words.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    said = words.parse_args()
    if not said.postgres:
        sys.exit(not run(said.requests, said.seed, said.database_url, said.model))
    from service_chaos import Postgres

    with tempfile.TemporaryDirectory(prefix="prudent-pg-") as name:
        server = Postgres(Path(name))
        try:
            fine = run(said.requests, said.seed, server.url, said.model)
        finally:
            server.stop()
    sys.exit(not fine)


if __name__ == "__main__":
    main()
