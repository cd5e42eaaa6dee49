"""The whole guard around a small application, over real HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from prudent.core.errors import BadInput
from prudent.service.security import protection
from prudent.service.security.browser_sessions import COOKIE, BrowserSessions
from prudent.service.security.tokens import AccessMode, hash_token, new_token
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store
from prudent.service.store.users import User

TOKENS = {name: new_token() for name in ("vera", "mia", "kim", "ada")}
ROLE = {"vera": "viewer", "mia": "member", "kim": "commander", "ada": "admin"}


@dataclass(frozen=True)
class Site:
    url: str
    port: int
    store: Store
    sessions: BrowserSessions
    client: httpx.Client

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, content: Any = b"{}", **headers: str) -> httpx.Response:
        return self._ask("POST", path, content, headers)

    def _ask(self, method: str, path: str, content: Any, headers: dict[str, str]) -> httpx.Response:
        self.client.cookies.clear()  # who asks is in the headers, and nowhere else
        return self.client.request(method, path, content=content, headers=_named(headers))

    def raw(self, text: bytes) -> bytes:
        """What the server answers to these very bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as line:
            line.sendall(text)
            found = b""
            try:
                while block := line.recv(65536):
                    found += block
                    if b"\r\n\r\n" in found:
                        break
            except ConnectionResetError:
                pass
            return found


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[name]}"}


def _app() -> FastAPI:
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, bool]:
        return {"well": True}

    @app.get("/v1/runs")
    async def runs(request: Request) -> dict[str, str]:
        return {"user": request.state.user.name}

    @app.post("/v1/runs/train")
    async def submit(request: Request) -> dict[str, Any]:
        return {"size": len(await request.body()), "user": request.state.user.name}

    @app.get("/v1/runs/1/report")
    async def report() -> HTMLResponse:
        return HTMLResponse("<script>1</script>")

    @app.get("/runs")
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(request.state.form_token)

    @app.post("/submit")
    async def form(request: Request) -> dict[str, str]:
        return {"got": (await request.body()).decode()}

    return app


def _serve(settings: Settings, store: Store) -> Iterator[Site]:
    app = _app()
    sessions = protection.install(app, settings, store)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        while not server.started:
            assert thread.is_alive(), "The server did not start."
            time.sleep(0.01)
        url = f"http://127.0.0.1:{port}"
        try:
            with httpx.Client(base_url=url, timeout=60, trust_env=False, verify=False) as client:
                yield Site(url, port, store, sessions, client)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(
        tmp_path_factory.mktemp("home"),
        body_mb=0.1,
        cors_origins=("https://friend.example",),
        rate_per_s=500.0,
    )


@pytest.fixture(scope="module")
def site(settings: Settings) -> Iterator[Site]:
    with Store(f"sqlite:///{settings.home}/a.db") as store:
        for name, token in TOKENS.items():
            store.write(users.put, User(name, ROLE[name], None, hash_token(token)))
        yield from _serve(settings, store)


@pytest.fixture(scope="module")
def open_site(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("open")
    AccessMode(home).choose(True)
    with Store(f"sqlite:///{home}/b.db") as store:
        yield from _serve(replace(settings, home=home), store)


def test_strangers_are_asked_who_they_are(site: Site) -> None:
    assert site.get("/health").status_code == 200
    for answer in (
        site.get("/v1/runs"),
        site.post("/v1/runs/train"),
        site.get("/metrics"),
        site.post("/submit"),
    ):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == 401
    page = site.get("/runs?status=running", accept="text/html")
    assert page.status_code == 303
    assert page.headers["location"] == "/sign-in?next=/runs%3Fstatus%3Drunning"


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer ", "Bearer x", "Basic YTpi", "bearer " + "x" * 3000, "Bearer \xe9\xff", "x"],
)
def test_tokens_that_nobody_has(site: Site, authorization: str) -> None:
    head = f"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\r\n"
    answer = site.raw(head.encode("latin-1"))
    assert answer.split()[1] in (b"401", b"429")
    assert b"www-authenticate: Bearer" in answer or b"retry-after" in answer


def test_each_role_may_do_what_it_may(site: Site) -> None:
    for name in TOKENS:
        assert site.get("/v1/runs", **_bearer(name)).json() == {"user": name}
        expected = 403 if name == "vera" else 200
        assert site.post("/v1/runs/train", **_bearer(name)).status_code == expected


