"""Point 1, what listens: a scan of all processes while a plan is executed, and strangers at every port."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from attacks.target import Found, Service, ended, submitted, wait_for

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from running import strangers
from running.listening import Port, ports_of

_LOOPBACK = "every port of every process is on loopback"
_REFUSED = "nobody without the secret is served"
_TASKS = [
    {"name": name, "id": name, "parents": [], "children": [], "inputFiles": [], "outputFiles": []}
    for name in ("a", "b")
]
PLAN = {
    "workflow": {
        "name": "two",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": _TASKS, "files": []},
            "execution": {
                "makespanInSeconds": 21600,
                "tasks": [{"id": task["id"], "runtimeInSeconds": 21600} for task in _TASKS],
            },
        },
    },
    "fleet": "2*m3.medium",
    "scheduler": "heft",
    "execute": {"replay": 1.0},
}
"""A rehearsal that lasts until it is cancelled; any member may ask for it."""


def play(service: Service, folder: Path) -> Iterator[Found]:
    """While a plan is executed: the scan, then strangers who speak to each port."""
    yield _alone(service)
    with executing(service) as ports:
        beyond = [port for port in ports if not port.on_loopback]
        seen = ", ".join(sorted(f"{port.address}:{port.number}" for port in ports))
        yield Found(1, "scan while a plan is executed", _LOOPBACK, seen, bool(ports) and not beyond)
        numbers = sorted({port.number for port in ports} - {service.port})
        yield _orders(numbers, folder)
        yield _strange_bytes(numbers)
        yield _secrets_in_sight(service)
    yield _pages(service)


@contextlib.contextmanager
def executing(service: Service) -> Iterator[set[Port]]:
    """The ports that are open while a plan is followed: a scheduler's, two workers', and the service's."""
    with service.client("mallory") as client:
        place = submitted(client, "schedule", PLAN)

        def all_open() -> set[Port] | None:
            if client.get(place).json()["status"] not in ("queued", "running"):
                raise ValueError(f"the plan ended: {client.get(place).json()['error']}")
            found = scan(service)
            return found if len({port.number for port in found}) >= 4 else None

        try:
            yield wait_for(all_open, "the workers of a plan")
        finally:
            client.post(f"{place}/cancel")
            ended(client, place)


def scan(service: Service) -> set[Port]:
    """What the service and all below it listen at, as the system tells."""
    own = psutil.Process(service.process.pid)
    return {port for process in [own, *own.children(recursive=True)] for port in ports_of(process)}


def _alone(service: Service) -> Found:
    ports = scan(service)
    seen = ", ".join(f"{port.address}:{port.number}" for port in ports)
    held = {(port.number, port.on_loopback) for port in ports} == {(service.port, True)}
    return Found(1, "scan of the service at rest", "it listens at its one port, on loopback", seen, held)


def _orders(numbers: list[int], folder: Path) -> Found:
    """Ask each to make a file: plainly, and with certificates of another run."""
    victims = folder / "victims"
    victims.mkdir(exist_ok=True)
    answers = strangers.order_dask(numbers, victims)
    made = list(victims.iterdir())
    seen = f"{len(answers)} orders at {len(numbers)} ports: {answers.count('taken')} taken, {len(made)} done"
    held = bool(numbers) and "taken" not in answers and not made
    return Found(1, "orders to Dask's processes", _REFUSED, seen, held)


def _strange_bytes(numbers: list[int]) -> Found:
    heard = [
        answer
        for number in numbers
        for answer in (strangers.without_certificate(number), strangers.answer(number, strangers.NOBODYS))
    ]
    seen = f"{len(heard)} tries (TLS without a certificate, bytes), {sum(map(bool, heard))} answered"
    return Found(1, "strangers' bytes", _REFUSED, seen, bool(heard) and not any(heard))


def _secrets_in_sight(service: Service) -> Found:
    """Any account of the machine reads the list of processes."""
    own = psutil.Process(service.process.pid)
    words: list[str] = []
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            words += process.cmdline()
    secrets = ("PRIVATE KEY", *service.tokens.values())
    seen = [secret[:8] for secret in secrets if any(secret in word for word in words)]
    promise = "no key or token is in the list of processes"
    return Found(1, "list of processes", promise, f"{len(words)} words, {len(seen)} secrets", not seen)


def _pages(service: Service) -> Found:
    """Every address of the service without a token: only signs of life and the way to sign in."""
    free = ("/health", "/ready", "/sign-in")
    with service.client("mallory") as client:
        paths = client.get("/openapi.json").json()["paths"]
    pages = ("/", "/runs", "/models", "/machines", "/money", "/submit/tune", "/docs", "/runs/live")
    asked = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    asked += [("GET", path) for path in pages]
    let_in = []
    with service.client() as stranger:
        for method, path in asked:
            place = path.replace("{kind}", "train").replace("{run_id}", "0" * 26).replace("{model_id}", "0")
            answer = stranger.request(method, place)
            if path not in free and answer.status_code not in (401, 403):
                let_in.append(f"{method} {path} {answer.status_code}")
    seen = f"{len(asked)} addresses, let in: {', '.join(let_in) or 'none'}"
    return Found(1, "the service's port without a token", _REFUSED, seen, not let_in)
