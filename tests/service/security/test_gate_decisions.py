"""The gate alone, by a clock that the test moves: who is let in, how often, and what the others are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from prudent.service.security.authentication import AuthMiddleware, address_of, is_api, is_free, needed
from prudent.service.security.browser_sessions import COOKIE, LASTS_S, BrowserSessions, cookie_of
from prudent.service.security.rate_limits import RateLimit
from prudent.service.security.tokens import hash_token, new_token
from prudent.service.store.store import StoreUnavailable
from prudent.service.store.users import LOCAL, MEMBER, VIEWER, User

ADA, VIC = new_token(), new_token()
USERS = (User("ada", MEMBER, token_hash=hash_token(ADA)), User("vic", VIEWER, token_hash=hash_token(VIC)))
HTML = {"accept": "text/html"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def detail(self) -> str:
        return str(json.loads(self.body)["detail"])


@dataclass
class Entrance:
    """A gate before an application that answers 200 and keeps who came in, and with which body."""

    users: Sequence[User] = USERS
    open: bool = False
    rate: RateLimit | None = None
    now_s: float = 1000.0
    down: bool = False
    entered: list[tuple[User | None, str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sessions = BrowserSessions(b"key" * 11)
        self.gate = AuthMiddleware(
            self._app, self._accounts, self.sessions, self._is_open, self.rate, clock=lambda: self.now_s
        )

    def _is_open(self, accounts: Sequence[User]) -> bool:
        return self.open and not accounts

    async def _accounts(self) -> Sequence[User]:
        if self.down:
            raise StoreUnavailable("The store does not answer; wait.")
        return self.users

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        self.entered.append((scope["state"]["user"], scope["state"]["form_token"], body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        method: str = "GET",
        body: bytes = b"",
        host: str = "10.0.0.9",
        query: bytes = b"",
        scheme: str = "http",
    ) -> Answer:
        lines = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "headers": lines,
            "client": (host, 1234),
            "scheme": scheme,
        }
        said: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            said.append(message)

        asyncio.run(self.gate(scope, receive, send))
        start, end = said
        got = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        return Answer(start["status"], got, end["body"])

    def session(self, user: User = USERS[0]) -> tuple[dict[str, str], str]:
        value = self.sessions.begin(user.name, user.token_hash or "", self.now_s)
        return {"cookie": f"{COOKIE}={value}"}, self.sessions.form_token(value)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class TestHowOften:
    def test_who_asks_too_often_waits_as_long_as_told(self) -> None:
        door = Entrance(rate=RateLimit(per_s=0.5, burst=3))
        assert [door.ask("/v1/runs", bearer(ADA)).status for _ in range(4)] == [200, 200, 200, 429]
        assert door.ask("/v1/runs", bearer(ADA)).headers["retry-after"] == "2"
        assert door.ask("/v1/runs", bearer(VIC)).status == 200  # another's turns are another's
        door.now_s += 2
        assert [door.ask("/v1/runs", bearer(ADA)).status for _ in range(2)] == [200, 429]

    def test_whether_it_is_well_may_be_asked_at_any_time(self) -> None:
        door = Entrance(rate=RateLimit(per_s=0.1, burst=1))
        paths = ("/health", "/ready") * 5
        assert {door.ask(path).status for path in paths} == {200}
        assert [door.ask("/sign-in").status for _ in range(2)] == [200, 429]

    def test_guessing_is_slowed_down_and_locks_no_other_out(self) -> None:
        door = Entrance()
        guesses = [door.ask("/v1/runs", bearer("guess")) for _ in range(11)]
        assert [one.status for one in guesses] == [401] * 10 + [429]
        assert guesses[0].headers["www-authenticate"].endswith('error="invalid_token"')
        assert guesses[-1].headers["retry-after"] == "5"
        assert door.ask("/v1/runs", bearer("guess"), host="10.0.0.8").status == 401
        assert door.ask("/v1/runs", bearer(ADA)).status == 200  # from the same address
        door.now_s += 5
        assert [door.ask("/v1/runs", bearer("guess")).status for _ in range(2)] == [401, 429]


class TestWho:
    def test_only_a_bearers_token_counts(self) -> None:
        door = Entrance()
        assert door.ask("/v1/runs", {"authorization": f"bearer  {ADA} "}).status == 200
        assert door.ask("/v1/runs", {"authorization": f"Basic {ADA}"}).status == 401
        assert [user.name for user, _, _ in door.entered if user] == ["ada"]

    def test_a_wrong_token_is_not_saved_by_a_good_session(self) -> None:
        door = Entrance()
        cookie, _ = door.session()
        assert door.ask("/v1/runs", {**cookie, **bearer("guess")}).status == 401

    def test_a_session_ends_in_time(self) -> None:
        door = Entrance()
        cookie, token = door.session()
        door.now_s += LASTS_S
        assert door.ask("/runs", cookie).status == 200
        assert door.entered[-1][:2] == (USERS[0], token)
        door.now_s += 1
        assert door.ask("/runs", cookie).status == 401

    def test_a_session_is_not_anothers(self) -> None:
        door = Entrance()
        value = door.sessions.begin("vic", USERS[0].token_hash or "", door.now_s)
        assert door.ask("/runs", {"cookie": f"{COOKIE}={value}"}).status == 401

    def test_a_viewer_looks_and_changes_nothing(self) -> None:
        door = Entrance()
        assert door.ask("/v1/runs", bearer(VIC)).status == 200
        assert "viewer" in door.ask("/v1/runs", bearer(VIC), "POST").detail
        assert door.ask("/v1/runs", bearer(ADA), "POST", b"{}").status == 200
        assert door.entered[-1][2] == b"{}"

    def test_a_store_that_is_down_lets_nobody_in_but_tells_how_it_is(self) -> None:
        door = Entrance(down=True)
        refused = door.ask("/v1/runs", bearer(ADA))
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert [door.ask(path).status for path in ("/health", "/ready")] == [200, 200]
        assert door.ask("/sign-in").status == 503


class TestStrangers:
    def test_a_browser_is_sent_to_sign_in_and_back(self) -> None:
        sent = Entrance().ask("/runs/7", HTML, query=b"tab=a&b=1")
        assert (sent.status, sent.headers["location"]) == (303, "/sign-in?next=/runs/7%3Ftab%3Da%26b%3D1")
        assert Entrance().ask("/runs", HTML, "HEAD").headers["location"] == "/sign-in?next=/runs"

    @pytest.mark.parametrize(
        ("path", "headers", "method"),
        [("/runs", HTML, "POST"), ("/v1/runs", HTML, "GET"), ("/runs", {}, "GET")],
    )
    def test_programs_and_forms_are_asked_for_a_token(
        self, path: str, headers: dict[str, str], method: str
    ) -> None:
        refused = Entrance().ask(path, headers, method)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Bearer realm="prudent"')


class TestForms:
    @pytest.mark.parametrize("how", ["header", "field"])
    def test_a_form_of_the_session_is_taken_and_arrives_whole(self, how: str) -> None:
        door = Entrance()
        cookie, token = door.session()
        kind = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        body = b"a=1" if how == "header" else f"a=1&csrf={token}".encode()
        more = {"x-csrf-token": token} if how == "header" else kind
        assert door.ask("/runs", {**cookie, **more}, "POST", body).status == 200
        assert door.entered[-1][2] == body

    @pytest.mark.parametrize("path", ["/runs", "/v1/runs"])
    @pytest.mark.parametrize("token", ["", "x", "another's"])
    def test_a_form_of_another_site_is_not(self, path: str, token: str) -> None:
        door = Entrance()
        cookie, _ = door.session()
        _, others = door.session()
        said = others if token == "another's" else token
        assert door.ask(path, {**cookie, "x-csrf-token": said}, "POST").status == 403
        assert not door.entered

    def test_a_token_in_another_kind_of_body_does_not_count(self) -> None:
        door = Entrance()
        cookie, token = door.session()
        plain = {**cookie, "content-type": "text/plain"}
        assert door.ask("/runs", plain, "POST", f"csrf={token}".encode()).status == 403

    def test_to_sign_in_no_form_token_is_needed(self) -> None:
        assert Entrance().ask("/sign-in", method="POST").status == 200


class TestOpen:
    def test_a_page_begins_a_session_of_this_machine(self) -> None:
        door = Entrance(users=(), open=True)
        page = door.ask("/runs", HTML)
        assert door.entered[-1][0] is LOCAL
        line = page.headers["set-cookie"]
        assert line.startswith(f"{COOKIE}=")
        assert "Secure" not in line
        assert door.ask("/runs", HTML, scheme="https").headers["set-cookie"].endswith("; Secure")
        cookie = {"cookie": line.partition(";")[0]}
        again = door.ask("/runs", cookie)
        assert (again.status, "set-cookie" in again.headers) == (200, False)
        assert door.ask("/runs", cookie, "POST").status == 403  # a page's form needs its token
        assert door.ask("/v1/runs", cookie, "POST").status == 200  # a program does not

    def test_programs_get_no_cookie(self) -> None:
        assert "set-cookie" not in Entrance(users=(), open=True).ask("/v1/runs").headers

    @pytest.mark.parametrize(
        "name",
        [
            "forwarded",
            "x-forwarded-for",
            "x-real-ip",
            "via",
            "x-forwarded-host",
            "x-forwarded-proto",
            "client-ip",
            "x-original-url",
            "cf-ray",
            "tailscale-user-login",
            "x-amzn-trace-id",
        ],
    )
    def test_what_a_proxy_brings_is_a_stranger(self, name: str) -> None:
        door = Entrance(users=(), open=True)
        cookie = {"cookie": door.ask("/runs", HTML).headers["set-cookie"].partition(";")[0]}
        assert door.ask("/v1/runs", {name: "1.2.3.4"}).status == 401
        assert door.ask("/v1/runs", {name: "1.2.3.4", **cookie}).status == 401

    def test_it_closes_with_the_first_account(self) -> None:
        door = Entrance(users=(), open=True)
        cookie = {"cookie": door.ask("/runs", HTML).headers["set-cookie"].partition(";")[0]}
        door.users = USERS
        assert door.ask("/v1/runs").status == 401
        assert door.ask("/v1/runs", cookie).status == 401

    def test_a_closed_one_without_accounts_lets_nobody_in(self) -> None:
        door = Entrance(users=())
        value = door.sessions.begin(LOCAL.name, "", door.now_s)
        assert door.ask("/v1/runs").status == 401
        assert door.ask("/v1/runs", {"cookie": f"{COOKIE}={value}"}).status == 401


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("10.0.0.9", "10.0.0.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2"),
        ("2001:db8:1:3:3:4:5:6", "2001:db8:1:3"),
    ],
)
def test_one_network_is_one_place(host: str, place: str) -> None:
    assert address_of({"client": (host, 1)}) == place


def test_a_request_from_nowhere_has_a_place_too() -> None:
    assert address_of({}) == address_of({"client": None}) == "unknown"


def test_which_paths_are_whose() -> None:
    api = ("/v1/runs", "/health", "/ready", "/metrics", "/openapi.json")
    free = ("/health", "/ready", "/sign-in", "/favicon.ico", "/static/a.css")
    pages = ("/", "/runs", "/v1", "/static", "/sign-in/x", "/metricsx")
    assert [path for path in (*api, *pages) if is_api(path)] == list(api)
    assert [path for path in (*free, *pages, "/metrics") if is_free(path)] == list(free)
    assert {needed(method, "/runs") for method in ("GET", "HEAD", "OPTIONS")} == {VIEWER}
    assert {needed(method, "/runs") for method in ("POST", "PUT", "PATCH", "DELETE")} == {MEMBER}
    assert [needed("POST", path) for path in ("/sign-in", "/sign-out")] == [VIEWER, VIEWER]


@pytest.mark.parametrize(
    "header", ["", "a=1", f"a,b=1; {COOKIE}=x", f"/=1; {COOKIE}=x", f"{COOKIE}", f"a={COOKIE}"]
)
def test_a_cookie_that_cannot_be_read_is_none(header: str) -> None:
    assert cookie_of(header) == ""
