import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.units import (
    Quantity,
    format_duration,
    format_money,
    format_quantity,
    format_size,
    parse_in,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("5 min", 300.0, "s"),
        ("5min", 300.0, "s"),
        ("2 h", 7200.0, "s"),
        ("1 d", 86400.0, "s"),
        ("250 ms", 0.25, "s"),
        ("30 Seconds", 30.0, "s"),
        ("1 h 30 min", 5400.0, "s"),
        ("1h30min", 5400.0, "s"),
        ("$2", 2.0, "usd"),
        ("$ 2.50", 2.5, "usd"),
        ("2 usd", 2.0, "usd"),
        ("$2 usd", 2.0, "usd"),
        ("5 cents", 0.05, "usd"),
        ("-$5", -5.0, "usd"),
        ("85 %", 0.85, "1"),
        ("85%", 0.85, "1"),
        ("512 MB", 512.0, "mb"),
        ("4 GB", 4000.0, "mb"),
        ("1 MiB", 1.048576, "mb"),
        ("0.85", 0.85, ""),
        ("1e-3", 0.001, ""),
        ("1_000", 1000.0, ""),
        (300, 300.0, ""),
    ],
)
def test_quantities_come_in_base_units(text: str, value: float, unit: str) -> None:
    assert parse_quantity(text) == Quantity(value, unit)


@pytest.mark.parametrize(
    "text", ["", "five", "min", "1,000", "--5", "nan", "inf", math.nan, math.inf, True, None, "1.2.3"]
)
def test_rubbish_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(BadInput, match='such as "5 min"'):
        parse_quantity(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "meant"), [("5 minuts", "minutes"), ("5 m", "min"), ("3 dolars", "dollars")]
)
def test_unknown_unit_is_guessed(text: str, meant: str) -> None:
    with pytest.raises(BadInput, match=f'Did you mean "{meant}"'):
        parse_quantity(text)


def test_two_quantities_in_one_are_refused() -> None:
    for text in ("$2 min", "5 min $2", "3 4"):
        with pytest.raises(BadInput):
            parse_quantity(text)


def test_parse_in_wants_its_own_kind() -> None:
    assert parse_in("5 min", "s") == 300.0
    assert parse_in(12, "usd") == 12.0
    with pytest.raises(
        BadInput, match=r'is a time, but an amount of money is needed here; write it like "\$2"'
    ):
        parse_in("5 min", "usd")


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0.0028, "$0.0028"),
        (12.3, "$12.30"),
        (0, "$0.00"),
        (0.5, "$0.50"),
        (0.0464, "$0.0464"),
        (0.99996, "$1.00"),
        (0.9994, "$0.999"),
        (0.09996, "$0.10"),
        (1234567.891, "$1,234,567.89"),
        (-3, "-$3.00"),
    ],
)
def test_money(usd: float, text: str) -> None:
    assert format_money(usd) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (35.7, "35.7 s"),
        (268, "4 min 28 s"),
        (7500, "2 h 05 min"),
        (59.96, "1 min 00 s"),
        (3599.6, "1 h 00 min"),
        (0, "0 s"),
        (0.0123, "12.3 ms"),
        (0.5, "500 ms"),
        (3 * 86400 + 4 * 3600, "3 d 04 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_other_quantities_read_well() -> None:
    assert format_size(4000) == "4 GB"
    assert format_quantity(0.853, "1") == "85.3 %"
    assert format_quantity(0.85, "") == "0.85"
    assert str(parse_quantity("300 s")) == "5 min 00 s"


@settings(deadline=None)
@given(st.floats(0.001, 1e7))
def test_a_duration_reads_back(seconds: float) -> None:
    back = parse_quantity(format_duration(seconds))
    assert back.unit == "s"
    assert back.value == pytest.approx(seconds, rel=0.05)


@settings(deadline=None)
@given(st.floats(-1e6, 1e6))
def test_money_reads_back(usd: float) -> None:
    back = parse_quantity(format_money(usd).replace(",", ""))
    assert back.unit == "usd"
    assert back.value == pytest.approx(usd, rel=0.006, abs=1e-300)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        *((f"2 {word}", 0.002, "s") for word in ("ms", "millisecond", "milliseconds")),
        *((f"2 {word}", 2.0, "s") for word in ("s", "sec", "secs", "second", "seconds")),
        *((f"2 {word}", 120.0, "s") for word in ("min", "mins", "minute", "minutes")),
        *((f"2 {word}", 7200.0, "s") for word in ("h", "hr", "hrs", "hour", "hours")),
        *((f"2 {word}", 172800.0, "s") for word in ("d", "day", "days")),
        *((f"2 {word}", 2.0, "usd") for word in ("$", "usd", "dollar", "dollars")),
        *((f"2 {word}", 0.02, "usd") for word in ("cent", "cents", "¢")),
        *((f"2 {word}", 0.02, "1") for word in ("%", "percent")),
        ("2 kB", 0.002, "mb"),
        ("2 TB", 2e6, "mb"),
        ("1000 KiB", 1.024, "mb"),
        ("2 GiB", 2147.483648, "mb"),
        ("2 TiB", 2199023.255552, "mb"),
        ("+5 s", 5.0, "s"),
        ("−5 s", -5.0, "s"),
        (".5 s", 0.5, "s"),
        ("1 d 2 h 3 min 4 s", 93784.0, "s"),
    ],
)
def test_every_unit_has_its_size(text: str, value: float, unit: str) -> None:
    quantity = parse_quantity(text)
    assert (quantity.value, quantity.unit) == (pytest.approx(value, rel=1e-12), unit)


@pytest.mark.parametrize("text", ["$2 cents", "$2 %", "2 s 3", "5 min 10 %", "3 GB 2 MB"])
def test_units_that_do_not_go_together(text: str) -> None:
    with pytest.raises(BadInput, match=r"two units|mixes several"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9994, "999 ms"),
        (0.9995, "1.0 s"),
        (59.94, "59.9 s"),
        (59.95, "1 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3599.5, "1 h 00 min"),
        (48 * 3600 - 31, "47 h 59 min"),
        (48 * 3600 - 30, "2 d 00 h"),
        (-0.5, "-500 ms"),
        (math.inf, "inf s"),
    ],
)
def test_durations_at_the_edges_of_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("mb", "text"),
    [(999, "999 MB"), (1000, "1 GB"), (999_999, "1e+03 GB"), (1e6, "1 TB"), (-2000, "-2 GB"), (0, "0 MB")],
)
def test_sizes_at_the_edges_of_units(mb: float, text: str) -> None:
    assert format_size(mb) == text
    assert format_quantity(mb, "mb") == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0.9995, "$1.00"), (0.99949, "$0.999"), (0.1, "$0.10"), (0.123456, "$0.123"), (-0.002, "-$0.002"),
     (math.inf, "$inf"), (0.00123456, "$0.00123")],
)  # fmt: skip
def test_money_at_the_edges(usd: float, text: str) -> None:
    assert format_money(usd) == text
    assert format_quantity(usd, "usd") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(48 * 3600 - 31, "47 h 59 min"), (48 * 3600 - 30, "2 d 00 h"), (1000 * 3600, "41 d 16 h")],
)
def test_long_durations_are_in_days(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
