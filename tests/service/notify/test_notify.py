"""Letters arrive at a real mail server and a real web server, are retried, and never fail a run."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword

from prudent.core.errors import RunFailed
from prudent.service.intake.admission import prepare
from prudent.service.intake.refusal import Refused
from prudent.service.notify import mail, webhook
from prudent.service.notify.mail import Undeliverable
from prudent.service.notify.notice import EXHAUSTED, Notice, notice_of
from prudent.service.notify.notifier import GIVE_UP_S, Notifier, Outbox, announce, enqueue, outbox_of
from prudent.service.settings import Settings
from prudent.service.store import charges, models, runs
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import NewRun, RunRow
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table
from prudent.service.store.users import User

from ...mail_server import Post, serving

SECRET = "a secret of the mail server"


def _login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    good = isinstance(data, LoginPassword) and data == LoginPassword(b"prudent", SECRET.encode())
    return AuthResult(success=good, handled=good)


@pytest.fixture
def office() -> Iterator[tuple[Post, int]]:
    with serving(Post(), authenticator=_login, auth_require_tls=False) as found:
        yield found


@pytest.fixture
def settings(tmp_path: Path, office: tuple[Post, int]) -> Settings:
    return Settings(
        tmp_path,
        smtp_host="127.0.0.1",
        smtp_port=office[1],
        smtp_security="none",
        smtp_user="prudent",
        smtp_password=SECRET,
        smtp_from="Prudent <prudent@example.org>",
        public_url="https://prudent.example.org/",
        mail_domains=("example.org",),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/prudent.db") as found:
        yield found


def _ended(store: Store, status: str = "succeeded", error: str = "", **more: Any) -> RunRow:
    document = {"domain": "regression", "emailAddress": "ada@example.org", **more}
    new = NewRun("train", "ada", document, "rest", "hash", title="regression on <cars>.csv")
    run, _ = store.write(runs.insert, new)
    begun = (
        table.update()
        .where(table.c.id == run.id)
        .values(status="running", fence=1, started_s=time.time() - 65)
    )
    store.write(lambda connection: connection.execute(begun))
    found = [
        StoredModel(
            f"{run.id}-{n}",
            run.id,
            "ada",
            n,
            f"algorithm-{n}",
            -float(n),
            "rmse",
            float(n),
            "/x",
            time.time(),
        )
        for n in range(1, 15)
    ]
    store.write(models.record, found if status == "succeeded" else [], run.id, 1)
    store.write(charges.record, charges.Charge(run.id, "trial 1", "ada", "train", 0.42))
    store.write(runs.finish, run.id, 1, status, error)
    ended = store.read(runs.get, run.id)
    assert ended is not None
    return ended


def test_a_mail_with_the_leaderboard_arrives(
    settings: Settings, store: Store, office: tuple[Post, int]
) -> None:
    run = _ended(store)
    assert announce(store, settings, run.id) == 1
    assert announce(store, settings, run.id) == 0
    assert Notifier(settings).step() == 1
    assert Notifier(settings).step() == 0
    assert announce(store, settings, run.id) == 0  # after a take-over, say
    (letter,) = office[0].letters
    assert letter["to"] == "ada@example.org"
    assert letter["from"] == "Prudent <prudent@example.org>"
    assert letter["subject"] == "Done: “regression on <cars>.csv”"
    text = letter.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    page = letter.get_body(("html",)).get_content()  # type: ignore[union-attr]
    for part in (text, page):
        assert "The best model is algorithm-1, with rmse 1." in part
        assert "algorithm-10" in part
        assert "algorithm-11" not in part
        assert "$0.42" in part
        assert f"https://prudent.example.org/runs/{run.id}" in part
        assert f"https://prudent.example.org/v1/models/{run.id}-1/download" in part
        assert SECRET not in part
    assert "<cars>" not in page
    assert "&lt;cars&gt;" in page
    assert "<style" not in page  # mail clients drop it
    assert "<script" not in page


@pytest.mark.parametrize(
    ("status", "exhausted", "subject"),
    [
        ("failed", "", "Failed: "),
        ("succeeded", "the budget of $2.00", "Budget used up: "),
        ("cancelled", "", None),
    ],
)
def test_each_end_has_its_letter(
    status: str,
    exhausted: str,
    subject: str | None,
    settings: Settings,
    store: Store,
    office: tuple[Post, int],
) -> None:
    run = _ended(store, status, "The data have no rows; give some." if status == "failed" else "")
    announce(store, settings, run.id, exhausted)
    Notifier(settings).step()
    if subject is None:  # whoever cancelled it knows
        assert office[0].letters == []
        return
    (letter,) = office[0].letters
    assert letter["subject"].startswith(subject)
    text = letter.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert (exhausted or "The data have no rows; give some.") in text


@pytest.mark.parametrize(
    ("user", "to", "sent"),
    [
        ("mia", "mia@example.org", True),  # a domain that the operator allows
        ("mia", "Mia@EXAMPLE.org", True),
        ("mia@home.example", "mia@home.example", True),  # their own
        ("mia", "victim@bank.example", False),
        ("mia", "victim@example.org.evil.example", False),
        ("mia", "victim@bank.example,x@example.org", False),
        ("mia", "Boss <victim@bank.example>", False),
        ("mia", "<x@example.org> victim@bank.example", False),
        ("mia", '"x@example.org"@bank.example', False),
        ("operator", "victim@bank.example", True),
    ],
)
def test_members_write_to_themselves_and_to_allowed_domains(
    user: str, to: str, sent: bool, settings: Settings, store: Store
) -> None:
    run = replace(_ended(store, emailAddress=to), user=user)
    assert notice_of(run, (), (), settings).to == ((to,) if sent else ())
    document = {"domain": "misc-functions", "budget": "1 trial", "emailAddress": to}
    if sent:
        prepare(settings, "train", document, User(user), "rest")
    else:
        with pytest.raises(Refused) as refusal:
            prepare(settings, "train", document, User(user), "rest")
        assert "emailAddress" in [error.path for error in refusal.value.errors]


def test_what_somebody_wrote_is_quoted_and_is_no_link(
    settings: Settings, store: Store, office: tuple[Post, int]
) -> None:
    run = _ended(store, "failed", "Pay at https://evil.example/pay or write to boss@evil.example")
    title = "Your account: www.evil.example/login"
    mail.send(mail.mail_message(replace(notice_of(run, (), (), settings), title=title), settings), settings)
    (letter,) = office[0].letters
    for kind in ("plain", "html"):
        part = letter.get_body((kind,)).get_content()  # type: ignore[union-attr]
        assert not re.search(r"\w\.(evil|example)\b", part.replace("prudent.example.org", ""))
        assert "://evil" not in part
        assert "@evil" not in part
        assert "“Your account:" in part
        assert "The words of ada" in part


def test_nobody_is_told_before_the_end_or_without_an_address(settings: Settings, store: Store) -> None:
    run, _ = store.write(runs.insert, NewRun("train", "ada", {"domain": "regression"}, "rest", "hash"))
    assert announce(store, settings, run.id) == 0
    assert announce(store, settings, "no such run") == 0
    store.write(runs.end, run.id, "failed", "x")
    assert announce(store, settings, run.id) == 0


def test_trouble_is_tried_again_later_and_later_and_then_given_up(
    settings: Settings, store: Store, office: tuple[Post, int]
) -> None:
    office[0].answer = "451 Try later"
    run = _ended(store)
    announce(store, settings, run.id)
    now_s, tries = time.time(), []
    courier = Notifier(settings, clock=lambda: now_s)
    while outbox_of(settings).waiting():
        assert courier.step() == 0
        waiting = list((settings.home / "outbox" / "waiting").glob("*.json"))
        tries.append(json.loads(waiting[0].read_text())["next_s"] - now_s if waiting else 0.0)
        now_s += tries[-1]
        if len(tries) == 3:
            office[0].answer = "250 OK"
            assert courier.step() == 1
    assert tries[:3] == pytest.approx([2.0, 4.0, 8.0])
    assert len(office[0].letters) == 1


def test_a_server_that_is_away_harms_nothing(settings: Settings, store: Store) -> None:
    away = replace(settings, smtp_port=1)
    run = _ended(store)
    assert announce(store, away, run.id) == 1
    assert Notifier(away).step() == 0
    assert outbox_of(away).waiting() == 1
    late = Notifier(away, clock=lambda: time.time() + GIVE_UP_S)
    late.step()
    assert outbox_of(away).waiting() == 0
    (failed,) = (settings.home / "outbox" / "failed").glob("*.json")
    assert SECRET not in failed.read_text()


def test_an_address_that_nobody_has_is_not_tried_again(settings: Settings, store: Store) -> None:
    run = _ended(store, emailAddress="nobody@example.org")
    announce(store, settings, run.id)
    Notifier(settings).step()
    assert outbox_of(settings).waiting() == 0
    assert len(list((settings.home / "outbox" / "failed").glob("*.json"))) == 1


def test_a_wrong_password_is_not_told(
    settings: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    run = _ended(store)
    wrong = replace(settings, smtp_password="another secret")
    announce(store, wrong, run.id)
    assert Notifier(wrong).step() == 0
    assert "535" in caplog.text
    assert "another secret" not in caplog.text


@pytest.mark.parametrize(
    "title", ["a\r\nBcc: all@example.org", "x" * 500, "é\u2028\0", "<script>alert(1)</script>"]
)
def test_titles_do_no_harm(title: str, settings: Settings, store: Store, office: tuple[Post, int]) -> None:
    notice = replace(notice_of(_ended(store), (), (), settings), title=title)
    mail.send(mail.mail_message(notice, settings), settings)
    (letter,) = office[0].letters
    assert letter["bcc"] is None
    assert "<script" not in letter.get_body(("html",)).get_content()  # type: ignore[union-attr]


def test_addresses_that_are_none(settings: Settings, store: Store) -> None:
    notice = notice_of(_ended(store), (), (), settings)
    for to in ("", "a\r\nb@example.org", "no address", "a@b@c"):
        with pytest.raises((Undeliverable, RunFailed)):
            mail.send(mail.mail_message(replace(notice, to=(to,)), settings), settings)


def test_starttls_without_a_certificate_sends_nothing(settings: Settings, store: Store) -> None:
    with pytest.raises(RunFailed, match="did not take"):
        mail.send(
            mail.mail_message(notice_of(_ended(store), (), (), settings), settings),
            replace(settings, smtp_security="starttls"),
        )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority of our own (`ca.pem`), a server's certificate of it, and one for another name."""
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("certificates")
    authority, key = _issued("Prudent's tests", None, None)
    (folder / "ca.pem").write_bytes(authority)
    for name, host in (("right", "127.0.0.1"), ("wrong", "127.0.0.9")):
        (folder / f"{name}.pem").write_bytes(b"".join(_issued(name, host, (authority, key))))
    return folder


