"""`prudent serve` as a person starts it: REST, a worker, an end in good order."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from prudent.cli.main import run
from prudent.service.worker.sandbox import has_bubblewrap

from ...running.listening import Watch

pytestmark = pytest.mark.timeout(600)
COMMAND = {"parameters": {"n": [1]}, "goal": "minimise time_s", "max_trials": 1}
DOCUMENT = {"domain": "misc-functions", "budget": "3 trials"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def service(home: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "prudent.cli.main", "serve", "--home", str(home), "--port", "0"]
    environment = {**os.environ, "PRUDENT_WARM": "no"}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line, (line, (tmp_path / "log").read_text())
            yield process, line.split("http://")[1].split()[0]
        finally:
            process.kill()


def test_a_run_from_submission_to_result(
    only_loopback: Watch,  # first: it looks at all that is opened after it
    service: tuple[subprocess.Popen[str], str],
    home: Path,
    tmp_path: Path,
    nobody_left: Callable[[Path], None],
) -> None:
    process, place = service
    token = (home / "operator.token").read_text().strip()
    assert process.stdout is not None
    link = process.stdout.readline().split()[-1]
    assert link == f"http://{place}/sign-in?token={token}"
    assert stat.S_IMODE((home / "operator.token").stat().st_mode) == 0o600
    bearer = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"http://{place}", timeout=60, trust_env=False, headers=bearer) as client:
        stranger = httpx.post(f"http://{place}/v1/runs/train", json=DOCUMENT, trust_env=False)
        assert stranger.status_code == 401
        assert "prudent_session" in httpx.get(link, trust_env=False).cookies
        until_s = time.monotonic() + 300
        while client.get("/ready").json()["workers"] == 0:
            assert time.monotonic() < until_s, (tmp_path / "log").read_text()
            time.sleep(0.2)
        begun = client.post("/v1/runs/train", json=DOCUMENT).json()
        with client.stream("GET", f"{begun['url']}/events", timeout=300) as stream:
            kinds = [line[7:] for line in stream.iter_lines() if line.startswith("event: ")]
        assert kinds[0] == "queued"
        assert kinds.count("trial") == 3
        assert kinds[-1] == "succeeded"
        shown = client.get(begun["url"]).json()
        assert (shown["status"], shown["progress"], shown["attempts"]) == ("succeeded", 1.0, 1)
        assert shown["spent_usd"] > 0
        assert len(client.get(f"{begun['url']}/result").json()["entries"]) == 3
        assert "prudent_workers 1" in client.get("/metrics").text
        assert {port.number for port in only_loopback.look()} == {client.base_url.port}
        if has_bubblewrap():  # a command of a request does not even see the operator's token
            command = {**COMMAND, "command": f"test ! -e {home}/operator.token"}
            begun = client.post("/v1/runs/tune", json=command).json()
            with client.stream("GET", f"{begun['url']}/events", timeout=300) as stream:
                *_, last = (line for line in stream.iter_lines() if line.startswith("event: "))
            assert last == "event: succeeded", client.get(begun["url"]).json()
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 0
    nobody_left(home)
    log = (tmp_path / "log").read_text()
    assert token not in log
    assert {type(json.loads(line)) for line in log.splitlines()} == {dict}, "one object a line, all of them"


@pytest.fixture
def own_logging() -> Iterator[None]:
    """A service logs in its own way; that of the tests comes back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--host", "0.0.0.0"), "token"),
        (("serve", "--host", "0.0.0.0", "--open"), "an open service requires no token"),
        (("worker", "--database-url", "postgresql://me:hush@host/name"), "PRUDENT_DATABASE_URL"),
    ],
)
def test_what_would_be_unsafe_is_refused(
    words: tuple[str, ...], said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others may not reach a service without tokens, and a password on the command line is everybody's."""
    assert run([*words, "--home", str(home)]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "hush" not in told.out + told.err
