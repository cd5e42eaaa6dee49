"""The service part of `prudent demo`: started, given three requests by REST, and open to be looked at."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import ProxyHandler, Request, build_opener

from rich.table import Table
from rich.text import Text

from prudent.core.errors import RunFailed
from prudent.core.units import format_duration, format_money

if TYPE_CHECKING:
    from rich.console import Console

OPEN_S = 60.0
"""So long it can be looked at, by whoever sits at a terminal."""
_PATIENCE_S, _LOOK_S, _END_S = 300.0, 0.3, 60.0
_ENDS = ("succeeded", "failed", "cancelled")
_TABLE = "machine,workers,time_s,price_usd_per_h\n" + "".join(
    f"{name},{count},{600 / (speed * count**0.7) + 5 * count:.1f},{usd * count:.3f}\n"
    for name, speed, usd in (("small", 1.0, 0.05), ("medium", 1.9, 0.1), ("large", 3.5, 0.2))
    for count in (1, 2, 4, 8, 16)
)


@dataclass(frozen=True)
class DemoRequest:
    """A run of the demo, as the service tells it at its end."""

    kind: str
    title: str
    status: str
    time_s: float
    spent_usd: float
    url: str


def service_demo(
    console: Console, folder: Path, data: Path | None = None, seed: int = 0
) -> tuple[DemoRequest, ...]:
    """Serve, submit one request of each kind, and wait for them; in about a quarter of a minute.

    `data` is a CSV file with the column `diagnosis` to train on; without one, functions are minimised.
    """
    home = folder / "service"
    shutil.rmtree(home, ignore_errors=True)
    (home / "data").mkdir(parents=True)
    if data is not None:
        shutil.copy(data, home / "data" / data.name)
    with _served(home) as (address, token):
        began_s = time.monotonic()
        console.print(Text.assemble(("A service  ", "bold"), f"{address}, for requests of a team"))
        documents = requests(data, seed)
        places = [_ask(f"{address}/v1/runs/{kind}", token, asked)["url"] for kind, asked in documents]
        seen = tuple(_end(address, token, place) for place in places)
        console.print(_table(seen))
        _stay(console, f"{address}/sign-in?token={token}", began_s)
    return seen


def requests(data: Path | None, seed: int) -> list[tuple[str, dict[str, Any]]]:
    """One request of each kind."""
    from prudent.workflows.formats.generate import generate

    train: dict[str, Any] = {"domain": "misc-functions", "budget": "30 trials", "seed": seed}
    if data is not None:
        dataset = {"path": data.name, "target": "diagnosis"}
        train = {"domain": "classification", "dataset": dataset, "budget": "24 trials", "seed": seed}
    tune = {
        "table": {"csv": _TABLE},
        "parameters": ["machine", "workers"],
        "goal": "minimise cost_usd subject to time_s <= 200",
        "max_trials": 8,
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "montage.json"
        generate("montage", 30, seed).write(path)
        schedule = {"workflow": json.loads(path.read_text()), "fleet": "3*m3.medium", "seed": seed}
    return [("train", train), ("tune", tune), ("schedule", schedule)]


@contextmanager
def _served(home: Path) -> Iterator[tuple[str, str]]:
    """`prudent serve` on a free port; its address, and the operator's token.

    Three requests are too few to load the libraries of training in every process ahead of them.
    """
    settings = home / "settings.yaml"
    settings.write_text("warm: false\n")
    words = ["serve", "--home", str(home), "--port", "0", "--config", str(settings)]
    with (home / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prudent.cli.main", *words],
            # What is set for a service that runs here otherwise is not meant for this one.
            env={name: value for name, value in os.environ.items() if not name.startswith("PRUDENT_")},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # Ctrl-C is for the demo, which then ends it
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if "http://" not in said:
            raise RunFailed(f"The service did not start; see {home / 'serve.log'}.")
        token = (home / "operator.token").read_text(encoding="utf-8").strip()
        yield "http://" + said.split("http://")[1].split()[0], token
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _ask(url: str, token: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
    body = None if document is None else json.dumps(document).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    # Straight to it: a proxy of this machine knows nothing of its own address.
    with build_opener(ProxyHandler({})).open(Request(url, body, headers), timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _end(address: str, token: str, place: str) -> DemoRequest:
    give_up_s = time.monotonic() + _PATIENCE_S
    while (run := _ask(address + place, token))["status"] not in _ENDS:
        if time.monotonic() > give_up_s:
            raise RunFailed("The demo's runs do not come to an end; see the log of the service.")
        time.sleep(_LOOK_S)
    time_s = max((run["ended_s"] or 0.0) - (run["started_s"] or 0.0), 0.0)
    page = f"{address}/runs/{run['id']}"
    return DemoRequest(run["kind"], run["title"], run["status"], time_s, run["spent_usd"], page)


def _table(seen: tuple[DemoRequest, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("Request", "", "State", "took", "spent"):
        table.add_column(heading, justify="right" if heading in ("took", "spent") else "left", no_wrap=True)
    for one in seen:
        took, spent = format_duration(one.time_s), format_money(one.spent_usd)
        table.add_row(one.kind, one.title, one.status, took, spent)
    return table


def _stay(console: Console, link: str, began_s: float) -> None:
    """Keep it open for the rest of a minute where somebody can look."""
    left_s = OPEN_S - (time.monotonic() - began_s)
    if not console.is_terminal or left_s <= 0:
        return
    console.print(f"It is there for {left_s:.0f} s more; Ctrl-C ends it. To look at it, open")
    console.print(link, soft_wrap=True)
    with suppress(KeyboardInterrupt):
        time.sleep(left_s)
