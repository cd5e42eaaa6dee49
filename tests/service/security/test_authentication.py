"""Each layer of the guard by itself, called as a server calls it, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from prudent.core.errors import BadInput
from prudent.service.security import protection
from prudent.service.security.accounts import FRESH_S, Accounts, merged, of_file
from prudent.service.security.authentication import AuthMiddleware, address_of, is_api, is_free, needed
from prudent.service.security.browser_sessions import COOKIE, LASTS_S, BrowserSessions
from prudent.service.security.middleware import (
    PAGES,
    REPORTS,
    BodyLimitMiddleware,
    Message,
    OriginMiddleware,
    Receive,
    Scope,
    Send,
    foreign,
)
from prudent.service.security.rate_limits import RateLimit
from prudent.service.security.tokens import AccessMode, hash_token
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store, StoreUnavailable
from prudent.service.store.users import LOCAL, User

ADA = User("ada", "admin", None, hash_token("a"))
VERA = User("vera", "viewer", None, hash_token("v"))
MIA = User("mia", "member", None, hash_token("m"))
FORM = "application/x-www-form-urlencoded"


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Answer:
    """What an application said; `scope` is what the innermost one was asked, None if nobody asked it."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    scope: Scope | None = None
    got: bytes | None = None

    @property
    def detail(self) -> str:
        return str(json.loads(self.body)["detail"])


def ask(
    layer: Any, method: str = "GET", path: str = "/v1/runs", parts: tuple[bytes, ...] = (), **others: Any
) -> Answer:
    """One request to a layer, made by `layer(app)`; words with _ are headers, `scope` has the rest."""
    answer, waiting = Answer(), list(parts)
    scope: Scope = {"type": "http", "method": method, "path": path, "client": ("203.0.113.7", 1)}
    scope.update(others.pop("scope", {}))
    headers = {name.strip("_").replace("_", "-"): value for name, value in others.items()}
    scope["headers"] = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def receive() -> Message:
        body = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not answer.status, "It was answered twice."
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer.scope, answer.got = scope, b""
        while True:
            message = await receive()
            answer.got += message.get("body", b"")
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]})
        await send({"type": "http.response.body", "body": b"done"})

    asyncio.run(layer(app)(scope, receive, send))
    return answer


# Who asks


@dataclass
class Door:
    """A gate on a clock, with these accounts."""

    accounts: tuple[User, ...] = (ADA, VERA, MIA)
    open: bool = False
    rate: RateLimit | None = None
    clock: Clock = field(default_factory=Clock)
    sessions: BrowserSessions = field(default_factory=lambda: BrowserSessions(b"k" * 32))
    failed_attempts: RateLimit = field(
        default_factory=lambda: AuthMiddleware(None, None, None).failed_attempts
    )  # type: ignore[arg-type]
    away: bool = False

    def __call__(self, app: Any) -> AuthMiddleware:
        async def accounts() -> tuple[User, ...]:
            if self.away:
                raise StoreUnavailable("The database does not answer; try again.")
            return self.accounts

        def is_open(accounts: Sequence[User]) -> bool:
            return self.open and not accounts

        return AuthMiddleware(
            app, accounts, self.sessions, is_open, self.rate, self.failed_attempts, self.clock
        )

    def cookie(self, user: User) -> str:
        return f"{COOKIE}={self.sessions.begin(user.name, user.token_hash or '', self.clock())}"


def test_a_token_is_its_holders_however_it_is_written() -> None:
    door = Door()
    for said in ("Bearer m", "bearer m", "BEARER  m "):
        answer = ask(door, authorization=said)
        assert answer.status == 200
        assert answer.scope is not None
        assert answer.scope["state"] == {"user": MIA, "form_token": ""}
    for said in ("Basic m", "m", "Bearer", "Bearer M", "Bearer m x"):
        answer = ask(door, authorization=said)
        assert (answer.status, answer.scope) == (401, None)
        assert answer.headers["www-authenticate"] == 'Bearer realm="prudent", error="invalid_token"'
    # A token counts, and a cookie beside it does not.
    answer = ask(door, "POST", authorization="Bearer wrong", cookie=door.cookie(ADA))
    assert answer.status == 401


