"""Requests that are many, large or slow."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

import httpx

from attacks.crowd import Attack, Outcome, Target
from attacks.target import form_token


def streams(target: Target) -> Outcome:
    with target.client("alice") as client:
        document = {"domain": "misc-functions", "budget": "1 h"}
        run_id = client.post("/v1/runs/train", json=document).json()["id"]
    head = (
        f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {target.tokens['vic']}\r\n\r\n"
    )
    seen: Counter[str] = Counter()
    rounds = 0
    with contextlib.ExitStack() as lines:
        for rounds in target.rounds():  # noqa: B007 - how many there were is told
            for _ in range(900):
                line = lines.enter_context(target.connect(head))
                seen[line.recv(12).decode()[-3:]] += 1
            time.sleep(2.0)
            lines.close()
    few = 0 < seen["200"] <= rounds * target.settings.followers_per_user
    return few and set(seen) == {"200", "429"}, f"{dict(seen)} in {rounds} rounds"


def listings(target: Target) -> Outcome:
    head = (
        "GET /v1/runs?limit=500 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Authorization: Bearer {target.tokens['lea']}\r\n\r\n"
    )
    seen: Counter[str] = Counter()
    for _ in target.rounds():
        with contextlib.ExitStack() as lines:
            opened = [lines.enter_context(target.connect(head)) for _ in range(300)]
            for line in opened:
                seen[line.recv(12).decode()[-3:]] += 1
    return set(seen) == {"200", "429"}, f"{dict(seen)}"


def forms(target: Target) -> Outcome:
    seen: Counter[int] = Counter()
    rows = "".join(f"  - {{a: {n}, b: [x, y, z]}}\n" for n in range(12_000))

    def send() -> None:
        with httpx.Client(base_url=target.url, timeout=600, trust_env=False) as client:
            client.post("/sign-in", data={"token": target.tokens["fay"]})
            token = form_token(client.get("/submit/tune?as=json").text)
            form = {"csrf": token, "document": f"rows:\n{rows}"}
            for _ in target.rounds():
                with contextlib.suppress(httpx.HTTPError):
                    seen[client.post("/submit/tune", data=form).status_code] += 1

    _together([send] * 7, target)
    return set(seen) <= {422, 429, 413, 400} and bool(seen), f"{dict(seen)}"


def documents(target: Target) -> Outcome:
    table = "vm,n,time_s,price_usd_per_h\n" + "".join(f"a,{n},{n + 5},1\n" for n in range(415_000))
    document = {
        "table": {"csv": table},
        "parameters": ["vm", "n"],
        "goal": "minimise cost_usd",
        "budget": "$1",
    }
    body = json.dumps(document).encode()
    seen: Counter[int | str] = Counter()

    def send() -> None:
        with target.client("dan") as client:
            for _ in target.rounds():
                try:
                    answer = client.post("/v1/runs/tune", content=body)
                except httpx.HTTPError:  # it was refused and closed while the body was still on its way
                    seen["closed"] += 1
                    continue
                seen[answer.status_code] += 1
                if answer.status_code == 429:
                    time.sleep(float(answer.headers["retry-after"]) / 4)

    _together([send] * 30, target)
    with target.client("dan") as client:
        listed = client.get("/v1/runs", params={"user": "dan", "limit": 500}).json()["runs"]
    waiting = sum(run["status"] == "queued" for run in listed)
    fit = int(target.settings.waiting_mb_per_user / (len(body) / 1e6)) + 1  # they are kept a little smaller
    refused = (
        seen[429] > 0 or len(listed) - waiting >= 30 - fit
    )  # where so many began, there was room for all
    held = refused and waiting <= fit and set(seen) <= {202, 413, 429, "closed"}
    return held, f"{dict(seen)}, {len(body) / 1e6:.1f} MB each, {waiting} wait"


def bombs(target: Target) -> Outcome:
    body = b"[" + b"[]," * 2_500_000 + b"[]]"
    seen: Counter[int] = Counter()
    with target.client("bob") as client:
        for _ in target.rounds():
            with contextlib.suppress(httpx.HTTPError):
                seen[client.post("/v1/runs/tune", content=body).status_code] += 1
    return bool(seen) and set(seen) <= {400, 413, 422, 429}, f"{dict(seen)}"


def headers(target: Target) -> Outcome:
    """Each connection sends half of its headers, and then a byte now and then."""
    opened = [(target.connect(), time.monotonic()) for _ in range(500)]
    lasted_s: list[float] = []
    for line, _ in opened:
        line.sendall(b"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        line.setblocking(False)
    most_s = target.settings.headers_s
    until_s = max(target.until_s, time.monotonic() + 6 * most_s)
    while opened and time.monotonic() < until_s:
        time.sleep(0.2)
        for one in [one for one in opened if _is_closed(one[0])]:
            lasted_s.append(time.monotonic() - one[1])
            one[0].close()
            opened.remove(one)
    for line, _ in opened:
        line.close()
    longest_s = max(lasted_s, default=0.0)
    seen = f"{len(lasted_s)} closed, the last after {longest_s:.1f} s of {most_s:g}; {len(opened)} open"
    return not opened, seen


def _is_closed(line: socket.socket) -> bool:
    try:
        line.send(b"x")
        return line.recv(4096) is not None
    except BlockingIOError:
        return False
    except OSError:
        return True


def _together(work: list[Callable[[], None]], target: Target) -> None:
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(target.until_s - time.monotonic(), 0) + 900)


ATTACKS = [
    Attack("900 event streams of one viewer", "429 beyond 50 at a time", streams),
    Attack("300 listings at a time of one viewer", "answered in turn, 429 beyond the line", listings),
    Attack("seven YAML forms at a time", "4xx, and nobody waits for them", forms),
    Attack("thirty documents of 7.6 MB at a time", "429 beyond what may wait", documents),
    Attack("JSON that takes fifty times its size", "4xx", bombs),
    Attack("500 half-sent headers", "all closed at the deadline", headers),
]
