"""Those who attack a service at the same time, each in a process, as if on computers of their own."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from prudent.core.processes import lower_priority, lower_session_priority
from prudent.service.settings import Settings


@dataclass(frozen=True)
class Target:
    """The service as those see it who attack it in processes of their own."""

    port: int
    settings: Settings
    tokens: dict[str, str]
    until_s: float

    @property
    def going(self) -> bool:
        return time.monotonic() < self.until_s

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.settings.home / "data"

    def client(self, user: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[user]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=600, trust_env=False)

    def connect(self, said: str = "") -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self.port), timeout=600)
        line.sendall(said.encode())
        return line

    def rounds(self) -> Iterator[int]:
        """Numbers from 1 until the time is over; at least one, however long it took to prepare."""
        for number in count(1):
            yield number
            if not self.going:
                return


Outcome = tuple[bool, str]
"""Whether the promise held, and what was seen."""


@dataclass(frozen=True)
class Attack:
    name: str
    promise: str
    play: Callable[[Target], Outcome]


def crowd(attacks: list[Attack], target: Target, told: Any) -> None:
    """All attackers. They give way to the service as work does, for in earnest they have other computers; but
    not further, for they shall attack as quickly as they can."""
    os.setsid()
    lower_session_priority(os.getpid())
    lower_priority()
    enemies = [multiprocessing.Process(target=played, args=(each, target, told)) for each in attacks]
    for enemy in enemies:
        enemy.start()
    for enemy in enemies:
        enemy.join()


def played(attack: Attack, target: Target, told: Any) -> None:
    try:
        told.put((attack.name, attack.play(target)))
    except Exception as error:  # noqa: BLE001 - an attack that breaks is told, too
        told.put((attack.name, (False, f"{type(error).__name__}: {error}")))
