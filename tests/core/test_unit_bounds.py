"""Units to the last digit, and lengths of time just below and at the next larger unit."""

from __future__ import annotations

import pytest

from prudent.core.units import format_duration, format_size, parse_quantity


@pytest.mark.parametrize(
    ("text", "mb"),
    [
        ("1 kB", 0.001),
        ("1 TB", 1_000_000.0),
        ("1 KiB", 0.001024),
        ("1 MiB", 1.048576),
        ("1 GiB", 1073.741824),
        ("1 TiB", 1099511.627776),
    ],
)
def test_a_size_is_exact(text: str, mb: float) -> None:
    assert parse_quantity(text).value == pytest.approx(mb, rel=1e-12)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9994, "999 ms"),
        (0.9995, "1.0 s"),
        (1.2, "1.2 s"),
        (59.94, "59.9 s"),
        (59.95, "1 min 00 s"),
        (60.4, "1 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3599.5, "1 h 00 min"),
        (48 * 3600 - 31, "47 h 59 min"),
        (48 * 3600 - 30, "2 d 00 h"),
    ],
)
def test_a_length_is_never_sixty_of_the_smaller_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("mb", "text"), [(999, "999 MB"), (1000, "1 GB"), (999_000, "999 GB"), (1e6, "1 TB"), (-2000, "-2 GB")]
)
def test_a_size_takes_the_larger_unit_from_one_on(mb: float, text: str) -> None:
    assert format_size(mb) == text
