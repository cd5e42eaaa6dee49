"""Quantities as people write them ("5 min", "$2", "85 %"), and numbers as people read them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from prudent.core.errors import BadInput, did_you_mean

SECONDS, USD, SHARE, MB, PLAIN = "s", "usd", "1", "mb", ""

_MS, _S, _MIN, _H, _D = (
    (0.001, SECONDS),
    (1.0, SECONDS),
    (60.0, SECONDS),
    (3600.0, SECONDS),
    (86400.0, SECONDS),
)
_CENT, _DOLLAR = (0.01, USD), (1.0, USD)

# Decimal sizes (1 GB = 1000 MB), as bandwidths and file sizes are sold; the binary ones have their own names.
UNITS: dict[str, tuple[float, str]] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), _MS),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), _S),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), _MIN),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), _H),
    **dict.fromkeys(("d", "day", "days"), _D),
    **dict.fromkeys(("$", "usd", "dollar", "dollars"), _DOLLAR),
    **dict.fromkeys(("cent", "cents", "¢"), _CENT),
    **dict.fromkeys(("%", "percent"), (0.01, SHARE)),
    "kb": (0.001, MB),
    "mb": (1.0, MB),
    "gb": (1e3, MB),
    "tb": (1e6, MB),
    "kib": (1024 / 1e6, MB),
    "mib": (1024**2 / 1e6, MB),
    "gib": (1024**3 / 1e6, MB),
    "tib": (1024**4 / 1e6, MB),
}
_KINDS = {
    SECONDS: "a time",
    USD: "an amount of money",
    SHARE: "a share",
    MB: "a size",
    PLAIN: "a plain number",
}
_EXAMPLES = {SECONDS: '"5 min"', USD: '"$2"', SHARE: '"85 %"', MB: '"4 GB"', PLAIN: '"0.85"'}

_NUMBER = r"(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TERM = re.compile(rf"\s*(?P<dollar>\$?)\s*(?P<number>{_NUMBER})\s*(?P<unit>[^\d\s.,+\-]*)\s*")


@dataclass(frozen=True)
class Quantity:
    """A number in a base unit: seconds "s", dollars "usd", shares "1", megabytes "mb", or plain ""."""

    value: float
    unit: str

    def __str__(self) -> str:
        return format_quantity(self.value, self.unit)


def parse_quantity(text: str | float) -> Quantity:
    """The quantity that a text or a number names, in its base unit.

    Times may have several parts, as a person says them; a plain number keeps the unit "".

    >>> parse_quantity("5 min")
    Quantity(value=300.0, unit='s')
    >>> parse_quantity("1 h 30 min").value, parse_quantity("$2").unit, parse_quantity("85 %").value
    (5400.0, 'usd', 0.85)
    >>> parse_quantity("5 minuts")
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: Unknown unit "minuts" in "5 minuts". Did you mean "minutes"? Use one of: \
ms, s, min, h, d, $, cents, %, kB, MB, GB, TB.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise _not_a_quantity(text)
    if not isinstance(text, str):
        return _finite(Quantity(as_float(text), PLAIN), text)
    sign, rest = _split_sign(text)
    parts: list[Quantity] = []
    place = 0
    while place < len(rest) and (term := _TERM.match(rest, place)):
        parts.append(_term(term, text))
        place = term.end()
    if not parts or place < len(rest):
        raise _not_a_quantity(text)
    kinds = {part.unit for part in parts}
    if len(parts) > 1 and kinds != {SECONDS}:
        raise BadInput(f'"{text}" mixes several quantities; write one, such as "5 min" or "$2".')
    return _finite(Quantity(sign * math.fsum(part.value for part in parts), parts[0].unit), text)


def parse_in(text: str | float, unit: str) -> float:
    """The value in a given base unit; a plain number is taken to be in it already.

    >>> parse_in("5 min", "s"), parse_in(300, "s"), parse_in("$2.50", "usd")
    (300.0, 300.0, 2.5)
    """
    quantity = parse_quantity(text)
    if quantity.unit not in (unit, PLAIN):
        raise BadInput(
            f'"{text}" is {_KINDS[quantity.unit]}, but {_KINDS[unit]} is needed here; '
            f"write it like {_EXAMPLES[unit]}."
        )
    return quantity.value


def _split_sign(text: str) -> tuple[float, str]:
    rest = text.strip()
    if rest[:1] in ("+", "-", "−"):
        return (1.0 if rest[0] == "+" else -1.0), rest[1:]
    return 1.0, rest