def test_a_gate_is_shut_unless_told_otherwise() -> None:
    async def nobody() -> tuple[User, ...]:
        return ()

    answer = ask(
        lambda app: AuthMiddleware(app, nobody, BrowserSessions(b"k" * 32)),
        scope={"client": ("127.0.0.1", 1)},
    )
    assert (answer.status, answer.scope) == (401, None)


def test_guessing_is_slowed_down_by_address_and_locks_nobody_out() -> None:
    door = Door()
    guesses = [ask(door, authorization=f"Bearer guess-{number}") for number in range(11)]
    assert [guess.status for guess in guesses] == [401] * 10 + [429]
    assert guesses[-1].headers["retry-after"] == "5"
    assert "wait, then use yours" in guesses[-1].detail
    assert ask(door, authorization="Bearer a").status == 200
    assert ask(door, authorization="Bearer x", scope={"client": ("203.0.113.8", 1)}).status == 401
    door.clock.now_s += 4.9
    assert ask(door, authorization="Bearer x").status == 429
    door.clock.now_s += 0.2
    assert ask(door, authorization="Bearer x").status == 401


def test_who_asks_too_often_waits_and_nobody_else() -> None:
    door = Door(rate=RateLimit(per_s=1.0, burst=2))
    answers = [ask(door, authorization="Bearer m") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[-1].headers["retry-after"] == "1"
    assert answers[-1].scope is None
    assert ask(door, authorization="Bearer a").status == 200
    for path in ("/health", "/ready"):  # whoever watches over the service asks as often as they like
        assert [ask(door, path=path, authorization="Bearer m").status for _ in range(4)] == [200] * 4
    strangers = [ask(door, path="/sign-in").status for _ in range(3)]
    assert strangers == [200, 200, 429]
    assert ask(door, path="/sign-in", scope={"client": ("203.0.113.8", 1)}).status == 200
    door.clock.now_s += 1.0
    assert ask(door, authorization="Bearer m").status == 200


def test_what_strangers_may_see() -> None:
    door = Door()
    for path in ("/health", "/ready", "/sign-in", "/favicon.ico", "/static/page.css"):
        answer = ask(door, path=path)
        assert answer.status == 200, path
        assert answer.scope is not None
        assert answer.scope["state"] == {"user": None, "form_token": ""}
        assert "set-cookie" not in answer.headers
    for path in ("/", "/runs", "/metrics", "/openapi.json", "/docs", "/staticx", "/healthy", "/v1/runs"):
        answer = ask(door, path=path)
        assert (answer.status, answer.scope) == (401, None), path
        assert answer.headers["www-authenticate"] == 'Bearer realm="prudent"'
        assert json.loads(answer.body) == {
            "type": "about:blank",
            "title": "Unauthorized",
            "status": 401,
            "detail": "Say who you are, as Authorization: Bearer TOKEN.",
        }


def test_people_are_sent_to_sign_in_and_programs_are_not() -> None:
    door, page = Door(), "text/html,application/xhtml+xml"
    place = {"query_string": b"user=a%20b&x=1"}
    for method in ("GET", "HEAD"):
        answer = ask(door, method, "/runs", accept=page, scope=place)
        assert (answer.status, answer.body) == (303, b"")
        assert answer.headers["location"] == "/sign-in?next=" + quote("/runs?user=a%20b&x=1", safe="/")
    assert ask(door, path="/runs", accept=page).headers["location"] == "/sign-in?next=/runs"
    for method, path, accept in (
        ("POST", "/runs", page),
        ("GET", "/v1/runs", page),
        ("GET", "/metrics", page),
        ("GET", "/runs", "application/json"),
    ):
        assert ask(door, method, path, accept=accept).status == 401, (method, path, accept)


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/v1/runs", "viewer"),
        ("HEAD", "/v1/runs", "viewer"),
        ("OPTIONS", "/v1/runs", "viewer"),
        ("POST", "/sign-in", "viewer"),
        ("POST", "/sign-out", "viewer"),
        ("POST", "/v1/runs/train", "member"),
        ("DELETE", "/v1/runs/1", "member"),
        ("PUT", "/sign-in/x", "member"),
    ],
)
def test_the_least_role(method: str, path: str, role: str) -> None:
    assert needed(method, path) == role
    viewer = ask(Door(), method, path, authorization="Bearer v")
    assert viewer.status == (200 if role == "viewer" else 403)
    if role == "member":
        assert viewer.scope is None
        assert "role viewer may not" in viewer.detail
    assert ask(Door(), method, path, authorization="Bearer m").status == 200


