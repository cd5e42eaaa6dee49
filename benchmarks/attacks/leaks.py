"""Point 5, mail and secrets: who gets mail, and what others see of documents, sessions and files."""

from __future__ import annotations

import contextlib
import email
import email.policy
import re
import socketserver
import sqlite3
import stat
import threading
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator
from typing import Any

import httpx

from attacks.target import Found, Service, ended, form_token, submitted, wait_for

SENDER = "mia@example.org"
"""A member who is named by their address, and so gets mail there."""
LURE = "Pay at https://evil.example/pay or www.evil.example, or write to boss@evil.example"
KEY, SIGNED = "hush-of-kim-4711", "X-Amz-Signature=deadbeefdeadbeef&X-Amz-Credential=AKIA0123456789ABCDEF"
_PLACES = ("", "/events", "/trials", "/result", "/report")


class Letterbox(socketserver.ThreadingTCPServer):
    """A mail server that takes everything and keeps it."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.letters: list[tuple[list[str], bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Taking(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        to: list[str] = []
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.letters.append((to, b"".join(lines)))  # type: ignore[attr-defined]
                to = []
            elif word == b"RCPT":
                to.append(line.decode("ascii", "replace").strip())
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 well\r\n")
            if word == b"QUIT":
                return


def play(service: Service, box: Letterbox) -> Iterator[Found]:
    yield _foreign_address(service, box)
    yield _links(service, box)
    yield from _documents(service, box)
    yield _sign_out(service)
    yield _bad_tries(service)
    yield _modes(service)
    yield _pickles(service)


def _trained(**more: Any) -> dict[str, Any]:
    return {"domain": "misc-functions", "budget": "1 trial", **more}


def _foreign_address(service: Service, box: Letterbox) -> Found:
    addresses = (
        "boss@elsewhere.example",
        f"{SENDER}, boss@elsewhere.example",
        f"{SENDER}\r\nBcc: boss@elsewhere.example",
        "boss@example.org.evil.example",
    )
    with service.client(SENDER) as client:
        statuses = [
            client.post("/v1/runs/train", json=_trained(emailAddress=address)).status_code
            for address in addresses
        ]
    told = [to for to, _ in box.letters if any("elsewhere" in each for each in to)]
    seen = f"{len(addresses)} addresses: {statuses}; {len(told)} mails to strangers"
    held = set(statuses) == {422} and not told
    return Found(5, "mail to a foreign address", "refused with the request", seen, held)


def _links(service: Service, box: Letterbox) -> Found:
    with service.client(SENDER) as client:
        run = ended(client, submitted(client, "train", _trained(name=LURE, emailAddress=SENDER)))
    to, raw = wait_for(lambda: [each for each in box.letters if run["id"].encode() in each[1]], "a mail")[0]
    message = email.message_from_bytes(raw, policy=email.policy.default)
    texts = [part.get_content() for part in message.walk() if part.get_content_maintype() == "text"]
    own = f"127.0.0.1:{service.port}"
    live = [
        found
        for text in texts
        for found in re.findall(r"(?:https?://|www\.|mailto:)\w[^\s\"'<>]*|[\w.]+@[\w-]+\.[\w.]+", text)
        if own not in found and found != SENDER
    ]
    quoted = all("“" in text for text in texts)
    seen = f"to {to}, {len(texts)} parts, live: {live or 'none'}, {'quoted' if quoted else 'not quoted'}"
    held = not live and quoted and len(texts) == 2
    return Found(5, "links in a title that is mailed", "quoted, without live links", seen, held)


def _documents(service: Service, box: Letterbox) -> Iterator[Found]:
    """Kim's environment and signed address, looked for in all that others are shown."""
    tuned = {
        "command": "echo the key is $API_KEY; echo $API_KEY >&2; false",
        "environment": {"API_KEY": KEY},
        "parameters": {"n": [1]},
        "goal": "minimise time_s",
        "max_trials": 1,
    }
    dataset = {"path": f"https://127.0.0.1.nowhere.invalid/rows.csv?{SIGNED}", "target": "label"}
    with service.client("kim") as kim:
        places = [
            submitted(kim, "tune", tuned),
            submitted(kim, "train", {"domain": "classification", "dataset": dataset, "budget": "1 trial"}),
        ]
        runs = [ended(kim, place) for place in places]
        own = "".join(kim.get(place).text for place in places)
    yield Found(5, "the owner looks", "all of it", "both are there", KEY in own and "deadbeef" in own)
    for user, role in (("vic", "viewer"), ("mallory", "member")):
        shown = dict(_everything(service, user, [run["id"] for run in runs]))
        leaks = [place for place, text in shown.items() if KEY in text or "deadbeef" in text]
        seen = f"{len(shown)} answers, leaks: {', '.join(leaks) or 'none'}"
        yield Found(5, f"a {role} looks at REST and pages", "no secret of others", seen, not leaks)
    with service.client("vic") as vic:
        documents = [vic.get(place).json()["document"] for place in places]
    seen = f"{sum(document is not None for document in documents)} of {len(documents)} documents shown"
    yield Found(5, "a viewer asks for documents of others", "not shown", seen, documents == [None, None])
    mails = b"".join(raw for _, raw in box.letters).decode(errors="replace")
    files = "".join(
        path.read_text(errors="replace")
        for run in runs
        for name in ("log.txt", "result.json", "report.html")
        if (path := service.settings.folder_of(run["id"]) / name).is_file()
    )
    texts = {"log": service.log, "mail": mails, "results": files}
    leaks = [name for name, text in texts.items() if KEY in text or "deadbeef" in text]
    yield Found(5, "log, mail and results", "no secret of a document", f"leaks: {leaks or 'none'}", not leaks)