def _issued(name: str, host: str | None, by: tuple[bytes, bytes] | None) -> tuple[bytes, bytes]:
    """A certificate and its key, as PEM; without an issuer, that of an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer = x509.load_pem_x509_certificate(by[0]).subject if by else subject
    signer = serialization.load_pem_private_key(by[1], None) if by else key
    public = x509.load_pem_x509_certificate(by[0]).public_key() if by else key.public_key()
    made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    made = made.add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)  # type: ignore[arg-type]
    if host is not None:
        address = x509.IPAddress(ip_address(host))
        made = made.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    else:
        use = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = made.add_extension(use, critical=True)
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return made.sign(signer, hashes.SHA256()).public_bytes(pem), key.private_bytes(pem, *plain)  # type: ignore[arg-type]


def _secure_office(certificate: Path) -> AbstractContextManager[tuple[Post, int]]:
    """A mail server that takes nothing, and no password, before STARTTLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return serving(
        Post(),
        authenticator=_login,
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        auth_require_tls=True,
    )


def test_mail_by_starttls_with_a_login(settings: Settings, store: Store, certificates: Path) -> None:
    with _secure_office(certificates / "right.pem") as (post_office, port):
        secure = replace(settings, smtp_port=port, smtp_security="starttls", smtp_ca=certificates / "ca.pem")
        run = _ended(store)
        assert announce(store, secure, run.id) == 1
        assert Notifier(secure).step() == 1
        (letter,) = post_office.letters
        assert letter["subject"] == "Done: “regression on <cars>.csv”"
        plain = replace(secure, smtp_security="none")
        with pytest.raises(RunFailed, match="did not take"):  # this server does want it
            mail.send(mail.mail_message(notice_of(run, (), (), plain), plain), plain)