def test_what_is_for_programs_and_what_is_free() -> None:
    paths = ("/v1/x", "/health", "/ready", "/metrics", "/openapi.json", "/v1", "/v2/x", "/runs", "/healthz")
    assert [is_api(path) for path in paths] == [True] * 5 + [False] * 4
    assert not any(is_free(path) for path in ("/sign-out", "/runs", "/v1/static/", "/static"))


@pytest.mark.parametrize(
    ("client", "place"),
    [
        (("203.0.113.7", 80), "203.0.113.7"),
        (("2001:db8:1:2:3:4:5:6", 80), "2001:db8:1:2"),
        (("2001:db8:1:2:9:9:9:9", 80), "2001:db8:1:2"),
        (("::1", 80), "::1"),
        (("a:b", 80), "a:b"),
        (None, "unknown"),
    ],
)
def test_where_a_request_comes_from(client: Any, place: str) -> None:
    assert address_of({"client": client}) == place


def test_while_the_database_is_away_only_the_signs_of_life_answer() -> None:
    door = Door(away=True)
    for path in ("/health", "/ready"):
        assert ask(door, path=path).status == 200
    for path in ("/runs", "/sign-in", "/v1/runs"):
        answer = ask(door, path=path, authorization="Bearer a")
        assert (answer.status, answer.headers["retry-after"], answer.scope) == (503, "5", None)
        assert "does not answer" in answer.detail


# Sessions


def test_a_session_is_its_users_until_it_ends() -> None:
    door = Door()
    cookie = door.cookie(MIA)
    answer = ask(door, path="/runs", cookie=cookie)
    assert answer.scope is not None
    assert answer.scope["state"]["user"] == MIA
    token = answer.scope["state"]["form_token"]
    assert token == door.sessions.form_token(cookie.partition("=")[2])
    assert "set-cookie" not in answer.headers
    door.clock.now_s += LASTS_S
    assert ask(door, path="/runs", cookie=cookie).status == 200
    door.clock.now_s += 1
    assert ask(door, path="/runs", cookie=cookie).status == 401
    for other in (replace(MIA, token_hash=hash_token("new")), ADA):
        assert ask(replace(door, accounts=(other,), clock=Clock()), path="/runs", cookie=cookie).status == 401


def test_what_a_session_changes_needs_its_form_token() -> None:
    door = Door()
    cookie, other = door.cookie(MIA), door.cookie(MIA)
    token = door.sessions.form_token(cookie.partition("=")[2])
    mine = {"cookie": cookie}
    for path in ("/submit", "/v1/runs/train", "/sign-out"):
        for method in ("POST", "PUT", "DELETE"):
            answer = ask(door, method, path, **mine)
            assert (answer.status, answer.scope) == (403, None)
            assert "not of your session" in answer.detail
        assert ask(door, "POST", path, x_csrf_token=token, **mine).status == 200
        assert ask(door, "POST", path, x_csrf_token=token, cookie=other).status == 403
        assert ask(door, "POST", path, x_csrf_token=token[:-1], **mine).status == 403
        body = f"a=1&csrf={token}&b=2".encode()
        for parts in ((body,), (body[:9], body[9:])):
            sent = ask(door, "POST", path, parts, content_type=f"{FORM}; charset=utf-8", **mine)
            assert (sent.status, sent.got) == (200, body)  # the application reads it as if nobody had
        assert ask(door, "POST", path, (body,), content_type="text/plain", **mine).status == 403
        assert ask(door, "POST", path, (b"csrf=",), content_type=FORM, **mine).status == 403
        assert ask(door, "POST", path, (b"\xff",), content_type=FORM, **mine).status == 403
    for method in ("GET", "HEAD", "OPTIONS"):
        assert ask(door, method, "/runs", **mine).status == 200
    assert ask(door, "POST", "/sign-in", **mine).status == 200  # a new session may always begin
    assert ask(door, "POST", "/submit", authorization="Bearer m").status == 200  # no browser sends that


