"""A corpus of places that a request must not reach: every one is refused."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput, RunFailed
from prudent.service.security.data_locations import check_location, policy_of, within
from prudent.service.security.tokens import AccessMode
from prudent.service.settings import Settings
from prudent.service.store import runs
from prudent.service.store.store import Store
from prudent.service.web.app import create_app
from prudent.training.data.fetch import fetch, is_public

CLIMBS = [
    "../secret", "a/../../secret", "/etc/passwd", "/etc/../etc/passwd", "./../secret", "..", "a/..",
    "~/secret", "~root/.ssh/id_rsa", "..\\secret", "..%2fsecret/../..", "//etc/passwd",
    "/proc/self/environ", "/dev/zero", "a\0b", "\0", "", "a\nb", "a\x7f", "x" * 5000, "link/secret", "link",
    "deep/link2/secret", "file:///etc/passwd", "file:/etc/passwd", "FILE:///etc/passwd",
    "file://localhost/etc/passwd", "file:///%2e%2e/etc/passwd", "file:%2fetc%2fpasswd",
    "file://..%2f..%2fetc/passwd", "data\\..\\..\\secret", "/", "/root", "./",
]  # fmt: skip
SCHEMES = [
    "ftp://host/a.csv", "gopher://host/1", "dict://host:11211/", "ldap://host/", "jar:http://host!/",
    "data:,1", "javascript:alert(1)", "hdfs://host/a", "ssh://host/", "smb://host/share", "://host",
    "http:/host", "http:", "s3:bucket/key", "s3://", "s3://bucket", "s3:///key", "s3://UPPER/key",
    "s3://a/key", "s3://a..b/key", "s3://arn:aws:s3:us-east-1:1:accesspoint/x/key",
    "s3://169.254.169.254@x/key", "s3://b?x/key", "php://input", "expect://id", "unix:///run/docker.sock",
    "http://", "http:///path", "https://user:word@host/a", "http://host\\@127.0.0.1/", "http://host /",
    "http://host:99999/", "http://host:0/", "http://[::1", "http://[x]/", "http://user@127.0.0.1/",
    "file+http://host/", "netdoc:///etc/passwd",
]  # fmt: skip
PRIVATE = [
    "127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0x7f.1", "0x7f.0.0.1",
    "0177.0.0.1", "017700000001", "0177.1", "127.0.0.1.", "localhost", "a.localhost", "LOCALHOST",
    "10.0.0.1", "10.1", "0xa000001", "172.16.0.1", "172.31.255.254", "192.168.0.1", "3232235521",
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xA9.0xFE.0xA9.0xFE",
    "169.254.43518", "100.64.0.1", "100.127.255.255", "100.100.100.200", "198.18.0.1", "192.0.0.192",
    "192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "168.63.129.16", "192.88.99.1", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::127.0.0.1]", "[fe80::1]",
    "[fe80::1%25lo]", "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[64:ff9b::7f00:1]",
    "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::]",
    "[2001:0:0:0:0:0:80ff:fffe]", "[2001:db8::1]", "[ff02::1]", "[100::1]", "[::ffff:0:127.0.0.1]",
    "[0000::ffff:10.0.0.1]",
]  # fmt: skip
SERVICE = policy_of()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("x")
    root = tmp_path / "data"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "a.csv").write_text("a,b\n1,2\n")
    (root / "link").symlink_to(tmp_path)
    (root / "deep" / "link2").symlink_to("../..")
    return root


@pytest.mark.parametrize("place", ["", None, 3, "a" * 4097])
def test_data_have_a_place(place: Any) -> None:
    with pytest.raises(BadInput, match="1 to 4096 characters"):
        check_location(place, policy_of())


@pytest.mark.parametrize("path", CLIMBS)
def test_no_path_leaves_its_folder(path: str, folder: Path) -> None:
    policy = policy_of(roots=[folder])
    if path != "./":  # the folder itself is not a way out
        with pytest.raises(BadInput):
            check_location(path, policy)
    if "\0" not in path:
        try:
            found = check_location(f"{folder}/{path}", policy)
        except BadInput:
            return
        assert Path(found).resolve().is_relative_to(folder)
    with pytest.raises(BadInput):
        check_location(path, SERVICE)


def test_paths_below_an_allowed_folder_are_read(folder: Path, tmp_path: Path) -> None:
    policy = policy_of(roots=[folder, tmp_path / "other"])
    wanted = folder / "deep" / "a.csv"
    for place in ("deep/a.csv", str(wanted), wanted.as_uri(), f"file:{wanted}", "./deep//a.csv"):
        assert check_location(place, policy) == str(wanted)
    assert within("new.csv", [folder]) == folder / "new.csv"
    with pytest.raises(BadInput, match="none may be read"):
        within("deep/a.csv", [])


@given(st.text(max_size=60))
def test_whatever_is_said_stays_inside(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    root = tmp_path_factory.getbasetemp().resolve() / "inside"
    root.mkdir(exist_ok=True)
    try:
        found = within(path, [root])
    except BadInput:
        return
    assert os.path.commonpath([os.path.realpath(found), root]) == str(root)


@pytest.mark.parametrize("place", SCHEMES)
def test_only_http_and_s3_with_a_host_are_addresses(place: str) -> None:
    with pytest.raises(BadInput):
        check_location(place, SERVICE)


@pytest.mark.parametrize("host", PRIVATE)
def test_no_spelling_of_a_private_address_is_taken(host: str) -> None:
    for scheme in ("http", "https", "HTTP"):
        with pytest.raises(BadInput, match="private network"):
            check_location(f"{scheme}://{host}:8080/data.csv", SERVICE)


@pytest.mark.parametrize("host", PRIVATE)
def test_no_spelling_of_a_private_address_is_connected_to(host: str, tmp_path: Path) -> None:
    """Also when it was not seen with the request: by a redirect, or a name that leads there."""
    with pytest.raises((BadInput, RunFailed), match=r"private network|not known"):
        fetch(f"http://{host}:9/data.csv", tmp_path / "got", SERVICE)


@pytest.mark.parametrize(
    "place",
    [
        "https://example.org/a.csv?b=c",
        "http://93.184.216.34:8080/a",
        "s3://bucket/a/b.csv",
        "s3a://bucket/k",
        "https://[2606:2800:220:1::1]/a",
        "HTTPS://Example.ORG/x",
    ],
)
def test_public_places_are_taken(place: str) -> None:
    assert check_location(place, SERVICE).partition("://")[2] == place.partition("://")[2]


def test_what_the_operator_allows_is_read() -> None:
    policy = policy_of(networks=["10.1.0.0/16"], buckets=["ours"])
    assert check_location("http://10.1.2.3/a.csv", policy)
    assert check_location("s3://ours/a.csv", policy)
    for place in ("http://10.2.2.3/a.csv", "http://127.0.0.1/", "s3://others/a.csv"):
        with pytest.raises(BadInput):
            check_location(place, policy)
    with pytest.raises(BadInput, match="not a network"):
        policy_of(networks=["10.1"])


def test_a_request_that_names_any_of_them_is_refused_by_rest(
    tmp_path: Path, serving: Callable[[FastAPI], AbstractContextManager[httpx.Client]]
) -> None:
    """Everything above once more, from outside: as the data of a request, with the reason at its place."""
    settings = Settings(tmp_path / "home", rate_per_s=1e6)
    settings.create()
    AccessMode(settings.home).choose(True)
    (settings.home / "data" / "link").symlink_to(tmp_path)
    (tmp_path / "secret").write_text("x")
    places = [*CLIMBS, *SCHEMES, *(f"http://{host}/data.csv" for host in PRIVATE)]
    with Store(settings.database) as store, serving(create_app(settings, store)) as client:
        for place in places:
            document = {"domain": "regression", "dataset": {"path": place, "target": "y"}}
            answer = client.post("/v1/runs/train", json=document)
            assert answer.status_code == 422, place[:99]
            assert "dataset.path" in [error["path"] for error in answer.json()["errors"]], place[:99]
        assert store.read(runs.counts)["queued"] == 0


@given(st.integers(0, 2**32 - 1))
def test_a_wrapped_address_is_as_public_as_what_it_wraps(number: int) -> None:
    plain = socket.inet_ntoa(number.to_bytes(4, "big"))
    for wrapped in (f"::ffff:{plain}", f"64:ff9b::{plain}"):
        assert is_public(wrapped) is is_public(plain)


class _Redirects(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.path[1:])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *said: Any) -> None:
        pass


@pytest.fixture(scope="module")
def redirecting() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.2", 0), _Redirects)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.2:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", PRIVATE)
def test_no_redirect_leads_inside(host: str, redirecting: str, tmp_path: Path) -> None:
    """The first host is allowed, as a public one would be; where it sends us is not."""
    policy = replace(SERVICE, networks=("127.0.0.2/32",))
    with pytest.raises((BadInput, RunFailed), match=r"private network|not known"):
        fetch(f"{redirecting}http://{host}:9/", tmp_path / "got", policy)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://host/", "gopher://127.0.0.1:9/"])
def test_no_redirect_changes_the_protocol(target: str, redirecting: str, tmp_path: Path) -> None:
    policy = replace(SERVICE, networks=("127.0.0.2/32",))
    with pytest.raises(BadInput, match="is not read here"):
        fetch(f"{redirecting}{target}", tmp_path / "got", policy)


def test_a_name_that_answers_differently_the_second_time_is_looked_up_once(
    redirecting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: public when checked, private when connected to."""
    answers = iter(["93.184.216.34", "127.0.0.2"])
    asked: list[str] = []

    def lookup(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    reached: list[str] = []

    def connect(place: tuple[str, int], timeout: float) -> socket.socket:
        reached.append(place[0])
        raise OSError("nobody there")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(RunFailed):
        fetch("http://rebinding.example/", tmp_path / "got", SERVICE)
    assert reached == ["93.184.216.34"]  # the very address that was checked
    with pytest.raises(BadInput, match="private network"):
        fetch("http://rebinding.example/", tmp_path / "got", SERVICE)
    assert asked == ["rebinding.example"] * 2


def test_one_private_address_among_public_ones_is_enough_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 80)) for host in ("93.184.216.34", "10.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    with pytest.raises(BadInput, match="private network"):
        fetch("http://mixed.example/", tmp_path / "got", SERVICE)
