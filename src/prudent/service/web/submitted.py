"""The fields of a submitted form."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from fastapi import Request

from prudent.service.intake.refusal import MALFORMED, refused

_MOST = 2000


async def submitted(request: Request) -> dict[str, list[str]]:
    """Names and values; empty ones too. The form token is left out: it was looked at by the guard."""
    try:
        found = await asyncio.to_thread(_parsed, await request.body())
    except (UnicodeDecodeError, ValueError):
        raise refused("The form cannot be read; reload the page and try again.", status=MALFORMED) from None
    found.pop("csrf", None)
    return found


def _parsed(body: bytes) -> dict[str, list[str]]:
    return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST, errors="strict")
