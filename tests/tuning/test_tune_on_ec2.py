"""`prudent tune` on EC2: spot machines of two types, one taken away, each paid by its price at launch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from moto.ec2.models.instances import Instance

from prudent.cli.main import run
from prudent.cloud.leases.lease import RELEASED
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.ec2.provider import Ec2Provider
from prudent.tuning.jobs import cluster_run

from ..cloud.ec2_cloud import CREDENTIALS, Ec2Cloud
from ..cloud.ec2_faults import _answer

XMLNS = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'


class Market:
    """What moto has no idea of: spot prices that move, and the notice that a machine will be taken."""

    def __init__(self) -> None:
        self.prices = {"m5.large": 0.040, "c5.large": 0.030}
        self.marked: set[str] = set()

    def watch(self, provider: Ec2Provider) -> None:
        events = provider.clients.ec2.meta.events
        events.register_first("before-send.ec2.DescribeSpotPriceHistory", self._history)
        events.register_first("before-send.ec2.DescribeSpotInstanceRequests", self._requests)

    def _history(self, request: Any, **_: Any) -> Any:
        kind = _asked(request)["InstanceType.1"][0]
        items = "".join(
            f"<item><instanceType>{kind}</instanceType><spotPrice>{self.prices[kind]}</spotPrice>"
            f"<timestamp>2026-05-02T10:00:00Z</timestamp><availabilityZone>{zone}</availabilityZone></item>"
            for zone in ("us-east-1a", "us-east-1b")
        )
        said = f"<spotPriceHistorySet>{items}</spotPriceHistorySet>"
        return _answer(
            request,
            200,
            f"<DescribeSpotPriceHistoryResponse {XMLNS}>{said}</DescribeSpotPriceHistoryResponse>",
        )

    def _requests(self, request: Any, **_: Any) -> Any:
        [name] = _asked(request)["SpotInstanceRequestId.1"]
        code = "marked-for-termination" if name in self.marked else "fulfilled"
        item = (
            f"<item><spotInstanceRequestId>{name}</spotInstanceRequestId><status><code>{code}</code>"
            "<message>in two minutes</message></status></item>"
        )
        said = f"<spotInstanceRequestSet>{item}</spotInstanceRequestSet>"
        return _answer(
            request,
            200,
            f"<DescribeSpotInstanceRequestsResponse {XMLNS}>{said}</DescribeSpotInstanceRequestsResponse>",
        )


def _asked(request: Any) -> dict[str, list[str]]:
    body = request.body
    return parse_qs(body.decode() if isinstance(body, bytes) else body)


def request_of(machine: str) -> str:
    return f"sir-{machine[2:]}"


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Cloud]:
    for name, value in {**CREDENTIALS, "PRUDENT_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    named = property(lambda one: request_of(one.id) if one.lifecycle == "spot" else None)
    monkeypatch.setattr(Instance, "spot_instance_request_id", named, raising=False)
    monkeypatch.setattr(cluster_run, "_LOOK_S", 0.2)
    with Ec2Cloud(tmp_path / "ec2") as made, made.entered():
        yield made


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch) -> Market:
    market, of = Market(), Ec2Provider.of

    def watched(setting: Any, home: Path, folder: Path) -> Ec2Provider:
        provider = of(setting, home, folder)
        market.watch(provider)
        return provider

    monkeypatch.setattr(Ec2Provider, "of", watched)
    return market


def job_file(cloud: Ec2Cloud, folder: Path) -> Path:
    folder.mkdir()
    # The first machine of all works until it is taken away; the others have done at once.
    first = folder.parent / "first"
    said = {
        "command": f"if mkdir {first}; then echo up; sleep 300; fi; "
        'case $PRUDENT_MACHINES in *m5.large) e=1 ;; *) e=2 ;; esac; echo "PRUDENT {{\\"error\\": $e}}"',
        "where": {"ec2": str(cloud.file())},
        "spot": True,
        "parameters": {"cluster": {"machine": {"types": ["m5.large", "c5.large"], "count": [1]}}},
        "measures": ["error"],
        "goal": "minimise error",
        "strategy": "grid",
        "budget": "$0.01",
        "grace": "1 s",
    }
    (folder / "job.yaml").write_text(json.dumps(said))
    return folder / "job.yaml"


def take_away(cloud: Ec2Cloud, market: Market, first: Path) -> None:
    """Once the command runs, the market rises, and the machine gets its notice."""
    end_s = time.monotonic() + 120
    while not first.exists():
        if time.monotonic() > end_s:
            return
        time.sleep(0.05)
    [machine] = cloud.machines()
    market.prices = {"m5.large": 0.050, "c5.large": 0.035}
    market.marked.add(request_of(machine["InstanceId"]))


def test_a_spot_machine_that_is_taken_is_replaced_and_each_is_paid_by_its_own_price(
    cloud: Ec2Cloud, market: Market, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = job_file(cloud, tmp_path / "job")
    taking = threading.Thread(target=take_away, args=(cloud, market, tmp_path / "first"))
    taking.start()
    code = run(["tune", str(path), "--json"])
    taking.join()
    said = capfd.readouterr()
    assert code == 0, said.err
    result = json.loads(said.out)
    # Taken away is not failed: each configuration has one trial, and its values.
    assert sorted((one["configuration"]["cluster"], one["status"]) for one in result["trials"]) == [
        ("1*c5.large", "finished"),
        ("1*m5.large", "finished"),
    ]
    assert result["best"]["configuration"] == {"cluster": "1*m5.large"}
    logs = "".join(
        path.read_text() for path in sorted((tmp_path / "job" / "job.prudent" / "logs").glob("*.err"))
    )
    assert logs.count("the machines were lost (EC2 takes") == 1
    assert "marked-for-termination" in logs

    assert cloud.machines() == []
    ended = cloud.machines("terminated")
    assert len(ended) == 3
    assert {one["InstanceLifecycle"] for one in ended} == {"spot"}
    leases = sorted(LeaseRegister(tmp_path / "home").leases(), key=lambda lease: lease.wanted_s)
    assert [lease.state for lease in leases] == [RELEASED] * 3
    # The first was launched before the market rose, the others after.
    prices = [one.price.usd_per_h for lease in leases for one in lease.machines]
    assert prices == [{"m5.large": 0.040, "c5.large": 0.030}[leases[0].order.type]] + [
        market.prices[lease.order.type] for lease in leases[1:]
    ]
    assert result["spent_usd"] == pytest.approx(sum(lease.cost_usd(0.0) for lease in leases), abs=1e-9)
    assert result["spent_usd"] <= 0.01
