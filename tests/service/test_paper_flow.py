"""The whole way of a request, as the paper draws it, with nothing but real programs on it.

A document is dropped into a bucket; the bucket tells a queue; the service takes it from there, rents
machines, trains on the Spark cluster that it starts on them, keeps the ranked models in a bucket, and writes
a mail. The model that the mail links to is downloaded and used.

The short member goes the same way in a service that rents no machines: its worker trains, without Java.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from aiosmtpd.controller import Controller

import prudent
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.service.worker.machines import NONE_HERE

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(900)
DATA = Path(pyspark.__file__).parent / "data" / "mllib" / "sample_linear_regression_data.txt"
MOST = 1
REQUEST: dict[str, Any] = {
    "domain": "regression",
    "methods": [
        {
            "algorithm": "linear-regression",
            "hyperparameters": [
                {"param": "regParam", "values": [0.001, 0.1]},
                {"param": "maxIter", "values": [2, 4]},
            ],
        }
    ],
    "parameterSearch": "random",
    "budget": "1 trial",
    "dataset": {"path": "s3://team/data/sample_linear_regression_data.txt", "format": "libsvm"},
    "computationalResources": {
        "instances": [{"ec2Instance": "m3.medium", "minInstances": 1, "maxInstances": MOST}],
        "minTotalInstances": 1,
        "maxTotalInstances": MOST,
    },
    "emailAddress": "ada@example.org",
}


class Office:
    """A mail server that keeps what comes."""

    def __init__(self) -> None:
        self.letters: list[EmailMessage] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - its name there
        self.letters.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"


class Counter(Controller):
    """Listens at a port that is free, and has time to say so."""

    def __init__(self, handler: Office) -> None:
        super().__init__(handler, hostname="127.0.0.1", port=0, ready_timeout=60)

    def _trigger_server(self) -> None:
        self.port = int(self.server.sockets[0].getsockname()[1])
        with socket.create_connection((self.hostname, self.port), 60) as asked:
            asked.recv(1024)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def s3(cloud: None) -> Iterator[Any]:
    client = boto3.client("s3")
    yield client
    client.close()


@pytest.fixture
def queue(s3: Any) -> Iterator[str]:
    """A queue that hears of everything dropped into the bucket's inbox."""
    sqs = boto3.client("sqs")
    url = str(sqs.create_queue(QueueName="requests")["QueueUrl"])
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    s3.create_bucket(Bucket="team")
    told = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}
    s3.put_bucket_notification_configuration(
        Bucket="team", NotificationConfiguration={"QueueConfigurations": [told]}
    )
    yield url
    sqs.close()


@pytest.fixture
def office() -> Iterator[tuple[Office, int]]:
    found = Office()
    counter = Counter(found)
    counter.start()
    yield found, counter.port
    counter.stop()


@pytest.fixture
def service(
    rents: bool, queue: str, office: tuple[Office, int], tmp_path: Path
) -> Iterator[tuple[str, Path]]:
    """`prudent serve`, as an operator would start it; its address and its home."""
    home, log = tmp_path / "home", tmp_path / "log"
    words = ["serve", "--open", "--home", str(home), "--queue", queue, "--bucket", "s3://team/inbox"]
    words += ["--artifacts", "s3://team/results", "--concurrency", "1"]
    words += ["--where", "local"] if rents else []
    mail = {"HOST": "127.0.0.1", "PORT": str(office[1]), "SECURITY": "none", "FROM": "prudent@example.org"}
    environment = {**os.environ, **{f"PRUDENT_SMTP_{name}": value for name, value in mail.items()}}
    environment |= {"PRUDENT_MAIL_DOMAINS": "example.org", "PRUDENT_WARM": "no"}

    def started(port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "prudent.cli.main", *words, "--port", str(port)]
        with log.open("w") as told:
            return subprocess.Popen(command, env=environment, stdout=told, stderr=told)

    # Mails name the port, so that it must be known before; somebody may be quicker to take it.
    port = free_port()
    process = started(port)
    try:
        while "Prudent serves at" not in log.read_text():
            if process.poll() is not None:
                assert "Cannot listen" in log.read_text(), log.read_text()
                port = free_port()
                process = started(port)
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", home
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(happened: Callable[[], Any], log: Path, wait_s: float = 600.0) -> Any:
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s:
        if found := happened():
            return found
        time.sleep(0.1)
    raise AssertionError(f"It did not happen.\n{log.read_text()[-4000:]}")


@pytest.mark.parametrize("rents", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_from_a_dropped_document_to_a_model_in_use(
    rents: bool, service: tuple[str, Path], s3: Any, office: tuple[Office, int], tmp_path: Path
) -> None:
    address, home = service
    log = tmp_path / "log"
    s3.put_object(Bucket="team", Key="data/sample_linear_regression_data.txt", Body=DATA.read_bytes())
    s3.put_object(Bucket="team", Key="inbox/house-prices.json", Body=json.dumps(REQUEST))

    provider, most = LocalProvider(home), 0

    def letter() -> EmailMessage | None:
        nonlocal most
        most = max(most, len(provider.list()))
        return office[0].letters[0] if office[0].letters else None

    mail = until(letter, log)
    assert rents <= most <= rents * MOST
    assert provider.list() == ()
    assert {lease.state for lease in LeaseRegister(home).leases()} == ({"released"} if rents else set())

    # The answer beside the document, and what it leads to
    answer = s3.get_object(Bucket="team", Key="inbox/accepted/house-prices.json.RUN")["Body"].read()
    run_id = json.loads(answer)["id"]
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        run = client.get(f"/v1/runs/{run_id}").json()
        assert (run["status"], run["attempts"]) == ("succeeded", 1), run
        if rents:
            paid_usd = sum(lease.cost_usd(time.time()) for lease in LeaseRegister(home).leases())
            assert run["spent_usd"] == pytest.approx(paid_usd, rel=0.01)
        with client.stream("GET", f"/v1/runs/{run_id}/events") as stream:
            lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
        told = "Spark runs on 1*m3.medium (local)" if rents else NONE_HERE
        assert any(told in line for line in lines), lines
        board = client.get(f"/v1/runs/{run_id}/result").json()
        assert len(board["entries"]) == 1

        # The mail: ranked models in HTML and in plain text, and links
        assert mail["To"] == "ada@example.org"
        html = mail.get_body(("html",)).get_content()
        text = mail.get_body(("plain",)).get_content()
        for part in (html, text):
            assert "linear-regression" in part
        (link,) = set(re.findall(rf'href="({address}/v1/models/[^"]+/download)"', html))
        assert link in text
        assert "<html" in client.get(f"{address}/v1/runs/{run_id}/report").text[:200]

        # The model, from the bucket by way of the service, used
        kept = [fact["Key"] for fact in s3.list_objects_v2(Bucket="team", Prefix="results/")["Contents"]]
        assert sum(name.endswith("/model.onnx") for name in kept) == 1
        with zipfile.ZipFile(io.BytesIO(client.get(link).content)) as archive:
            archive.extractall(tmp_path / "mine")
        (folder,) = (tmp_path / "mine").iterdir()
        rows = [[0.1 * place for place in range(10)], [0.0] * 10]
        mine = prudent.load(folder).predict(rows).tolist()
        theirs = client.post(link.replace("download", "predict"), json={"rows": rows}).json()
        assert mine == pytest.approx(theirs["predictions"])
        assert mine[0] != mine[1]