@pytest.mark.parametrize(("certificate", "ca"), [("wrong", True), ("right", False)])
def test_a_certificate_that_is_not_trusted_gets_no_mail_and_harms_no_run(
    certificate: str,
    ca: bool,
    settings: Settings,
    store: Store,
    certificates: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For another name, or of an authority that nobody knows: told in a sentence, and tried again."""
    with _secure_office(certificates / f"{certificate}.pem") as (post_office, port):
        trusted = certificates / "ca.pem" if ca else None
        secure = replace(settings, smtp_port=port, smtp_security="starttls", smtp_ca=trusted)
        run = _ended(store)
        assert announce(store, secure, run.id) == 1
        assert Notifier(secure).step() == 0
        assert "The certificate of the mail server is not trusted" in caplog.text
        assert SECRET not in caplog.text
        assert post_office.letters == []
        assert outbox_of(secure).waiting() == 1
        found = store.read(runs.get, run.id)
        assert found is not None
        assert found.status == "succeeded"
        if not ca:  # the operator names the authority, and the letter goes
            mended = replace(secure, smtp_ca=certificates / "ca.pem")
            assert Notifier(mended, clock=lambda: time.time() + 60).step() == 1
            assert len(post_office.letters) == 1


def test_certificates_that_are_none_are_told(settings: Settings, store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    notice = notice_of(_ended(store), (), (), settings)
    for name in ("empty.pem", "missing.pem"):
        secure = replace(settings, smtp_security="starttls", smtp_ca=tmp_path / name)
        with pytest.raises(RunFailed, match="correct smtp_ca"):
            mail.send(mail.mail_message(notice, secure), secure)


class _Hook(http.server.BaseHTTPRequestHandler):
    got: list[tuple[dict[str, str], bytes]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).got.append((dict(self.headers), body))
        self.send_response(type(self).status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *said: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[tuple[type[_Hook], str]]:
    handler = type("Hook", (_Hook,), {"got": [], "status": 200})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_address[1]}/hook?a=1"
    server.shutdown()
    server.server_close()


def test_a_webhook_is_signed_and_told_once(
    hook: tuple[type[_Hook], str], tmp_path: Path, store: Store
) -> None:
    settings = Settings(tmp_path, webhook_url=hook[1], webhook_secret="hush")
    run = _ended(store)
    assert announce(store, settings, run.id) == 1
    assert Notifier(settings).step() == 1
    assert Notifier(settings).step() == 0
    ((headers, body),) = hook[0].got
    said = json.loads(body)
    assert (said["run"], said["event"], said["spent_usd"]) == (run.id, "succeeded", 0.42)
    assert "ada@example.org" not in body.decode()
    timestamp, signature = headers["Prudent-Timestamp"], headers["Prudent-Signature"]
    now_s = time.time()
    assert webhook.verify("hush", body, timestamp, signature, now_s)
    assert not webhook.verify("other", body, timestamp, signature, now_s)
    assert not webhook.verify("hush", body + b" ", timestamp, signature, now_s)
    assert not webhook.verify("hush", body, str(int(timestamp) + 1), signature, now_s)
    assert not webhook.verify("hush", body, timestamp, signature, now_s + 3600)
    assert not webhook.verify("hush", body, "now", "v1=é", now_s)


@pytest.mark.parametrize(("status", "waits"), [(500, True), (429, True), (404, False), (302, False)])
def test_a_webhook_that_may_come_back_is_tried_again(
    status: int, waits: bool, hook: tuple[type[_Hook], str], tmp_path: Path, store: Store
) -> None:
    hook[0].status = status
    settings = Settings(tmp_path, webhook_url=hook[1])
    announce(store, settings, _ended(store).id)
    assert Notifier(settings).step() == 0
    assert outbox_of(settings).waiting() == waits


def test_a_courier_that_is_killed_leaves_the_letter_to_the_next(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put("a.mail", {"x": 1})
    program = f"""
import time
from pathlib import Path
from prudent.service.notify.notifier import Outbox
def hang(name, letter):
    print("at it", flush=True)
    time.sleep(60)
Outbox(Path({str(tmp_path)!r})).step(hang, time.time() + 1)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"at it\n"
        got: list[str] = []
        assert outbox.step(lambda name, letter: got.append(name), time.time() + 1) == 0  # it is the other's
        os.kill(child.pid, signal.SIGKILL)
    assert outbox.step(lambda name, letter: got.append(name), time.time() + 1) == 1
    assert got == ["a.mail"]


def test_a_courier_delivers_by_itself(hook: tuple[type[_Hook], str], tmp_path: Path, store: Store) -> None:
    settings = Settings(tmp_path, webhook_url=hook[1])
    courier = Notifier(settings, every_s=0.05).start()
    announce(store, settings, _ended(store).id)
    until_s = time.monotonic() + 60
    while not hook[0].got and time.monotonic() < until_s:
        time.sleep(0.02)
    courier.stop()
    assert len(hook[0].got) == 1


def test_notices_survive_json(settings: Settings, store: Store) -> None:
    notice = notice_of(_ended(store), (), store.read(models.of_run, "x"), settings, "time")
    assert notice.event == EXHAUSTED
    assert Notice.of_dict(json.loads(json.dumps(notice.to_dict()))) == notice
    assert enqueue(settings, notice) == 1
