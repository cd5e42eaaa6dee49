"""Values that come in URLs and small forms, checked before the database is asked."""

from __future__ import annotations

from fastapi import Request

from prudent.service.intake.refusal import refusal
from prudent.service.web.forms import decoded

WITHOUT_ZERO = r"^[^\x00]*$"
"""What a filter may hold: PostgreSQL has no zero byte in its texts."""


def is_id(text: str) -> bool:
    """Ids are ours: letters, digits and hyphens. Anything else is not an id, and asks the database nothing.

    >>> is_id("01m7h3z93cdv-2"), is_id("../x"), is_id("a" * 99)
    (True, False, False)
    """
    return len(text) <= 64 and text.isascii() and text.replace("-", "").isalnum()


def filter_value(text: str | None) -> str | None:
    """The value of a filter, or None if no user or run can have such a name.

    >>> filter_value("ada"), filter_value(""), filter_value("a" * 200), filter_value("a\\0")
    ('ada', None, None, None)
    """
    return text if text and len(text) <= 128 and "\0" not in text else None


_LARGEST = 1 << 16


async def form_fields(request: Request) -> dict[str, list[str]]:
    """The fields of a small form; a large one is refused, since decoding it would keep others waiting."""
    body = await request.body()
    if len(body) > _LARGEST:
        raise refusal(f"The form has more than {_LARGEST} bytes; send less.", status=413)
    return decoded(body)