def test_a_body_may_go_on_after_it_was_read_for_its_token() -> None:
    """The application hears of the end of the connection after a form, as of any other body."""
    door, heard = Door(), []
    token = door.sessions.form_token(door.cookie(MIA).partition("=")[2])

    def layer(_: Any) -> Any:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            heard.extend([await receive(), await receive()])

        async def asked(scope: Scope, receive: Receive, send: Send) -> None:
            said = iter(
                [
                    {"type": "http.request", "body": f"csrf={token}".encode(), "more_body": False},
                    {"type": "http.disconnect"},
                ]
            )

            async def told() -> Message:
                return next(said)

            await door(app)(scope, told, send)

        return asked

    session = door.cookie(MIA)
    token = door.sessions.form_token(session.partition("=")[2])
    ask(layer, "POST", "/submit", cookie=session, content_type=FORM)
    assert [message["type"] for message in heard] == ["http.request", "http.disconnect"]


def test_whoever_sits_at_the_machine_needs_no_token_while_there_are_no_accounts() -> None:
    door = Door((), open=True)
    page = ask(door, path="/runs", scope={"scheme": "https"})
    assert page.scope is not None
    assert page.scope["state"]["user"] is LOCAL
    assert page.headers["x-app"] == "1"
    assert page.headers["set-cookie"].endswith("; Secure")
    cookie = page.headers["set-cookie"].partition(";")[0]
    token = page.scope["state"]["form_token"]
    assert token == door.sessions.form_token(cookie.partition("=")[2])
    assert not ask(door, path="/runs").headers["set-cookie"].endswith("; Secure")
    assert "set-cookie" not in ask(door, path="/runs", cookie=cookie).headers
    for method, path in (("GET", "/v1/runs"), ("POST", "/v1/runs/train"), ("HEAD", "/runs")):
        answer = ask(door, method, path)
        assert answer.status == 200
        assert "set-cookie" not in answer.headers
    assert ask(door, "POST", "/v1/runs/train", cookie=cookie).status == 200  # no form sends there
    assert ask(door, "POST", "/submit").status == 403
    assert ask(door, "POST", "/submit", x_csrf_token=token).status == 403
    assert ask(door, "POST", "/submit", x_csrf_token=token, cookie=cookie).status == 200
    for name in ("forwarded", "x_forwarded_for", "x_real_ip"):
        assert ask(door, path="/v1/runs", **{name: "203.0.113.7"}).status == 401
        assert ask(door, path="/v1/runs", cookie=cookie, **{name: "203.0.113.7"}).status == 401
    for shut in (replace(door, accounts=(ADA,)), replace(door, open=False)):
        assert ask(shut, path="/v1/runs").status == 401
        assert ask(shut, path="/v1/runs", cookie=cookie).status == 401
    forged = replace(door, sessions=BrowserSessions(b"j" * 32)).cookie(LOCAL)
    assert ask(door, "POST", "/submit", cookie=forged, x_csrf_token=token).status == 403


def test_a_proxy_brings_people_with_accounts() -> None:
    door = Door()
    assert ask(door, authorization="Bearer a", x_forwarded_for="203.0.113.7").status == 200
    assert ask(door, path="/runs", cookie=door.cookie(ADA), x_forwarded_for="203.0.113.7").status == 200


