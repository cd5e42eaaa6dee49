"""`prudent prices` shows what was asked for, or says what to ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from prudent.cli.prices import prices
from prudent.cloud.catalog import Catalog
from prudent.core.errors import BadInput


def run(*arguments: str) -> str:
    result = CliRunner().invoke(prices, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def rows(*arguments: str) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(run(*arguments, "--json"))
    return answer


def test_the_table_has_price_vcpu_price_date_and_region() -> None:
    line = next(line for line in run("--family", "m5").splitlines() if "m5.xlarge" in line)
    assert line.split() == ["m5.xlarge", "4", "16", "0.1920", "0.0480", "2025-01-01", "us-east-1"]


def test_gpus_have_a_column_where_there_are_some() -> None:
    assert "4 T4" in run("--family", "g4dn")
    assert "GPU" not in run("--family", "m5")


def test_json_has_every_machine_in_full() -> None:
    everything = rows()
    assert len(everything) == len(Catalog.load())
    machine = next(row for row in everything if row["name"] == "m3.2xlarge")
    assert machine == {
        "name": "m3.2xlarge", "family": "m3", "vcpus": 8, "memory_gb": 30.0, "gpus": 0, "gpu": "",
        "price_usd_per_h": 0.532, "price_usd_per_vcpu_h": 0.0665, "minimum_s": 60.0, "date": "2025-01-01",
        "region": "us-east-1", "source": "catalog aws us-east-1", "speed": 1.0, "mips": 4156.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("order", "key"), [("price", "price_usd_per_h"), ("vcpus", "vcpus"), ("family", "family")]
)
def test_orders(order: str, key: str) -> None:
    found = [row[key] for row in rows("--sort", order)]
    assert found == sorted(found)


def test_only_large_machines() -> None:
    assert {row["name"] for row in rows("--family", "c5", "--min-vcpus", "72")} == {
        "c5.18xlarge",
        "c5.24xlarge",
    }


def test_own_prices(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("name,price_usd_per_h\nlab.big,1.25\n")
    assert [row["price_usd_per_h"] for row in rows("--catalog", str(path), "--family", "lab")] == [1.25]
    table = run("--catalog", str(path), "--family", "lab")
    assert "1.2500" in table
    assert "unknown" in table


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--family", "m55"], 'Unknown machine family "m55". Did you mean "m5"'),
        (["--sort", "prize"], 'Did you mean "price"'),
        (["--catalog", "nowhere.csv"], "cannot be read"),
        (["--family", "m5", "--min-vcpus", "500"], "lower --min-vcpus"),
    ],
)
def test_wrong_questions_are_refused_with_exit_code_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(prices, arguments)
    assert isinstance(result.exception, BadInput)
    assert result.exception.exit_code == 2
    assert says in str(result.exception)
