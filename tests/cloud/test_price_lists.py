"""A wrong price list is refused with the line, the column and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.cloud.price_lists import PriceRow, parse_price_table, read_price_table
from prudent.core.errors import BadInput


def parse(text: str) -> list[PriceRow]:
    return parse_price_table(text.splitlines(), "mine.csv")


def test_a_row_holds_what_is_given_and_none_for_the_rest() -> None:
    assert parse("price_usd_per_h,name,vcpus,memory_gb\n0.5, lab ,4,\n") == [PriceRow("lab", 0.5, vcpus=4)]


def test_empty_lines_are_no_rows() -> None:
    assert len(parse("name,price_usd_per_h\na,1\n\n , \nb,2\n")) == 2


def test_every_column() -> None:
    text = (
        "name,price_usd_per_h,vcpus,memory_gb,family,gpus,gpu,date,region,speed,mips,minimum_s\n"
        "a,1,2,3.5,fam,1,T4,2025-01-31,here,1.5,900,0\n"
    )
    assert parse(text) == [PriceRow("a", 1.0, 2, 3.5, "fam", 1, "T4", "2025-01-31", "here", 1.5, 900.0, 0.0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"mine\.csv is empty"),
        ("name\na\n", "line 1: the column price_usd_per_h is missing"),
        ("price_usd_per_h\n1\n", "line 1: the column name is missing"),
        ("name,price_usd_per_h,vcpu\na,1,2\n", 'line 1: Unknown column "vcpu". Did you mean "vcpus"'),
        ("name,price_usd_per_h,name\na,1,b\n", "line 1: the column name is given twice"),
        ("name,price_usd_per_h\na,-1\n", 'line 2, column price_usd_per_h: "-1" is too small'),
        ("name,price_usd_per_h\na,dear\n", 'line 2, column price_usd_per_h: "dear" is not a number'),
        ("name,price_usd_per_h\na,nan\n", 'line 2, column price_usd_per_h: "nan" is not a finite number'),
        ("name,price_usd_per_h\na,inf\n", "not a finite number"),
        ("name,price_usd_per_h\na,\n", "line 2, column price_usd_per_h: .* is missing"),
        ("name,price_usd_per_h\n,1\n", "line 2, column name"),
        ("name,price_usd_per_h\n2*a,1\n", "line 2, column name"),
        ("name,price_usd_per_h\na b,1\n", "line 2, column name"),
        ("name,price_usd_per_h\na,1\nb,2\na,3\n", 'line 4, column name: "a" stands on line 2 already'),
        ("name,price_usd_per_h\na,1,2\n", "line 2: 3 cells under 2 columns"),
        ("name,price_usd_per_h,vcpus\na,1,0\n", 'line 2, column vcpus: "0" is too small'),
        ("name,price_usd_per_h,vcpus\na,1,1.5\n", 'column vcpus: "1.5" is not a whole number'),
        ("name,price_usd_per_h,memory_gb\na,1,-4\n", "line 2, column memory_gb"),
        ("name,price_usd_per_h,gpus\na,1,-1\n", "line 2, column gpus"),
        ("name,price_usd_per_h,speed\na,1,0\n", "line 2, column speed: .* above 0"),
        ("name,price_usd_per_h,date\na,1,yesterday\n", 'column date: "yesterday" is not a date'),
        ('name,price_usd_per_h\n"a"x,1\n', "line 2: not CSV"),
    ],
)
def test_wrong_lists_are_refused(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse(text)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.csv cannot be read .*check the path"):
        read_price_table(tmp_path / "none.csv")
    with pytest.raises(BadInput, match="cannot be read"):
        read_price_table(tmp_path)


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(BadInput, match="UTF-8"):
        read_price_table(path)


def test_a_file_saved_by_a_spreadsheet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes("\ufeffname,price_usd_per_h\r\na,1\r\n".encode())
    assert read_price_table(path) == [PriceRow("a", 1.0)]