@pytest.mark.parametrize("layer", [Door(), lambda app: BodyLimitMiddleware(app, 1), OriginMiddleware])
def test_what_is_no_request_passes(layer: Any) -> None:
    assert ask(layer, scope={"type": "lifespan"}).status == 200


# Accounts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/a.db") as opened:
        yield opened


def test_a_removed_user_is_a_stranger_soon_and_not_at_once(store: Store) -> None:
    clock = Clock()
    accounts = Accounts(store, clock=clock)

    def gate(app: Any) -> AuthMiddleware:
        return AuthMiddleware(app, accounts, BrowserSessions(b"k" * 32))

    store.write(users.put, ADA)
    store.write(users.put, User("ben", "member", None, None))  # has no token, and none fits
    assert ask(gate, authorization="Bearer a").status == 200
    assert asyncio.run(_known(accounts)) == (ADA,)
    store.write(users.remove, "ada")
    clock.now_s += FRESH_S
    assert ask(gate, authorization="Bearer a").status == 200  # nobody asks the database for each request
    clock.now_s += 0.1
    assert ask(gate, authorization="Bearer a").status == 401
    store.write(users.put, ADA)
    assert ask(gate, authorization="Bearer a").status == 401
    accounts.forget()
    assert ask(gate, authorization="Bearer a").status == 200


async def _known(accounts: Accounts) -> Any:
    return await accounts()


class _Broken:
    """A store that is away."""

    def __init__(self) -> None:
        self.asked = 0

    async def read_async(self, question: Any) -> Any:
        self.asked += 1
        raise StoreUnavailable("away; wait.")


def test_who_was_known_a_minute_ago_still_is_while_the_database_is_away(store: Store) -> None:
    clock, broken = Clock(), _Broken()
    store.write(users.put, ADA)
    accounts = Accounts(store, clock=clock)
    assert asyncio.run(_known(accounts)) == (ADA,)
    accounts.store = broken  # type: ignore[assignment]
    clock.now_s += 60.0
    assert asyncio.run(_known(accounts)) == (ADA,)
    clock.now_s += 0.1
    with pytest.raises(StoreUnavailable):
        asyncio.run(_known(accounts))
    assert broken.asked == 2
    with pytest.raises(StoreUnavailable):
        asyncio.run(_known(Accounts(broken)))  # type: ignore[arg-type]


def test_many_requests_at_once_look_up_once(store: Store) -> None:
    clock, asked = Clock(), []
    accounts = Accounts(store, clock=clock)
    real = store.read_async

    async def counted(question: Any) -> Any:
        asked.append(question)
        return await real(question)

    async def all_at_once() -> None:
        await asyncio.gather(*(accounts() for _ in range(10)))

    store.read_async = counted  # type: ignore[method-assign, assignment]
    asyncio.run(all_at_once())
    assert len(asked) == 1


HASH = "A" * 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "holds no accounts"),
        ("eve: {}", "needs token_hash"),
        ("eve: 3", "needs token_hash"),
        (f"eve: {{token_hash: {HASH}, rolle: admin}}", "needs token_hash"),
        ("eve: {token_hash: abc}", "not a SHA-256"),
        (f"eve: {{token_hash: {HASH}a}}", "not a SHA-256"),
        (f"eve: {{token_hash: {'g' * 64}}}", "not a SHA-256"),
        (f"eve: {{token_hash: {HASH}, daily_usd: -1}}", "amount of money"),
        (f"eve: {{token_hash: {HASH}, daily_usd: .inf}}", "amount of money"),
        (f"eve: {{token_hash: {HASH}, daily_usd: much}}", "amount of money"),
        (f"local: {{token_hash: {HASH}}}", "user name"),
    ],
)
def test_a_wrong_file_of_accounts_is_told(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "tokens.yaml").write_text(text)
    with pytest.raises(BadInput, match=words):
        of_file(tmp_path / "tokens.yaml")


