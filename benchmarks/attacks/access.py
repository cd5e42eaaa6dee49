"""Point 2, fail closed: accounts that go, headers of proxies, files of the operator, other processes."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx

from attacks.target import Found, Service, free_port, serving, wait_for
from prudent.service.settings import Settings

COMMAND = {"command": "id", "parameters": {"n": [1]}, "goal": "minimise time_s", "max_trials": 1}
FORWARDED = {
    "Via": "1.1 proxy",
    "X-Forwarded-Host": "prudent.example.org",
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Server": "proxy",
    "Forwarded": "for=203.0.113.9",
    "X-Real-IP": "203.0.113.9",
    "X-Original-Host": "prudent.example.org",
    "CF-Connecting-IP": "203.0.113.9",
    "True-Client-IP": "203.0.113.9",
}
_ASKED = "a token is asked for"
_STRANGER = """
import sys, urllib.request, urllib.error
for method, path in (("GET", "/v1/runs"), ("POST", "/v1/runs/train"), ("GET", "/runs"), ("GET", "/metrics")):
    asked = urllib.request.Request(sys.argv[1] + path, b"{}" if method == "POST" else None, method=method)
    try:
        print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60).status)
    except urllib.error.HTTPError as error:
        print(error.code)
try:
    print(open(sys.argv[2]).read())
except OSError:
    print("closed")
"""


def play(settings: Settings, folder: Path) -> Iterator[Found]:
    """Two services of their own: one that asks for tokens, and one that its operator opened."""
    closed = replace(settings, home=folder / "closed" / "home", port=free_port(), workers=0)
    with serving(closed) as service:
        yield _other_process(service)
        yield _last_account(service)
        yield _files_of_the_operator(service, folder)
        yield _foreign_host(service)
    opened = replace(settings, home=folder / "open" / "home", port=free_port(), workers=0)
    with serving(opened, None, "--open") as service:
        yield _forwarding(service)
        yield _first_account(service)
    with serving(opened) as service:
        seen = service.client().get("/v1/runs").status_code
        yield Found(2, "a restart after all that", _ASKED, f"GET /v1/runs: {seen}", seen == 401)


def _other_process(service: Service) -> Found:
    """A process of another account, where we can have one, without a token."""
    other = {"user": pwd.getpwnam("nobody").pw_uid, "cwd": "/"} if os.geteuid() == 0 else {"cwd": "/"}
    python = getattr(sys, "_base_executable", sys.executable)
    if other.get("user") is not None and not _can_run(python, other):
        other, python = {"cwd": "/"}, sys.executable
    words = [python, "-I", "-c", _STRANGER, service.url, str(service.home / "operator.token")]
    said = subprocess.run(words, capture_output=True, text=True, check=False, **other)  # type: ignore[call-overload]
    *statuses, token = said.stdout.split()
    who = "nobody" if "user" in other else "the same account"
    held = set(statuses) == {"401"} and len(statuses) == 4 and ("user" not in other or token == "closed")
    seen = f"as {who}: {' '.join(statuses)}, the operator's token: {'read' if token != 'closed' else token}"
    return Found(2, "another local process", "it is a stranger", seen + said.stderr[-200:], held)


def _can_run(python: str, other: dict[str, object]) -> bool:
    try:
        done = subprocess.run([python, "-I", "-c", ""], check=False, capture_output=True, **other)  # type: ignore[call-overload]
    except PermissionError:
        return False
    return bool(done.returncode == 0)


def _last_account(service: Service) -> Found:
    service.add_user("bob", "commander")
    with service.client("bob") as bob, service.client() as stranger:
        wait_for(lambda: bob.get("/v1/runs").status_code == 200, "bob's account")
        service.remove_user("bob")
        wait_for(lambda: bob.get("/v1/runs").status_code != 200, "the end of bob's account")
        statuses = _as_stranger(stranger)
    seen = f"list, command, page: {statuses}"
    return Found(2, "the last account is removed", _ASKED, seen, statuses == [401, 401, 401])


def _as_stranger(client: httpx.Client) -> list[int]:
    return [
        client.get("/v1/runs").status_code,
        client.post("/v1/runs/tune", json=COMMAND).status_code,
        client.get("/runs").status_code,
    ]


def _files_of_the_operator(service: Service, folder: Path) -> Found:
    """Files that the operator may name, because the service was started beside them, are theirs alone."""
    rows = folder / "rows.csv"
    rows.write_text("a,label\n1,yes\n2,no\n" * 20)
    document = {"domain": "classification", "dataset": {"path": str(rows), "target": "label"}}
    service.add_user("late", "commander")
    with service.client("late") as late, service.client("operator") as operator:
        wait_for(lambda: late.get("/v1/runs").status_code == 200, "the new account")
        own = operator.post("/v1/runs/train", json=document).status_code
        answer = late.post("/v1/runs/train", json=document)
        table = {"table": str(rows), "parameters": ["a"], "goal": "minimise time_s"}
        other = late.post("/v1/runs/tune", json=table).status_code
    service.remove_user("late")
    seen = f"operator {own}; the new account {answer.status_code} and {other}"
    held = (own, answer.status_code, other) == (202, 422, 422)
    return Found(2, "an account added later names the operator's file", "refused", seen, held)


def _foreign_host(service: Service) -> Found:
    with service.client("operator") as client:
        seen = [
            client.get("/v1/runs", headers={"host": host}).status_code
            for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80")
        ]
    return Found(2, "a name of another site leads here", "421", str(seen), set(seen) == {421})


def _forwarding(service: Service) -> Found:
    """An open service serves who sits at the machine, and nobody whom a proxy brings."""
    with service.client() as client:
        plain = client.get("/v1/runs").status_code
        statuses = {
            name: client.get("/v1/runs", headers={name: value}).status_code
            for name, value in FORWARDED.items()
        }
        statuses["cookie and Via"] = _cookie_by_proxy(service)
    let_in = [name for name, status in statuses.items() if status != 401]
    seen = f"plain {plain}; {len(statuses)} headers, let in by: {', '.join(let_in) or 'none'}"
    return Found(2, "headers of proxies, at an open service", _ASKED, seen, plain == 200 and not let_in)


def _cookie_by_proxy(service: Service) -> int:
    """The cookie that somebody at the machine got, sent through a proxy."""
    with service.client() as client:
        client.get("/runs")
        assert client.cookies
        return client.get("/v1/runs", headers={"via": "1.1 proxy"}).status_code


def _first_account(service: Service) -> Found:
    """With the first user an open service closes, and stays so when the user goes."""
    service.add_user("bob", "viewer")
    with service.client("bob") as bob, service.client() as stranger:
        wait_for(lambda: bob.get("/v1/runs").status_code == 200, "bob's account")
        with_bob = _as_stranger(stranger)
        service.remove_user("bob")
        wait_for(lambda: bob.get("/v1/runs").status_code != 200, "the end of bob's account")
        time.sleep(0.1)
        without = _as_stranger(stranger)
    seen = f"with an account {with_bob}, after it was removed {without}"
    held = with_bob == without == [401, 401, 401]
    return Found(2, "an open service gets its first account, and loses it", _ASKED, seen, held)
