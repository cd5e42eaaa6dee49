"""A real service to attack, those who attack it, and what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from prudent.service.settings import Settings, environment_of

PATIENCE_S = 1800.0
"""Beside other work, processes that give way need long; what is waited for are facts, not speed."""
MAIN = [sys.executable, "-m", "prudent.cli.main"]


@dataclass(frozen=True)
class Found:
    """What one attack came to."""

    point: int
    attack: str
    promise: str
    seen: str
    held: bool


@dataclass(frozen=True)
class Service:
    """A service that runs, as those see it who attack it."""

    settings: Settings
    process: subprocess.Popen[bytes]
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.settings.home

    @property
    def port(self) -> int:
        return self.settings.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.home.parent / "log").read_text(errors="replace")

    def client(self, user: str | None = None) -> httpx.Client:
        """One that has the user's token; None is a stranger."""
        headers = {} if user is None else {"authorization": f"Bearer {self.tokens[user]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120, trust_env=False)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def add_user(self, name: str, role: str) -> None:
        said = prudent("users", "add", name, "--role", role, "--home", str(self.home), "--json")
        self.tokens[name] = str(json.loads(said)["token"])

    def remove_user(self, name: str) -> None:
        prudent("users", "remove", name, "--home", str(self.home))

    @contextlib.contextmanager
    def signed_in(self, user: str) -> Iterator[httpx.Client]:
        """A browser's client: it has the cookie of a session, and no token."""
        with self.client() as client:
            client.post("/sign-in", data={"token": self.tokens[user]})
            yield client


def prudent(*words: str) -> str:
    return subprocess.run([*MAIN, *words], check=True, capture_output=True, text=True).stdout


def form_token(page: str) -> str:
    return re.findall(r'name="csrf" value="([^"]+)"', page)[0]


@contextlib.contextmanager
def serving(
    settings: Settings,
    users: Mapping[str, str] | None = None,
    *words: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """`prudent serve` with its workers and these users (name and role), until the end of the block."""
    settings.create()
    with (settings.home.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            [*MAIN, "serve", *words],
            env={**os.environ, **environment_of(settings), **(environment or {})},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    service = Service(settings, process)
    try:
        wait_for(lambda: _is_ready(service), "the service")
        service.tokens["operator"] = (settings.home / "operator.token").read_text().strip()
        for name, role in (users or {}).items():
            service.add_user(name, role)
        yield service
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(90)
        process.kill()
        process.wait()


def _is_ready(service: Service) -> bool:
    if service.process.poll() is not None:
        raise SystemExit(f"The service ended.\n{service.log[-3000:]}")
    with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
        answer = httpx.get(f"{service.url}/ready", trust_env=False).json()
        return bool(answer["workers"]) or not service.settings.workers
    return False


def wait_for(happened: Callable[[], Any], what: str) -> Any:
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if found := happened():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"waited {PATIENCE_S:g} s for {what}")


def ended(client: httpx.Client, place: str) -> dict[str, Any]:
    """The run when it has ended."""

    def run() -> dict[str, Any] | None:
        shown: dict[str, Any] = client.get(place).json()
        return None if shown["status"] in ("queued", "running") else shown

    found: dict[str, Any] = wait_for(run, "the end of a run")
    return found


def submitted(client: httpx.Client, kind: str, document: Mapping[str, Any]) -> str:
    """The place of a run; it must be taken."""
    answer = client.post(f"/v1/runs/{kind}", json=document)
    if answer.status_code != 202:
        raise ValueError(f"not taken: {answer.status_code} {answer.text[:300]}")
    return str(answer.json()["url"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
