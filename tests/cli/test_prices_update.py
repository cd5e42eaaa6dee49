"""`prudent prices update` against AWS's own protocols: a price list served as AWS serves it, EC2 by moto."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from prudent.cli.clusters import prices_at
from prudent.cli.prices import prices
from prudent.cloud import price_lists
from prudent.cloud.catalog import Catalog
from prudent.core.errors import BadInput, PrudentError

from ..cloud.ec2_cloud import CREDENTIALS, Ec2Cloud


def offer(name: str, usd: str, region: str, unit: str = "Hrs", **more: str) -> str:
    """One entry, in the form that the Price List has."""
    facts = {"instanceType": name, "vcpu": "2", "memory": "8 GiB", "regionCode": region, **more}
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}, "beginRange": "0", "endRange": "Inf"}
    term = {"offerTermCode": "JRTCKXETXF", "priceDimensions": {"S.J.6YS6EN2CT7": dimension}}
    return json.dumps({"product": {"sku": "S", "attributes": facts}, "terms": {"OnDemand": {"S.J": term}}})


class PriceListServer(BaseHTTPRequestHandler):
    """Answers GetProducts in pages of two; keeps what was asked."""

    asked: ClassVar[list[dict[str, Any]]]
    offers: ClassVar[list[str]]

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["X-Amz-Target"] == "AWSPriceListService.GetProducts"
        self.asked.append(said)
        region = next(one["Value"] for one in said["Filters"] if one["Field"] == "regionCode")
        known = [
            one for one in self.offers if json.loads(one)["product"]["attributes"]["regionCode"] == region
        ]
        start = int(said.get("NextToken", "0"))
        answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": known[start : start + 2]}
        if start + 2 < len(known):
            answer["NextToken"] = str(start + 2)
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        return None


@pytest.fixture
def price_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[PriceListServer]]:
    here = "eu-west-1"

    class Answers(PriceListServer):
        asked: ClassVar = []
        offers: ClassVar = [
            offer("m5.large", "0.1070000000", here),
            offer("m5.large", "0.0000000000", here),  # an hour of a reservation that is paid already
            offer("p3.2xlarge", "3.3050000000", here, vcpu="8", memory="61 GiB", gpu="1"),
            offer("x9.metal", "12.5", here, vcpu="128", memory="1,952 GiB"),
            offer("m5.large", "90.0", here, unit="Quantity"),
            offer("m5.large", "0.2", "us-west-2"),
        ]

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", f"http://127.0.0.1:{server.server_port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    yield Answers
    server.shutdown()
    server.server_close()
    thread.join()


def update(*arguments: str) -> Any:
    result = CliRunner().invoke(prices, ["update", *arguments, "--json"])
    if isinstance(result.exception, PrudentError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_todays_prices_of_a_region_are_kept_and_used(
    price_list: type[PriceListServer], own_home: Path, tmp_path: Path
) -> None:
    said = update("--region", "eu-west-1")
    assert said["types"] == 3
    [file] = said["files"]
    assert Path(file).parent == own_home / "prices"
    assert said["date"] in file
    assert len(price_list.asked) == 3  # pages
    machine = Catalog.load(region="eu-west-1")["m5.large"]
    assert (machine.price.usd_per_h, machine.price.date, machine.region) == (0.107, said["date"], "eu-west-1")
    assert (machine.vcpus, machine.memory_gb, machine.price.minimum_s) == (2, 8.0, 60.0)
    assert Catalog.load()["x9.metal"].memory_gb == 1952
    graphic = Catalog.load()["p3.2xlarge"]
    assert (graphic.gpus, graphic.gpu) == (1, "NVIDIA V100")  # AWS's list does not name it, ours does
    settings = tmp_path / "aws.yaml"
    settings.write_text("region: eu-west-1\n")
    [price] = prices_at(f"ec2:{settings}", ["m5.l*"])
    assert price == machine.price
    assert prices_at("local", ["m5.l*"]) == []


def test_a_region_that_is_not_there_is_refused_and_nothing_is_lost(
    price_list: type[PriceListServer], own_home: Path
) -> None:
    with pytest.raises(BadInput, match='no prices for a region "eu-wets-1"'):
        update("--region", "eu-wets-1")
    assert not (own_home / "prices").exists()


@pytest.mark.usefixtures("price_list")
def test_wrong_questions_about_spot_prices_are_refused() -> None:
    with pytest.raises(BadInput, match=r'mean "m5.\*"'):
        update("--region", "eu-west-1", "--spot", "m55.*")
    with pytest.raises(BadInput, match="90 days"):
        update("--region", "eu-west-1", "--spot", "m5.*", "--spot-days", "120")


@pytest.mark.usefixtures("price_list")
def test_spot_prices_are_kept_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ec2Cloud(tmp_path / "ec2") as cloud:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", cloud.url)
        said = update("--region", "eu-west-1", "--spot", "m5.*", "--spot-days", "1")
    with open(said["files"][1], newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert len(rows) == said["spot_prices"]
    assert {row["name"] for row in rows} == {"m5.large"}
    assert all(row["zone"].startswith("eu-west-1") and float(row["price_usd_per_h"]) > 0 for row in rows)
    assert Catalog.load()["m5.large"].price.usd_per_h == 0.107  # on demand, not spot


def told(done: Any) -> str:
    """What the program itself said on stderr."""
    return "\n".join(line for line in done.err.splitlines() if line.startswith("prudent: "))


def test_old_prices_are_told_before_machines_are_rented(
    prudent: Callable[..., Any],
    command_job: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    parameters = {"x": [1], "cluster": {"machine": {"types": ["m5.large"], "count": [1]}}}
    with Ec2Cloud(tmp_path / "ec2") as cloud:
        job = command_job(where={"ec2": str(cloud.file())}, price=None, parameters=parameters)
        assert "Prices of 2025-01-01 (catalog aws us-east-1) are" in told(prudent("tune", job, "--dry-run"))
        fresh = [("m5.large", 0.1, price_lists.today().isoformat(), "us-east-1")]
        columns = ("name", "price_usd_per_h", "date", "region")
        price_lists.write_price_list(f"aws-us-east-1-{price_lists.today()}.csv", columns, fresh, None)
        assert "Prices of" not in told(prudent("tune", job, "--dry-run"))