def test_a_file_of_accounts(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(f"eve: {{token_hash: {HASH}, daily_usd: 0}}\nada: {{token_hash: {HASH}, role: viewer}}\n")
    eve, ada = of_file(file)
    assert eve == User("eve", "member", 0, HASH.lower())
    assert (ada.role, ada.daily_usd) == ("viewer", None)
    assert of_file(None) == ()
    with pytest.raises(BadInput, match=r"Cannot read the tokens .*gone\.yaml"):
        of_file(tmp_path / "gone.yaml")
    assert merged((ADA, MIA), (ada,)) == (ada, MIA)  # the file's word counts


# The shell


def shell(hosts: tuple[str, ...] = (), origins: tuple[str, ...] = ()) -> Any:
    return lambda app: OriginMiddleware(app, frozenset(hosts), frozenset(origins))


def test_a_service_is_known_by_its_names() -> None:
    known = shell(("localhost", "[::1]", "prudent.example"))
    for host in ("localhost", "LOCALHOST:8080", "prudent.example.", "[::1]:80", "prudent.example:65535"):
        assert ask(known, host=host).status == 200, host
    for host in ("evil.example", "localhost:123456", "localhost:", "xlocalhost", "", "a b", "[::1", "::1"):
        answer = ask(known, host=host)
        assert (answer.status, answer.scope) == (421, None), host
        assert answer.headers["x-frame-options"] == "DENY"
    assert ask(shell(), host="any.example").status == 200
    for host in ("", "a b", "a" * 254, "a/b"):
        assert ask(shell(), host=host).status == 421, host
    assert ask(shell(), host="a" * 253).status == 200


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {}, 200),
        ("POST", {"origin": "http://here:80"}, 200),
        ("POST", {"origin": "HTTP://HERE:80"}, 200),
        ("POST", {"origin": "http://here:81"}, 403),
        ("POST", {"origin": "http://there"}, 403),
        ("POST", {"origin": "null"}, 403),
        ("POST", {"origin": "https://friend"}, 200),
        ("POST", {"origin": "http://here:80", "sec_fetch_site": "cross-site"}, 200),
        ("POST", {"sec_fetch_site": "cross-site"}, 403),
        ("POST", {"sec_fetch_site": "same-site"}, 403),
        ("POST", {"sec_fetch_site": "same-origin"}, 200),
        ("POST", {"sec_fetch_site": "none"}, 200),
        ("DELETE", {"origin": "http://there"}, 403),
        ("GET", {"origin": "http://there"}, 200),
        ("HEAD", {"sec_fetch_site": "cross-site"}, 200),
        ("OPTIONS", {"origin": "http://there"}, 200),
    ],
)
def test_other_sites_change_nothing(method: str, headers: dict[str, str], status: int) -> None:
    answer = ask(shell(origins=("https://friend",)), method, host="here:80", **headers)
    assert answer.status == status
    assert (answer.scope is None) is (status == 403)
    friendly = headers.get("origin") == "https://friend"
    assert (answer.headers.get("access-control-allow-origin") == "https://friend") is friendly
    assert (answer.headers.get("vary") == "Origin") is friendly
    if not friendly:
        asked = {"method": method, "headers": [(b"host", b"here:80")]}
        asked["headers"] += [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]
        assert foreign(asked) is (status == 403)


def test_scripts_of_friends_may_ask_first() -> None:
    first = {"host": "here", "access_control_request_method": "POST"}
    answer = ask(shell(origins=("https://friend",)), "OPTIONS", origin="https://friend", **first)
    assert (answer.status, answer.body, answer.scope) == (204, b"", None)
    assert answer.headers["access-control-allow-origin"] == "https://friend"
    assert answer.headers["access-control-allow-methods"] == "GET, POST"
    wanted = {"authorization", "content-type", "idempotency-key", "last-event-id"}
    assert set(answer.headers["access-control-allow-headers"].split(", ")) == wanted
    assert answer.headers["access-control-max-age"] == "600"
    refused = ask(shell(origins=("https://friend",)), "OPTIONS", origin="https://evil", **first)
    assert (refused.status, refused.scope) == (403, None)
    assert "access-control-allow-origin" not in refused.headers
    assert ask(shell(), "GET", **first).status == 200  # only OPTIONS asks first


