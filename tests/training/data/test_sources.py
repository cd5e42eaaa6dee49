"""Web addresses are read within caps and only from where the policy allows; buckets by a real client."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput, RunFailed
from prudent.training.data import fetch as fetching
from prudent.training.data.fetch import UNRESTRICTED, AccessPolicy, fetch, is_public, restrict
from prudent.training.data.reading import read_dataset
from prudent.training.data.sources import local_parts

CSV = b"a,label\n1,2\n3,4\n"
STRICT = AccessPolicy(private=False, schemes=frozenset({"http", "https"}))


class _Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        what = getattr(self, "_" + self.path.strip("/").split("?")[0].partition(".")[0], None)
        if what is None:
            self.send_error(404)
        else:
            what()

    def log_message(self, *said: Any) -> None:
        pass

    def _answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _data(self) -> None:
        self._answer(CSV)

    def _moved(self) -> None:
        self._answer(b"", 302, Location="/data.csv")

    def _loop(self) -> None:
        self._answer(b"", 301, Location="/loop")

    def _elsewhere(self) -> None:
        self._answer(b"", 302, Location=Path("/etc/passwd").as_uri())

    def _packed(self) -> None:
        self._answer(CSV, Content_Encoding="gzip")

    def _endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"1,2\n" * 10_000)
        except OSError:
            self.close_connection = True

    def _drip(self) -> None:
        """A byte now and then: no single read is slow."""
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(2000):  # all of it would be read without an end to patience
                self.wfile.write(b"1")
                time.sleep(0.05)
        except OSError:
            pass
        self.close_connection = True

    def _short(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(CSV)
        self.close_connection = True

    def _large(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(10**12))
        self.end_headers()
        self.close_connection = True


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_data_are_read_from_the_web(site: str, tmp_path: Path) -> None:
    for page in ("data.csv", "data", "data.csv?token=1", "moved"):
        assert len(read_dataset(f"{site}/{page}", cache=tmp_path)) == 2


@pytest.mark.parametrize(
    ("page", "kind", "message"),
    [
        ("nothing", RunFailed, "answers 404"),
        ("loop", RunFailed, "redirects more than 5 times"),
        ("elsewhere", BadInput, "is not read here"),
        ("packed", RunFailed, "sent compressed"),
        ("short", RunFailed, r"ended \d+ bytes early|Cannot read"),
        ("endless", BadInput, "larger than the 2 MB"),
        ("large", BadInput, "larger than the 2 MB"),
        ("drip", RunFailed, r"took longer than 0\.6 s"),
    ],
)
def test_what_goes_wrong_is_told_and_leaves_nothing(
    page: str, kind: type[Exception], message: str, site: str, tmp_path: Path
) -> None:
    policy = replace(UNRESTRICTED, largest_mb=2, longest_s=0.6 if page == "drip" else 120)
    with pytest.raises(kind, match=message):
        fetch(f"{site}/{page}", tmp_path / "got", policy)
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_does_not_answer_or_does_not_exist(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    with pytest.raises(RunFailed, match="Cannot read"):
        fetch(f"http://127.0.0.1:{port}/x", tmp_path / "got")
    with pytest.raises(RunFailed, match="is not known"):
        fetch("http://no-such-host.invalid/x", tmp_path / "got")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"]
)
def test_a_strict_policy_reaches_no_private_address(host: str, site: str, tmp_path: Path) -> None:
    port = site.rsplit(":", 1)[1]
    with pytest.raises(BadInput, match="private network"):
        fetch(f"http://{host}:{port}/data.csv", tmp_path / "got", STRICT)


def test_a_redirect_inwards_is_refused(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first host counts as public here; what it redirects to is checked all the same."""
    port = int(site.rsplit(":", 1)[1])
    real = socket.create_connection
    looked_up = {"public.example": "93.184.216.34"}

    def lookup(host: str, *said: Any, **more: Any) -> Any:
        address = looked_up.get(host, host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def connect(where: tuple[str, int], *said: Any, **more: Any) -> socket.socket:
        assert where[0] == "93.184.216.34"  # nothing else may be connected to
        return real(("127.0.0.1", port), *said, **more)

    def inwards(page: _Pages) -> None:
        page._answer(b"", 302, Location=f"http://127.0.0.1:{port}/data.csv")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(_Pages, "_inwards", inwards, raising=False)
    assert fetch("http://public.example/data.csv", tmp_path / "got", STRICT).read_bytes() == CSV
    with pytest.raises(BadInput, match="private network"):
        fetch("http://public.example/inwards", tmp_path / "other", STRICT)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("0.0.0.0", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::10.0.0.1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ftp://host/data.csv", "ftp is not a place for data"),
        ("http:///data.csv", "names no host"),
        ("http://user:word@host/data.csv", "has a user name"),
        ("http://host/a b.csv", "has spaces"),
        ("http://host:99999/x", "not a web address"),
        ("s3://bucket", "names no file"),
    ],
)
def test_wrong_addresses(address: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        read_dataset(address, cache=tmp_path)
    assert "word" not in str(caught.value)


@pytest.fixture
def unrestricted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The restrictions of a test end with it."""
    monkeypatch.setattr(fetching, "_in_force", None)


def test_a_policy_keeps_local_files_within_its_folders(unrestricted: None, tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "data.csv").write_bytes(CSV)
    restrict(replace(UNRESTRICTED, roots=(inside,)))
    assert local_parts(inside / "data.csv", tmp_path / "c")
    (inside / "link.csv").symlink_to(outside / "data.csv")
    for path in (outside / "data.csv", inside / ".." / "out" / "data.csv", inside / "link.csv", inside):
        with pytest.raises(BadInput, match="outside the folders"):
            local_parts(path, tmp_path / "c")
    restrict(STRICT)
    with pytest.raises(BadInput, match="file is not a place for data"):
        local_parts(inside / "data.csv", tmp_path / "c")


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """A bucket of a real S3 server on this machine."""
    boto3 = pytest.importorskip("boto3")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    patch = pytest.MonkeyPatch()
    address = f"http://127.0.0.1:{server._server.server_address[1]}"
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="data")
    yield client
    patch.undo()
    server.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_buckets(bucket: Any, unrestricted: None, tmp_path: Path) -> None:
    bucket.put_object(Bucket="data", Key="one/data.csv", Body=CSV)
    for number in range(3):
        bucket.put_object(Bucket="data", Key=f"many/part-{number}.csv", Body=CSV)
    bucket.put_object(Bucket="data", Key="many/_SUCCESS", Body=b"")
    assert len(read_dataset("s3://data/one/data.csv", cache=tmp_path)) == 2
    assert len(read_dataset("s3a://data/one/data.csv", cache=tmp_path)) == 2
    assert len(read_dataset("s3://data/many/", cache=tmp_path)) == 6
    with pytest.raises(BadInput, match="nothing at"):
        read_dataset("s3://data/none.csv", cache=tmp_path)
    with pytest.raises((BadInput, RunFailed), match="s3://other/x"):
        read_dataset("s3://other/x.csv", cache=tmp_path)
    restrict(replace(UNRESTRICTED, largest_mb=0.00001))
    with pytest.raises(BadInput, match="larger than"):
        read_dataset("s3://data/many", cache=tmp_path)


def test_networks_are_exceptions_to_the_rule(site: str, tmp_path: Path) -> None:
    here = replace(STRICT, networks=("127.0.0.1/32",))
    fetch(f"{site}/data.csv", tmp_path / "got", here)
    with pytest.raises(BadInput, match="private network"):
        fetch(f"{site}/data.csv".replace("127.0.0.1", "127.0.0.2"), tmp_path / "other", here)


def test_a_restricted_process_reads_no_more_than_it_may(
    unrestricted: None, site: str, tmp_path: Path
) -> None:
    restrict(STRICT)
    for path in (f"{site}/data.csv", str(tmp_path), "/etc/passwd"):
        with pytest.raises(BadInput, match=r"private network|not a place for data"):
            read_dataset(path, cache=tmp_path / "cache")


def test_only_named_buckets_are_read(unrestricted: None, tmp_path: Path) -> None:
    restrict(AccessPolicy(buckets=("ours",)))
    with pytest.raises(BadInput, match='bucket "others" is not read'):
        local_parts("s3://others/data.csv", tmp_path)
