"""The fields of a submitted form."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import Request

from prudent.service.intake.refusal import MALFORMED, refused

_MOST = 2000


async def submitted(request: Request) -> dict[str, list[str]]:
    """Names and values; empty ones too. The form token is left out: it was looked at by the guard."""
    try:
        body = (await request.body()).decode()
        found = parse_qs(body, keep_blank_values=True, max_num_fields=_MOST, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise refused("The form cannot be read; reload the page and try again.", status=MALFORMED) from None
    found.pop("csrf", None)
    return found