def test_headers_that_browsers_heed() -> None:
    page = ask(shell(), path="/runs", host="here").headers
    assert page["content-security-policy"] == PAGES
    assert page["x-app"] == "1"
    assert {name: page[name] for name in page if name not in ("content-security-policy", "x-app")} == {
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-store",
    }
    report = ask(shell(), path="/v1/runs/1/report", host="here").headers
    assert report["content-security-policy"] == REPORTS
    secure = ask(shell(), host="here", scope={"scheme": "https"}).headers
    assert secure["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" not in page


def test_what_the_application_says_itself_is_not_said_twice() -> None:
    def layer(_: Any) -> OriginMiddleware:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            lines = [(b"Cache-Control", b"max-age=60")]
            await send({"type": "http.response.start", "status": 200, "headers": lines})

        return OriginMiddleware(app)

    answer = ask(layer, host="here")
    assert answer.headers["Cache-Control"] == "max-age=60"
    assert "cache-control" not in answer.headers


def test_no_other_protocol_is_spoken() -> None:
    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    async def never(*_: Any) -> Any:
        raise AssertionError

    asyncio.run(OriginMiddleware(never)({"type": "websocket", "headers": []}, never, send))
    assert said == [{"type": "websocket.close", "code": 1008}]


# Bodies


def limited(most_bytes: int = 10) -> Any:
    return lambda app: BodyLimitMiddleware(app, most_bytes)


@pytest.mark.parametrize(
    ("said", "parts", "status"),
    [
        ("10", (b"x" * 10,), 200),
        ("11", (b"x",), 413),
        ("-1", (), 400),
        ("1e3", (), 400),
        ("\xb2", (), 400),
        (None, (b"x" * 10,), 200),
        (None, (b"x" * 5, b"x" * 5), 200),
        (None, (b"x" * 5, b"x" * 6), 413),
        (None, (b"x" * 11,), 413),
    ],
)
def test_bodies_within_their_size(said: str | None, parts: tuple[bytes, ...], status: int) -> None:
    answer = ask(limited(), "POST", parts=parts, **({} if said is None else {"content_length": said}))
    assert answer.status == status
    if status == 200:
        assert answer.got == b"".join(parts)
    if status == 413:
        assert answer.headers["connection"] == "close"
        assert answer.detail == "The body is larger than 1e-05 MB; send less or name a file."


def test_an_answer_made_of_half_a_body_is_replaced() -> None:
    def layer(swallows: bool, early: bool = False) -> Any:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if early:
                await send({"type": "http.response.start", "status": 202, "headers": []})
            try:
                await receive()
                await receive()
            except Exception as error:
                if not swallows:
                    raise ValueError("half a body") from error
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def late(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 202, "headers": []})
            await receive()

        return lambda _: BodyLimitMiddleware(late if early else app, 3)

    for swallows in (True, False):
        answer = ask(layer(swallows), "POST", parts=(b"12", b"34"))
        assert answer.status == 413
    assert ask(layer(True, early=True), "POST", parts=(b"1234",)).status == 202  # it was said before


def test_errors_of_the_application_are_its_own() -> None:
    def layer(_: Any) -> BodyLimitMiddleware:
        async def app(*_: Any) -> None:
            raise ValueError("its own")

        return BodyLimitMiddleware(app, 3)

    with pytest.raises(ValueError, match="its own"):
        ask(layer, "POST", parts=(b"1",))


