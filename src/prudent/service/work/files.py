"""Files of a run, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prudent.service.work.artifacts import RESULT

JOURNAL, LOGS = "journal.jsonl", "logs"


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """What came out, as JSON; numbers that JSON does not have become null."""
    text = json.dumps(_plain(dict(result)), ensure_ascii=False, allow_nan=False, default=_number)
    part = folder / f".{RESULT}.{os.getpid()}"
    part.write_text(text, encoding="utf-8")
    part.replace(folder / RESULT)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _number(value: Any) -> Any:
    """numpy scalars as plain numbers."""
    item = getattr(value, "item", None)
    return str(value) if item is None else _plain(item())
