"""Data that are larger than they look."""

from __future__ import annotations

import gzip
import re
import time
from collections import Counter
from typing import Any

import httpx

from attacks.crowd import Attack, Outcome, Target

_LATER_S = 900.0
"""How long a run may go on after the time is over: those that the others left share one computer."""
_SENTENCE = "each run ends, with a sentence about the limit"


def trained(target: Target, path: str) -> Outcome:
    """Ask for training on a file until the time is over; every run is followed to its end."""
    document = {
        "domain": "classification",
        "dataset": {"path": path, "target": "label"},
        "methods": [{"algorithm": "binomial-logistic-regression"}],
        "budget": "1 trial",
    }
    seen: Counter[str] = Counter()
    with target.client("mallory") as client:
        while target.going or not seen:
            answer = client.post("/v1/runs/train", json=document)
            if answer.status_code == 429:
                time.sleep(1.0)
                continue
            run = _followed(client, answer.json()["url"], target.until_s + _LATER_S)
            seen[f"{run['status']}: {run['error']}"] += 1
    limited = [
        said for said in seen if re.search(r"at most|may have|that are read here|memory_mb|succeeded", said)
    ]
    said = "; ".join(f"{count} x {said}" for said, count in seen.items())
    return bool(seen) and len(limited) == len(seen), said or "none was taken"


def _followed(client: httpx.Client, place: str, until_s: float) -> dict[str, Any]:
    """The run when it has ended; as it stands if it goes on for ever."""
    while True:
        run: dict[str, Any] = client.get(place).json()
        if run["status"] not in ("queued", "running") or time.monotonic() > until_s:
            return run
        time.sleep(0.3)


def wide_libsvm(target: Target) -> Outcome:
    (target.data / "wide.svm").write_text("1 1:1\n0 3000000:1\n1 2:1\n")
    return trained(target, "wide.svm")


def tall_libsvm(target: Target) -> Outcome:
    (target.data / "tall.svm").write_text("1 100000:1\n" + "0 1:1\n1 2:1\n" * 100_000)
    return trained(target, "tall.svm")


def packed(target: Target) -> Outcome:
    block = gzip.compress(b"1,yes\n2,no\n" * 500_000, 9)
    (target.data / "bomb.csv.gz").write_bytes(gzip.compress(b"x,label\n") + block * 9)
    return trained(target, "bomb.csv.gz")


def packed_larger(target: Target) -> Outcome:
    block = gzip.compress(b"1,yes\n2,no\n" * 1_000_000, 9)
    (target.data / "larger.csv.gz").write_bytes(gzip.compress(b"x,label\n") + block * 400)
    return trained(target, "larger.csv.gz")


ATTACKS = [
    Attack("libsvm of 24 bytes, index 3,000,000", _SENTENCE, wide_libsvm),
    Attack("libsvm of half a MB, 80 GB as a table", _SENTENCE, tall_libsvm),
    Attack("gzip of 100 kB, 50 MB unpacked", _SENTENCE, packed),
    Attack("gzip of 10 MB, 4 GB unpacked", _SENTENCE, packed_larger),
]