def test_the_time_of_a_body_ends_with_it() -> None:
    """Who listens for the end of a connection after the body waits as long as they like."""
    waits: list[float] = []

    def layer(_: Any) -> BodyLimitMiddleware:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            loop = asyncio.get_running_loop()
            now_s = loop.time()
            loop.time = lambda: now_s + 7200  # type: ignore[method-assign]
            waits.append(len((await receive())["body"]))
            await send({"type": "http.response.start", "status": 200, "headers": []})

        return BodyLimitMiddleware(app, 3, longest_s=3600)

    assert ask(layer, "POST", parts=(b"1",)).status == 200
    assert waits == [0]


# All of it


def test_under_which_names_a_service_is_known(tmp_path: Path) -> None:
    loopback = {"localhost", "127.0.0.1", "[::1]"}
    for settings, names in (
        (Settings(tmp_path), loopback),
        (Settings(tmp_path, host="::1"), loopback),
        (Settings(tmp_path, host="Box.example"), loopback | {"box.example"}),
        (Settings(tmp_path, host="2001:db8::1"), loopback | {"[2001:db8::1]"}),
        (Settings(tmp_path, host="0.0.0.0"), set()),
        (Settings(tmp_path, host="::"), set()),
        (Settings(tmp_path, host=""), set()),
        (Settings(tmp_path, host="0.0.0.0", trusted_hosts=("A.example",)), loopback | {"a.example"}),
        (Settings(tmp_path, trusted_hosts=("a.example",)), loopback | {"a.example"}),
    ):
        assert protection.hosts_of(settings) == names, settings
    assert protection.is_local_only(Settings(tmp_path))
    assert protection.is_local_only(Settings(tmp_path, trusted_hosts=("localhost",)))
    assert not protection.is_local_only(Settings(tmp_path, trusted_hosts=("a.example",)))
    assert not protection.is_local_only(Settings(tmp_path, host="0.0.0.0"))


def test_layers_are_put_around_in_order_with_what_the_operator_set(tmp_path: Path, store: Store) -> None:
    """The outermost is added last."""
    added: list[tuple[type, dict[str, Any]]] = []

    class App:
        def add_middleware(self, middleware_class: type, *args: object, **kwargs: object) -> None:
            added.append((middleware_class, dict(kwargs)))

    settings = Settings(tmp_path, rate_per_s=5.0, body_mb=0.5, cors_origins=("https://friend",))
    sessions = protection.install(App(), settings, store)
    (gate, at_gate), (body, at_body), (outer, at_shell) = added
    assert (gate, body, outer) == (AuthMiddleware, BodyLimitMiddleware, OriginMiddleware)
    assert at_gate["sessions"] is sessions
    assert sessions.key == (tmp_path / "session.key").read_bytes()
    assert (at_gate["rate"].per_s, at_gate["rate"].burst) == (5.0, 20.0)
    assert at_body == {"most_bytes": 500_000}
    assert at_shell == {"hosts": protection.hosts_of(settings), "origins": frozenset({"https://friend"})}
    protection.install(App(), replace(settings, rate_per_s=30.0, host="0.0.0.0"), store)
    assert added[3][1]["rate"].burst == 60.0
    AccessMode(tmp_path).choose(True)
    assert (at_gate["open"](()), added[3][1]["open"](())) == (True, False)


def test_who_may_be_reached_by_others(tmp_path: Path, store: Store) -> None:
    named = Settings(tmp_path, trusted_hosts=("prudent.example",))
    for settings, place in ((named, "prudent.example"), (Settings(tmp_path, host="10.0.0.1"), "10.0.0.1")):
        with pytest.raises(BadInput, match=f'could reach the service at "{place}"'):
            protection.check_access(settings, store)
    store.write(users.put, User("ben", "member", None, None))  # without a token nobody gets in
    with pytest.raises(BadInput, match="nobody has a token"):
        protection.check_access(named, store)
    listed = replace(named, tokens=tmp_path / "tokens.yaml")
    (tmp_path / "tokens.yaml").write_text(f"eve: {{token_hash: {HASH}}}")
    protection.check_access(listed, store)
    protection.check_access(Settings(tmp_path), store)
