"""The fields of a submitted form."""

from __future__ import annotations

from fastapi import Request

from prudent.service.intake.refusal import refused
from prudent.service.web.forms import decoded

_LARGEST = 1 << 16


async def submitted(request: Request) -> dict[str, list[str]]:
    """Names and values of a form that is no request document; to decode a large one, others would wait."""
    body = await request.body()
    if len(body) > _LARGEST:
        raise refused(f"The form has more than {_LARGEST} bytes; send less.", status=413)
    return decoded(body)
