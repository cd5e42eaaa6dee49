"""The watch over ports sees what it is for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .listening import Watch

_OPENS = """
import socket, sys
with socket.create_server((sys.argv[1], 0), family=int(sys.argv[2])) as one:
    print(one.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("address", "family", "loopback"), [("127.0.0.1", 2, True), ("0.0.0.0", 2, False)])
def test_ports_of_processes_below_are_seen(tmp_path: Path, address: str, family: int, loopback: bool) -> None:
    with (
        Watch(tmp_path) as watch,
        subprocess.Popen(
            [sys.executable, "-IS", "-c", _OPENS, address, str(family)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        number = int(process.stdout.readline())
        [port] = [one for one in watch.look() if one.number == number]
        assert (port.address, port.on_loopback) == (address, loopback)
        assert watch.beyond_loopback == (set() if loopback else {port})
        process.stdin.close()
