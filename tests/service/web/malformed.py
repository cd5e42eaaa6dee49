"""Requests that are wrong or odd, made by hypothesis and schemathesis, as the very bytes that are sent.

`benchmarks/service_malformed.py` sends them to a real server: 10,000 by default, some in
`test_malformed.py`. A call that is surely wrong must be refused (4xx); whatever else is sent, no answer is an
error of ours (5xx).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote_from_bytes, urlsplit

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

DAX = '<adag name="a"><job id="ID1" name="p" runtime="3"/></adag>'
DOCUMENTS: dict[str, dict[str, Any]] = {
    "train": {
        "name": "cars",
        "domain": "classification",
        "dataset": {"path": "https://example.org/cars.csv", "target": "kind", "format": "csv"},
        "methods": [{"algorithm": "random-forest", "hyperparameters": {"numTrees": [10, 20]}}],
        "budget": "$2 or 20 trials",
        "metric": "mcc",
        "emailAddress": "ada@example.org",
        "seed": 3,
    },
    "tune": {
        "name": "job",
        "table": {"csv": "vm,n,time_s,price_usd_per_h\na,1,9,0.1\na,2,5,0.2\n"},
        "parameters": ["vm", "n"],
        "goal": "minimise cost_usd subject to time_s <= 5 min",
        "budget": "$1",
        "strategy": "random",
        "max_trials": 4,
        "seed": 1,
    },
    "schedule": {
        "workflow": DAX,
        "fleet": "2*m3.medium",
        "world": {"bandwidth_mb_s": 15},
        "scheduler": "heft",
        "options": {},
        "seed": 0,
        "slots": "vm",
        "execute": {"replay": 0.01, "retries": 2},
    },
}
COMMAND: dict[str, Any] = {
    "name": "command",
    "command": "echo {n}",
    "parameters": {"n": [1, 2], "m": {"from": 1, "to": 9}},
    "environment": {"KEY": "value"},
    "goal": "minimise time_s",
    "measures": ["score"],
    "max_trials": 2,
}
"""For those who may run commands; others are refused before it is looked at."""
ROWS = {"rows": [{"age": 30, "colour": "red", "weight": 2.5}, [1, "green", None]], "probabilities": True}
_JSON = b"application/json"


@dataclass(frozen=True)
class Known:
    """What there is: a run that succeeded, one that waits, and a model."""

    done: str
    waiting: str
    model: str


@dataclass(frozen=True)
class Call:
    """A request; `wrong` if it must be refused."""

    method: bytes
    target: bytes
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ((b"Content-Type", _JSON),)
    wrong: bool = False
    about: str = ""

    def with_token(self, token: str) -> Call:
        """The same from who has this token, unless it says who it is from; without one, from a stranger."""
        if not token or any(name.lower() == b"authorization" for name, _ in self.headers):
            return self
        return replace(self, headers=(*self.headers, (b"Authorization", f"Bearer {token}".encode())))

    def raw(self) -> bytes:
        said = {name.lower() for name, _ in self.headers}
        lines = [b"%s: %s" % pair for pair in self.headers]
        if b"host" not in said:
            lines.append(b"Host: 127.0.0.1")
        if not said & {b"content-length", b"transfer-encoding"}:
            lines.append(b"Content-Length: %d" % len(self.body))
        head = b"%s %s HTTP/1.1\r\n%s\r\n" % (self.method, self.target, b"\r\n".join(lines))
        return head + b"Connection: close\r\n\r\n" + self.body


# By schemathesis, of what the service says about itself


def of_schema(description: dict[str, Any], known: Known) -> SearchStrategy[Call]:
    """Calls that fit the description, and calls that do not; ids are invented, or some there are."""
    import schemathesis
    from schemathesis import GenerationMode

    found = schemathesis.openapi.from_dict(description).get_all_operations()
    cases = [
        operation.ok().as_strategy(generation_mode=mode) for operation in found for mode in GenerationMode
    ]
    return st.builds(_of_case, st.one_of(cases), st.sampled_from((known.done, "")), st.just(known.model))


def _of_case(case: Any, run: str, model: str) -> Call:
    import requests

    if run and case.path_parameters:
        real = {"run_id": run, "model_id": model}
        case.path_parameters = {
            name: real.get(name, value) for name, value in dict(case.path_parameters).items()
        }
    said = case.as_transport_kwargs(base_url="http://127.0.0.1")
    said.pop("cookies", None)
    try:
        made = requests.Request(**said).prepare()
    except (ValueError, requests.RequestException):  # what that client would not send
        return Call(b"GET", b"/v1/runs/%00", about="unsendable")
    parts = urlsplit(made.url or "/")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    body = made.body if isinstance(made.body, bytes) else (made.body or "").encode()
    headers = tuple(
        (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("latin-1"))
        for name, value in made.headers.items()
        if name.lower() not in ("connection", "content-length", "transfer-encoding")
    )
    return Call(case.method.upper().encode(), target.encode(), body, headers, about="schema")


# By hypothesis, of documents that were right


def of_corpus(known: Known) -> SearchStrategy[Call]:
    """Broken bodies, odd values, odd addresses and odd headers."""
    places = st.sampled_from(
        [(f"/v1/runs/{kind}".encode(), json.dumps(said).encode()) for kind, said in DOCUMENTS.items()]
        + [
            (b"/v1/runs/tune", json.dumps(COMMAND).encode()),
            (f"/v1/models/{known.model}/predict".encode(), json.dumps(ROWS).encode()),
        ]
    )
    # Most often bodies that are no JSON, each broken in another way.
    return st.one_of(
        *[st.builds(_broken, places, st.integers(0, 2**20), st.just(how)) for how in _BREAKS],
        *[
            st.builds(_twisted, places, st.integers(0, 2**20), _values, st.booleans()),
            _twisted_twice(places),
            _odd_targets(known),
            st.builds(_dressed, places, st.lists(_headers, max_size=4)),
        ]
        * 4,
    )


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**63), 2**64, 10**30, 10**400, -1, 0, 10**4200, 1e308, -1e308, 5e-324, -0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        [
            *(
                "",
                "\0",
                "a\0b",
                "\ud800",
                "\udfff\ud800",
                "\u202e",
                "٣",
                "x" * 70_000,
                "%s%n",
                "$(id)",
                "{{7*7}}",
            ),
            *("../../etc/passwd", "/dev/zero", "file:///etc/passwd", "http://127.0.0.1/", "s3://", "<adag>"),
            *(
                "minimise",
                "minimise time_s s.t. (((",
                "$1e999",
                "-5 trials",
                "nan",
                "inf",
                "1e400 min",
                "0 trials",
            ),
            "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><adag>&b;</adag>",
        ]
    ),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_CONSTANTS = b"NaN Infinity -Infinity 1e999 -1e999 nan 0x10 01 +1 .5 1. undefined".split()
_NO_UTF8 = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80")
_NO_OBJECTS = (b"", b" ", b"null", b"true", b"3", b'"a"', b"[]", b"[{}]", b"{}x")
_BEHIND = (b"}", b"x", b"{}", b"\0", b",")


def _nested(opening: bytes, closing: bytes, number: int) -> bytes:
    depth = 1000 * 2 ** (number % 8)
    return opening * depth + b"1" + closing * depth


def _replaced(body: bytes, number: int, text: bytes) -> bytes:
    """The document with one of its values replaced by a text that need not be JSON."""
    said = json.loads(body)
    places, mark = list(_paths(said)), "the-mark-of-a-value"
    marked = json.dumps(_set(said, places[number % len(places)], mark)).encode()
    return marked.replace(f'"{mark}"'.encode(), text)


def _doubled(body: bytes, number: int) -> bytes:
    """One key a second time, with another value."""
    keys = list(json.loads(body))
    return b'{"%s": %d, ' % (keys[number % len(keys)].encode(), number) + body[1:]


_BREAKS: dict[str, Callable[[bytes, int], bytes]] = {
    "truncated": lambda body, number: body[: number % len(body)],
    "constant": lambda body, number: _replaced(body, number, _CONSTANTS[number % len(_CONSTANTS)]),
    "digits": lambda body, number: _replaced(body, number, b"9" * (4301 + number % 5000)),
    "deep lists": lambda body, number: _replaced(body, number, _nested(b"[", b"]", number)),
    "deep objects": lambda body, number: _nested(b'{"a":', b"}", number),
    "unclosed": lambda body, number: b"[" * (1 + number % 100_000),
    "twice": _doubled,
    "surrogate": lambda body, number: _replaced(body, number, b'"\\ud8%02x"' % (number % 256)),
    "surrogate key": lambda body, number: b'{"\\udc00": 1, ' + body[1:],
    "no UTF-8": lambda body, number: _replaced(body, number, b'"%s"' % _NO_UTF8[number % 4]),
    "control": lambda body, number: _replaced(body, number, b'"%c"' % (number % 32)),
    "rubbish behind": lambda body, number: body + _BEHIND[number % len(_BEHIND)],
    "no object": lambda body, number: _NO_OBJECTS[number % len(_NO_OBJECTS)],
    "quotes": lambda body, number: body.replace(b'"', b"'"),
    "commas": lambda body, number: body[:-1] + b",}",
    "comment": lambda body, number: b"// a request\n" + body,
    "too large": lambda body, number: body[:-1] + b" " * 8_100_000 + b"}",
    "UTF-16": lambda body, number: body.decode().encode("utf-16")[: -1 - number % 2],
}


def _broken(place: tuple[bytes, bytes], number: int, how: str) -> Call:
    return Call(b"POST", place[0], _BREAKS[how](place[1], number), wrong=True, about=how)


def _twisted(place: tuple[bytes, bytes], number: int, value: Any, extra: bool) -> Call:
    """Another value somewhere, or one more key there."""
    said = json.loads(place[1])
    places = list(_paths(said))
    said = _set(said, places[number % len(places)], value)
    if extra and isinstance(said, dict):
        said[json.dumps(value)[:30]] = value
    return Call(b"POST", place[0], _text(said), about="value")


def _twisted_twice(places: SearchStrategy[tuple[bytes, bytes]]) -> SearchStrategy[Call]:
    def again(call: Call, number: int, value: Any) -> Call:
        return _twisted((call.target, call.body), number, value, False)

    once = st.builds(_twisted, places, st.integers(0, 2**20), _values, st.just(False))
    return st.builds(again, once.filter(lambda call: call.body[:1] == b"{"), st.integers(0, 2**20), _values)


def _text(said: Any) -> bytes:
    return json.dumps(said).encode()


def _paths(said: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    for key, value in inner:
        yield (*here, key)
        yield from _paths(value, (*here, key))


def _set(said: Any, path: tuple[Any, ...], value: Any) -> Any:
    said = copy.deepcopy(said)
    at = said
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return said


_IDS = [
    "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "%ff%fe", "%ed%a0%80", "%", "%zz", "null", "-1", "-",
    "--", "%20", "live", "٣", "01m7h3z93cdv%00", "*", "..", "%0d%0aSet-Cookie:%20a=b", "'%20OR%201=1--",
    "%f0%9f%92%a9", "a" * 9000,
]  # fmt: skip
_QUERIES = [
    "limit=%00", "limit=1e3", "limit=-1", "limit=٣", "limit=", "limit=1&limit=x", "limit[]=1",
    "after=%00", "after=nan_x", "after=inf_x", "after=-inf_", "after=1e999_", "after=_", "after=1_%00",
    "after=1_%ff", "user=%00", "user=%ff", "user=%ed%a0%80", "kind=%ff", "status=%00",
    "status=queued%00", "priority=1e9", "priority=٣", "format=exe", "format=%00", "&&&=%", "%",
    "limit=" + "9" * 400, "after=" + "9" * 100, "user=" + "u" * 129, "priority=" + "9" * 5000,
    "a" * 3000,
]  # fmt: skip
_PATHS = [
    "/v1/runs", "/v1/models", "/runs", "/models", "/runs/live", "/metrics", "/machines", "/money",
    "/docs", "/session", "/sign-in",
]  # fmt: skip
_ENDINGS = [
    "", "/events", "/trials", "/result", "/report", "/download", "/cancel", "/predict", "/live", "/",
]  # fmt: skip
_METHODS = [b"GET"] * 6 + b"POST HEAD PUT DELETE OPTIONS PATCH TRACE BREW".split()


def _odd_targets(known: Known) -> SearchStrategy[Call]:
    ids = st.sampled_from([known.done, known.model, *(quote_from_bytes(i.encode(), "%") for i in _IDS)])
    text = st.binary(max_size=20).map(quote_from_bytes)
    parents = st.sampled_from(["/v1/runs", "/v1/models", "/runs", "/models", "/submit", "/static", ""])
    paths = st.sampled_from(_PATHS) | st.builds(
        "{}/{}{}".format, parents, ids | text, st.sampled_from(_ENDINGS)
    )
    queries = st.sampled_from([quote_from_bytes(query.encode(), "%=&[]") for query in _QUERIES]) | text

    def made(method: bytes, path: str, query: list[str], body: bytes) -> Call:
        target = path + ("?" + "&".join(query) if query else "")
        return Call(method, target.encode(), body, about="address")

    bodies = st.sampled_from([b"", b"{}", b"\xff"])
    return st.builds(made, st.sampled_from(_METHODS), paths, st.lists(queries, max_size=3), bodies)


_HEADERS: dict[bytes, list[bytes]] = {
    b"Content-Type": [
        *b"text/plain application/xml multipart/form-data \xff application/x-www-form-urlencoded".split(),
        *(
            b"",
            b"multipart/form-data; boundary=x",
            b"application/json; charset=utf-16",
            b"a/b;c=" + b"d" * 5000,
        ),
    ],
    b"Idempotency-Key": [b"", b"k" * 256, b"\xff", b"a\tb", b"\xc3\xa9"],
    b"Authorization": [b"Bearer", b"Bearer \xff", b"Basic eA==", b"Bearer " + b"t" * 5000],
    b"Cookie": [
        *b'prudent_session=a.b.c.d prudent_session=\xff prudent_session="\\777" prudent_session'.split(),
        *b"prudent_session=YQ.99999999999.x.y prudent_session=YQ.\xb2.x.y".split(),
        b"prudent_session=" + b"x" * 5000,
    ],
    b"Host": [b"", b"evil.example", b"127.0.0.1:99999", b"[::1", b"\xff", b"a" * 300],
    b"Origin": [b"null", b"http://evil.example", b"\xff", b"http://"],
    b"Content-Length": [b"-1", b"1e3", b"0x10", b"", b"9" * 30, b"\xb2", b"3"],
    b"Transfer-Encoding": [b"chunked", b"gzip", b"identity", b"x"],
    b"Content-Encoding": [b"gzip", b"br", b"none"],
    b"Expect": [b"100-continue", b"the unexpected"],
    b"Last-Event-ID": [b"-1", b"9" * 21, b"\xb2", b"x"],
    b"Range": [b"bytes=9-1", b"bytes=-", b"lines=1"],
    b"X-CSRF-Token": [b"", b"\xff"],
    b"X-Forwarded-For": [b"127.0.0.1", b"\xff"],
    b"Upgrade": [b"websocket", b"h2c"],
}
_FREE = set(_HEADERS) - {b"Content-Length"}  # one that promises more is waited for
_any = st.binary(max_size=40).map(lambda text: bytes(code for code in text if code >= 32 and code != 127))
_headers = st.sampled_from(list(_HEADERS)).flatmap(
    lambda name: st.tuples(
        st.just(name), st.sampled_from(_HEADERS[name]) | (_any if name in _FREE else st.nothing())
    )
)


def _dressed(place: tuple[bytes, bytes], headers: list[tuple[bytes, bytes]]) -> Call:
    return Call(b"POST", place[0], place[1], tuple(headers), about="headers")