def test_a_session_needs_its_form_token_to_change_anything(site: Site) -> None:
    mia = site.sessions.begin("mia", hash_token(TOKENS["mia"]), time.time())
    cookie = {"cookie": f"{COOKIE}={mia}"}
    token = site.get("/runs", **cookie).text
    form = {"content_type": "application/x-www-form-urlencoded", **cookie}
    assert site.get("/v1/runs", **cookie).json() == {"user": "mia"}
    for path in ("/submit", "/v1/runs/train", "/sign-out"):
        assert site.post(path, **cookie).status_code == 403
        assert site.post(path, "csrf=wrong", **form).status_code == 403
        assert site.post(path, f"csrf={token}", **cookie, content_type="text/plain").status_code == 403
    assert site.post("/v1/runs/train", x_csrf_token=token, **cookie).status_code == 200
    assert site.post("/submit", f"a=1&csrf={token}", **form).json() == {"got": f"a=1&csrf={token}"}
    other = site.sessions.begin("kim", hash_token(TOKENS["kim"]), time.time())
    assert site.post("/submit", f"csrf={token}", **{**form, "cookie": f"{COOKIE}={other}"}).status_code == 403


def test_forged_and_ended_sessions_are_no_sessions(site: Site) -> None:
    good = hash_token(TOKENS["ada"])
    forged = [
        BrowserSessions(b"x" * 32).begin("ada", good, time.time()),
        site.sessions.begin("ada", hash_token("old"), time.time()),
        site.sessions.begin("ada", good, time.time() - 86400),
        site.sessions.begin("nobody", good, time.time()),
        site.sessions.begin("local", "", time.time()),
        "a.b.c.d",
        "....",
        "%00",
    ]
    for value in forged:
        assert site.get("/v1/runs", cookie=f"{COOKIE}={value}").status_code == 401