def _everything(service: Service, user: str, ids: list[str]) -> Iterator[tuple[str, str]]:
    rest = ["/v1/runs", "/v1/models", "/metrics", *(f"/v1/runs/{run}{end}" for run in ids for end in _PLACES)]
    pages = ["/runs", "/runs/live", "/models", "/machines", "/money"]
    pages += [f"/runs/{run}{end}" for run in ids for end in ("", "/live")]
    with service.client(user) as program, service.signed_in(user) as browser:
        for client, places in ((program, rest), (browser, pages)):
            for place in places:
                answer = client.get(place)
                if answer.status_code not in (200, 404):
                    raise ValueError(f"{user} gets {answer.status_code} for {place}")
                yield place, answer.text


def _sign_out(service: Service) -> Found:
    with service.signed_in("vic") as client:
        copy = dict(client.cookies)
        before = httpx.get(f"{service.url}/v1/runs", cookies=copy, trust_env=False).status_code
        client.post("/sign-out", data={"csrf": form_token(client.get("/runs").text)})
    after = httpx.get(f"{service.url}/v1/runs", cookies=copy, trust_env=False).status_code
    seen = f"before {before}, after {after}"
    return Found(5, "a copy of the cookie after sign-out", "401", seen, (before, after) == (200, 401))


def _bad_tries(service: Service) -> Found:
    with service.client() as client:
        for _ in range(60):
            client.post("/sign-in", data={"token": "wrong"})
            wrong = client.get("/v1/runs", headers={"authorization": "Bearer wrong"}).status_code
    with service.client("vic") as vic:
        by_token = vic.get("/v1/runs").status_code
    with service.signed_in("vic") as browser:
        by_cookie = browser.get("/v1/runs").status_code
    seen = f"120 bad tries (now {wrong}); a good token {by_token}, a good sign-in {by_cookie}"
    held = (wrong, by_token, by_cookie) == (429, 200, 200)
    return Found(5, "bad tries from the same address", "a good token is let in", seen, held)


def _modes(service: Service) -> Found:
    """The home was there before, open to all, with a file that was too."""
    wrong = []
    for path in (service.home, *service.home.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                wrong.append(f"{path.relative_to(service.home)} {stat.S_IMODE(mode):o}")
    seen = f"home {stat.S_IMODE(service.home.stat().st_mode):o}; open: {', '.join(wrong[:5]) or 'none'}"
    return Found(5, "a home that was open before", "0700, files 0600", seen, not wrong)


def _pickles(service: Service) -> Found:
    """Every value that DBOS keeps, looked at as bytes and as the base64 that it writes pickles in."""
    values, pickled = 0, []
    with contextlib.closing(sqlite3.connect(service.home / "prudent-engine.db")) as base:
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in base.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    values += isinstance(value, str | bytes)
                    if _is_pickle(value):
                        pickled.append(table)
    seen = f"{values} values of {len(tables)} tables, pickles in: {', '.join(pickled) or 'none'}"
    return Found(5, "pickles in DBOS's tables", "JSON only", seen, values > 0 and not pickled)


def _is_pickle(value: object) -> bool:
    if isinstance(value, str):
        try:
            value = b64decode(value, validate=True)
        except (Error, ValueError):
            return False
    return isinstance(value, bytes) and value[:1] == b"\x80" and value[-1:] == b"."
