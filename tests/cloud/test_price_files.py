"""Prices that were fetched are used by every command, and old ones are told."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from prudent.cloud import price_lists
from prudent.cloud.catalog import Catalog
from prudent.core.errors import BadInput
from prudent.core.money import Price

COLUMNS = ("name", "price_usd_per_h", "date", "region")


def fetched(region: str, day: str, usd_per_h: float) -> Path:
    rows = [("m5.large", usd_per_h, day, region)]
    return price_lists.write_price_list(f"aws-{region}-{day}.csv", COLUMNS, rows, None)


def test_the_newest_list_of_a_region_is_used() -> None:
    assert price_lists.latest_price_list() is None
    assert Catalog.load()["m5.large"].price == Price(0.096, "2025-01-01", "catalog aws us-east-1", 60.0)
    fetched("eu-west-1", "2026-10-01", 0.2)
    newer = fetched("eu-west-1", "2026-11-01", 0.3)
    other = fetched("us-east-1", "2026-11-02", 0.1)
    price_lists.write_price_list("aws-eu-west-1-spot-2026-12-01.csv", ("name",), [], None)
    (price_lists.price_list_folder() / "aws-eu-west-1-2027-01-01.csv.part").touch()
    assert price_lists.latest_price_list("eu-west-1") == newer
    assert price_lists.latest_price_list() == other
    assert price_lists.latest_price_list("ap-south-1") is None
    machine = Catalog.load(region="eu-west-1")["m5.large"]
    assert machine.price == Price(0.3, "2026-11-01", f"catalog {newer.name}", 60.0)
    assert (machine.region, machine.vcpus) == ("eu-west-1", 2)
    assert Catalog.load()["m5.large"].price.usd_per_h == 0.1


def test_a_list_that_is_fetched_again_is_read_again() -> None:
    fetched("us-east-1", "2026-11-02", 0.1)
    assert Catalog.load()["m5.large"].price.usd_per_h == 0.1
    fetched("us-east-1", "2026-11-02", 0.2)
    assert Catalog.load()["m5.large"].price.usd_per_h == 0.2


def test_what_the_user_pays_comes_last(tmp_path: Path) -> None:
    fetched("us-east-1", "2026-11-02", 0.1)
    own = tmp_path / "own.csv"
    own.write_text("name,price_usd_per_h,date\nm5.large,0.05,2026-11-03\n")
    assert Catalog.load(own)["m5.large"].price == Price(0.05, "2026-11-03", "catalog own.csv", 60.0)


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "prices").write_text("in the way")
    with pytest.raises(BadInput, match="PRUDENT_HOME"):
        price_lists.write_price_list("aws-x-2026-11-02.csv", COLUMNS, [], tmp_path)


@pytest.mark.parametrize(("day", "told"), [(date(2026, 3, 2), False), (date(2026, 3, 3), True)])
def test_a_price_older_than_sixty_days_is_told(day: date, told: bool) -> None:
    young, old = Price(1.0, "2026-03-01", "a list"), Price(1.0, "2026-01-01", "catalog aws us-east-1")
    free, undated = Price(0.0, "2020-01-01", "here"), Price(1.0, "", "a table")
    note = price_lists.price_age_note([young, old, free, undated], day)
    assert (note is not None) == told
    if note is not None:
        assert "2026-01-01 (catalog aws us-east-1) are 61 days old" in note
        assert '"prudent prices update"' in note
    assert price_lists.price_age_note([free, undated], day) is None