def test_an_open_one_asks_this_machine_for_no_token_but_other_sites_get_nowhere(open_site: Site) -> None:
    assert open_site.get("/v1/runs").json() == {"user": "local"}
    assert open_site.post("/v1/runs/train").json()["user"] == "local"
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{open_site.port + 1}"},
        {"sec_fetch_site": "cross-site"},
        {"origin": "https://evil.example", "content_type": "text/plain"},
    ):
        assert open_site.post("/v1/runs/train", **headers).status_code == 403
    assert open_site.post("/v1/runs/train", origin=open_site.url).status_code == 200
    page = open_site.get("/runs", accept="text/html")
    assert "SameSite=Strict" in page.headers["set-cookie"]
    cookie = page.headers["set-cookie"].partition(";")[0]
    form = {"content_type": "application/x-www-form-urlencoded"}
    assert open_site.post("/submit", f"csrf={page.text}", **form).status_code == 403
    assert open_site.post("/submit", f"csrf={page.text}", cookie=cookie, **form).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil",
        "",
        "a b",
        "[::1",
        "169.254.169.254",
        "0.0.0.0",
    ],
)
def test_names_that_are_not_the_services_are_refused(open_site: Site, host: str) -> None:
    """A page whose name is made to lead here (DNS rebinding) is the same site to its browser."""
    answer = open_site.raw(f"GET /v1/runs HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.split()[1] in (b"421", b"400")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "[::1]:80", "localhost."])
def test_names_of_this_machine_are_known(open_site: Site, host: str) -> None:
    assert open_site.raw(f"GET /v1/runs HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).split()[1] == b"200"


def test_scripts_of_allowed_sites_may_call_with_a_token(site: Site) -> None:
    ask = {"access-control-request-method": "POST"}
    for origin, status in (("https://friend.example", 204), ("https://evil.example", 403), ("null", 403)):
        answer = site.client.options("/v1/runs", headers={"origin": origin, **ask})
        assert answer.status_code == status
        allowed = answer.headers.get("access-control-allow-origin")
        assert allowed == (origin if status == 204 else None)
        assert "access-control-allow-credentials" not in answer.headers
    answer = site.post("/v1/runs/train", origin="https://friend.example", **_bearer("mia"))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://friend.example"


def test_every_answer_carries_the_headers_browsers_heed(site: Site) -> None:
    answers = [site.get("/runs"), site.get("/nowhere", **_bearer("ada")), site.get("/runs", **_bearer("ada"))]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe-inline" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
    report = site.get("/v1/runs/1/report", **_bearer("ada"))
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in report.headers["content-security-policy"]


def _chunks(size: int) -> Iterator[bytes]:
    while size > 0:
        yield b"x" * min(size, 10_000)
        size -= 10_000


@pytest.mark.parametrize("size", [100_001, 1_000_000])
def test_bodies_that_are_too_large_are_refused(site: Site, size: int) -> None:
    answer = site.raw(
        f"POST /v1/runs/train HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKENS['mia']}\r\n"
        f"Content-Length: {size}\r\n\r\n".encode()
    )
    assert answer.split()[1] == b"413"
    try:
        chunked = site.post("/v1/runs/train", _chunks(size), **_bearer("mia"))
    except httpx.TransportError:  # it hung up on us while we were sending, as it may
        return
    assert chunked.status_code == 413


def test_bodies_that_fit_arrive_whole(site: Site) -> None:
    for content in (b"x" * 100_000, _chunks(100_000)):
        assert site.post("/v1/runs/train", content, **_bearer("mia")).json()["size"] == 100_000


@pytest.mark.parametrize("length", ["-1", "1e9", "0x10", "", "1,1", "99999999999999999999999", " "])
def test_odd_lengths_do_no_harm(site: Site, length: str) -> None:
    head = f"POST /v1/runs/train HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    assert site.raw(head.encode()).split()[1:2] in ([b"400"], [b"413"], [b"401"])
    assert site.get("/health").status_code == 200


def test_a_body_that_never_comes_is_given_up() -> None:
    from prudent.service.security.middleware import BodyLimitMiddleware

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
        except Exception:  # noqa: BLE001 - as frameworks do
            await send({"type": "http.response.start", "status": 200, "headers": []})

    said: list[Any] = []

    async def never() -> Any:
        await asyncio.sleep(3600)

    async def send(message: Any) -> None:
        said.append(message)

    limit = BodyLimitMiddleware(app, most_bytes=10, longest_s=0.05)
    asyncio.run(limit({"type": "http", "method": "POST", "path": "/", "headers": []}, never, send))
    assert said[0]["status"] == 408


def test_nobody_serves_others_without_tokens(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/e.db") as store:
        for host in ("127.0.0.1", "localhost", "::1"):
            protection.check_access(Settings(tmp_path, host=host), store)
        for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""):
            with pytest.raises(BadInput, match="prudent users add"):
                protection.check_access(Settings(tmp_path, host=host), store)
        store.write(users.put, User("ada", "admin", None, hash_token("x")))
        protection.check_access(Settings(tmp_path, host="0.0.0.0"), store)


def test_a_service_for_others_is_never_open(tmp_path: Path) -> None:
    """Also when the last user is removed while it runs, and where its home was open before."""
    AccessMode(tmp_path).choose(True)
    with Store(f"sqlite:///{tmp_path}/f.db") as store:
        for site in _serve(Settings(tmp_path, host="0.0.0.0"), store):
            assert site.get("/v1/runs").status_code == 401


def test_what_a_proxy_brings_is_not_of_this_machine(open_site: Site, tmp_path: Path) -> None:
    for name in ("forwarded", "x_forwarded_for", "x_real_ip", "via", "x_forwarded_host"):
        assert open_site.get("/v1/runs", **{name: "for=203.0.113.7"}).status_code == 401
        assert open_site.post("/v1/runs/train", **{name: "203.0.113.7"}).status_code == 401
    cookie = open_site.get("/runs").headers["set-cookie"].partition(";")[0]
    assert open_site.get("/v1/runs", cookie=cookie, x_forwarded_for="203.0.113.7").status_code == 401
    named = Settings(tmp_path, trusted_hosts=("prudent.example.org",))
    with Store(f"sqlite:///{tmp_path}/h.db") as store:
        with pytest.raises(BadInput, match=r"prudent\.example\.org"):
            protection.check_access(named, store)
        for site in _serve(named, store):
            assert site.get("/v1/runs").status_code == 401
