"""The fields of a submitted form."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs

from fastapi import Request

from prudent.service.intake.refusal import MALFORMED, refused

_MOST = 2000
_SMALL = 1 << 14
_thread = ThreadPoolExecutor(1, "forms")
"""Large forms are decoded one after the other: many threads that compute would delay everybody."""


async def submitted(request: Request) -> dict[str, list[str]]:
    """Names and values; empty ones too. The form token is left out: it was looked at by the guard."""
    try:
        body = await request.body()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(_thread, _parsed, body) if len(body) > _SMALL else _parsed(body)
    except (UnicodeDecodeError, ValueError):
        raise refused("The form cannot be read; reload the page and try again.", status=MALFORMED) from None
    found.pop("csrf", None)
    return found


def _parsed(body: bytes) -> dict[str, list[str]]:
    return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST, errors="strict")
