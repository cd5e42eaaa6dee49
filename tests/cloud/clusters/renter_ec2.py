"""`renter.py` on the loopback cloud: a machine's address leads to its SSH server, which the tests have."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prudent.cloud.providers.channel import Channel
from prudent.cloud.providers.ec2 import fleet, provider
from prudent.cloud.providers.ssh.channel import SshChannel


def open_channel(login: Any, workspace: str, environment: Mapping[str, str]) -> Channel:
    with urllib.request.urlopen(f"{os.environ['PRUDENT_TEST_PORTS']}/{login.name}") as answer:
        port = int(answer.read())
    return SshChannel(replace(login, address="127.0.0.1", port=port), workspace, environment)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    import renter

    provider.open_channel = open_channel  # type: ignore[attr-defined]
    fleet._LOOK = fleet._LOOK.replace("/var/lib/prudent/", '"$HOME"/.prudent/')
    renter.main()