def _term(term: re.Match[str], text: str) -> Quantity:
    number, word = float(term["number"].replace("_", "")), term["unit"]
    if term["dollar"]:
        if word and UNITS.get(word.lower()) != _DOLLAR:
            raise BadInput(f'"{text}" has two units, "$" and "{word}"; keep one of them.')
        return Quantity(number, USD)
    if not word:
        return Quantity(number, PLAIN)
    if word.lower() not in UNITS:
        hint = ' Did you mean "min"?' if word.lower() == "m" else did_you_mean(word.lower(), UNITS)
        raise BadInput(
            f'Unknown unit "{word}" in "{text}".{hint} '
            "Use one of: ms, s, min, h, d, $, cents, %, kB, MB, GB, TB."
        )
    factor, unit = UNITS[word.lower()]
    # Divide where the factor is a decimal fraction: 85 * 0.01 is not 0.85 in binary, 85 / 100 is.
    return Quantity(number / round(1 / factor) if factor in (0.01, 0.001) else number * factor, unit)


def as_float(number: float) -> float:
    """A number as a float; a whole number that is too large for one is infinite.

    >>> as_float(3), as_float(-(10**400))
    (3.0, -inf)
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _finite(quantity: Quantity, text: object) -> Quantity:
    if not math.isfinite(quantity.value):
        raise _not_a_quantity(text)
    return quantity


def _not_a_quantity(text: object) -> BadInput:
    return BadInput(
        f'"{text}" is not a quantity; write a number with a unit, such as "5 min", "$2" or "85 %".'
    )


def format_money(usd: float) -> str:
    """Dollars with cents, and with three significant digits below one dollar: cloud bills are small.

    >>> format_money(12.3), format_money(0.0028), format_money(1234.5), format_money(-0.5)
    ('$12.30', '$0.0028', '$1,234.50', '-$0.50')
    """
    if not math.isfinite(usd):
        return f"${usd}"
    sign, amount = ("-" if usd < 0 else ""), abs(usd)
    if amount >= 0.9995:
        return f"{sign}${amount:,.2f}"
    if amount == 0:
        return "$0.00"
    decimals = 2 - math.floor(math.log10(amount))
    digits = f"{amount:.{decimals}f}".rstrip("0")
    whole, _, fraction = digits.partition(".")
    return f"{sign}${whole}.{fraction:0<2}"


def format_duration(seconds: float) -> str:
    """A time in the two units that matter at its size.

    >>> format_duration(35.71), format_duration(268), format_duration(7500), format_duration(0.0123)
    ('35.7 s', '4 min 28 s', '2 h 05 min', '12.3 ms')
    """
    if seconds == 0 or not math.isfinite(seconds):
        return f"{seconds:.0f} s"
    return ("-" if seconds < 0 else "") + _length(abs(seconds))


def _length(seconds: float) -> str:
    """Each bound lies where rounding would reach the next larger unit."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds < 3599.5:
        return _pair(round(seconds), 60, "min", "s")
    if seconds < 48 * 3600 - 30:
        return _pair(round(seconds / 60), 60, "h", "min")
    return _pair(round(seconds / 3600), 24, "d", "h")


def _pair(small_units: int, per_large: int, large: str, small: str) -> str:
    count, rest = divmod(small_units, per_large)
    return f"{count} {large} {rest:02d} {small}"


def format_size(mb: float) -> str:
    """Megabytes, or gigabytes and terabytes where those read better.

    >>> format_size(512), format_size(4000), format_size(2.5e6)
    ('512 MB', '4 GB', '2.5 TB')
    """
    for factor, unit in ((1e6, "TB"), (1e3, "GB")):
        if abs(mb) >= factor:
            return f"{mb / factor:.3g} {unit}"
    return f"{mb:.3g} MB"


def format_quantity(value: float, unit: str) -> str:
    """A value in a base unit as a person reads it.

    >>> format_quantity(0.85, "1"), format_quantity(300, "s"), format_quantity(0.1, "usd")
    ('85 %', '5 min 00 s', '$0.10')
    """
    if unit == SECONDS:
        return format_duration(value)
    if unit == USD:
        return format_money(value)
    if unit == MB:
        return format_size(value)
    return f"{value * 100:.4g} %" if unit == SHARE else f"{value:.6g}"
