"""The kill matrix on EC2: moto's server, with machines that are entered by real SSH.

Their switch shuts a machine down, and these are not real ones; it has tests of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ..ec2_cloud import CREDENTIALS, Ec2Cloud
from ..providers.conformance import Place
from .kill_matrix import MOMENTS, KillMatrix


@pytest.fixture(scope="module")
def running_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Cloud]:
    with Ec2Cloud(tmp_path_factory.mktemp("ec2")) as cloud:
        yield cloud


@pytest.fixture
def ports(running_cloud: Ec2Cloud) -> Iterator[str]:
    """Tells another process which port a machine's SSH server has; it boots when it is asked for."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            port = str(running_cloud._host(self.path.strip("/")).port).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(port)))
            self.end_headers()
            self.wfile.write(port)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestEc2(KillMatrix):
    # One call makes all machines of a cluster or none.
    points = tuple(name for name in MOMENTS if name != "launch.partial")
    telling = ("launch.accepted", "trial.started")

    @pytest.fixture
    def place(
        self, running_cloud: Ec2Cloud, ports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Place]:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
            monkeypatch.delenv(name, raising=False)
        running_cloud.folder = tmp_path
        running_cloud.reset()
        environment = {
            "PRUDENT_TEST_PORTS": ports,
            "PRUDENT_TEST_RENTER": str(Path(__file__).with_name("renter_ec2.py")),
        }
        with running_cloud.entered():
            provider = running_cloud.provider(sleep=time.sleep)
            yield Place(provider, tmp_path, "m5.large", "c5.large", environment=environment)

    @pytest.mark.soak  # `test_tune_on_ec2.py` rents machines there and gives them back
    def test_a_run_that_lives_leaves_nothing(self, place: Place) -> None:
        super().test_a_run_that_lives_leaves_nothing(place)
