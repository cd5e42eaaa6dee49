"""Secrets in the documents of others are not shown, wherever one looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from prudent.service.security.redaction import HIDDEN, Redaction, redacted, scrubbed
from prudent.service.security.tokens import hash_token
from prudent.service.settings import Settings
from prudent.service.store import runs, users
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.store.users import User
from prudent.service.web.app import create_app
from prudent.service.worker.child import redact_message
from prudent.service.worker.messages import FailedMessage, NoteMessage, ProgressMessage, TrialEndMessage

SIGNED = (
    "https://bucket.s3.amazonaws.com/cars.csv?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE&X-Amz-Signature=c0ffee"
)
DOCUMENT: dict[str, Any] = {
    "command": f"curl '{SIGNED}' && run --api-key=hunter22",
    "environment": {"DB": "postgresql://me:swordfish@host/db", "MODE": "quiet-mode"},
    "parameters": {"n": [1, 2]},
    "dataset": {"path": SIGNED, "password": "letmein-please"},
    "goal": "minimise time_s",
}
SECRETS = ("AKIAIOSFODNN7EXAMPLE", "c0ffee", "hunter22", "swordfish", "quiet-mode", "letmein-please")


def test_a_document_keeps_its_form_and_loses_its_secrets() -> None:
    shown = redacted(DOCUMENT)
    assert not any(secret in str(shown) for secret in SECRETS), shown
    assert shown["environment"] == {"DB": HIDDEN, "MODE": HIDDEN}
    assert shown["dataset"]["path"] == "https://bucket.s3.amazonaws.com/cars.csv?***"
    assert (shown["parameters"], shown["goal"]) == (DOCUMENT["parameters"], DOCUMENT["goal"])
    assert DOCUMENT["environment"]["MODE"] == "quiet-mode", "the document itself stays as it is"


@pytest.mark.parametrize(
    "text",
    [
        "failed: swordfish?",
        'error: {"DB": "postgresql:\\/\\/me:swordfish@host\\/db"}',
        f"cannot read {SIGNED}",
        "mode quiet-mode is none",
    ],
)
def test_texts_lose_the_secrets_of_their_document(text: str) -> None:
    found = scrubbed(Redaction.of(DOCUMENT).text(text))
    assert not any(secret in found for secret in SECRETS if secret != "swordfish" or "://" in text), found


@pytest.mark.parametrize(
    "kind", ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
@pytest.mark.parametrize("line", ["\n", "\r\n", "\\n"])
def test_private_keys_are_hidden(kind: str, line: str) -> None:
    """Whole, cut off, and in the text of a document; what comes after them stays."""
    begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    text = line.join(("cannot use", begin, "MIIEvQIBADAN", "Bgkqhki+G9/w==", end, "of this file"))
    for found in (scrubbed(text), redacted({"note": text})["note"]):
        assert found == f"cannot use{line}{begin}***{end}{line}of this file"
    cut = scrubbed(text.partition("Bgkq")[0])
    assert cut == f"cannot use{line}{begin}***"


def test_what_is_public_of_a_key_stays() -> None:
    for kind in ("CERTIFICATE", "PUBLIC KEY"):
        text = f"-----BEGIN {kind}-----\nMIIEvQIBADAN\n-----END {kind}-----"
        assert scrubbed(text) == text


def test_short_values_and_other_words_stay() -> None:
    redaction = Redaction.of({"environment": {"N": "4", "FLAG": "yes"}})
    assert redaction.text("4 of 44 said yes") == "4 of 44 said yes"


def test_what_a_process_says_is_redacted_before_anybody_hears_it() -> None:
    redaction = Redaction.of({"environment": {"KEY": "hush-hush"}})
    assert redact_message(FailedMessage("no key hush-hush"), redaction) == FailedMessage("no key ***")
    ended = TrialEndMessage(1, "a", {"x": "hush-hush"}, "failed", details={"why": "hush-hush", "n": 1})
    assert redact_message(ended, redaction) == TrialEndMessage(
        1, "a", {"x": "hush-hush"}, "failed", details={"why": "***", "n": 1}
    )
    assert redact_message(NoteMessage("x", {"text": "hush-hush", "n": 1}), redaction).data == {  # type: ignore[union-attr]
        "text": "***",
        "n": 1,
    }
    assert redact_message(ProgressMessage(0.5), redaction) == ProgressMessage(0.5)


@pytest.fixture
def site(
    settings: Settings, serving: Callable[[FastAPI], AbstractContextManager[httpx.Client]]
) -> Iterator[tuple[httpx.Client, str]]:
    with Store(settings.database) as store:
        for name, role in (("vera", "viewer"), ("mia", "member"), ("kim", "commander"), ("ada", "admin")):
            store.write(users.put, User(name, role, None, hash_token(name)))
        run, _ = store.write(runs.insert, NewRun("tune", "kim", DOCUMENT, "rest", "hash", title="secret"))
        with serving(create_app(settings, store)) as client:
            yield client, run.id


@pytest.mark.parametrize(
    ("name", "sees"), [("vera", "nothing"), ("mia", "redacted"), ("kim", "all"), ("ada", "all")]
)
def test_only_owners_and_admins_see_all_of_a_document(
    site: tuple[httpx.Client, str], name: str, sees: str
) -> None:
    client, run_id = site
    bearer = {"authorization": f"Bearer {name}"}
    answer = client.get(f"/v1/runs/{run_id}", headers=bearer).json()
    page = client.get(f"/runs/{run_id}", headers=bearer).text
    listed = client.get("/v1/runs", headers=bearer).text
    assert not any(secret in listed for secret in SECRETS)
    for text in (str(answer), page):
        assert any(secret in text for secret in SECRETS) is (sees == "all")
        assert ("minimise time_s" in text) is (sees != "nothing")
    expected = {"nothing": None, "redacted": redacted(DOCUMENT), "all": DOCUMENT}
    assert answer["document"] == expected[sees]


def test_a_report_loses_them_too(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text('<p>a "quiet-mode" &amp; b</p>')
    Redaction.of(DOCUMENT).file(path)
    assert path.read_text() == '<p>a "***" &amp; b</p>'
    Redaction.of(DOCUMENT).file(tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


@pytest.mark.parametrize("part", ["a", "a.", "token ", "://a:", "x=", "-----BEGIN "])
def test_long_texts_take_no_longer_than_their_length(part: str) -> None:
    """With a pattern that begins anew at every letter, this would not end today."""
    text = part * (3_000_000 // len(part))
    assert len(redacted({"text": text})["text"]) > 0


def test_a_secret_within_a_longer_one_leaves_nothing_of_it() -> None:
    redaction = Redaction.of({"environment": {"A": "hush-hush", "B": "hush-hush-sweet"}})
    assert redaction.secrets == ("hush-hush-sweet", "hush-hush")
    assert redaction.text("hush-hush-sweet and hush-hush") == f"{HIDDEN} and {HIDDEN}"


def test_secrets_within_lists_are_found_too() -> None:
    listed = {"datasets": [{"password": "open-sesame-1"}, ["https://me:in-a-list@host/a.csv"], (SIGNED,)]}
    found = Redaction.of(listed).text("open-sesame-1, in-a-list and c0ffee were wrong")
    assert not any(secret in found for secret in ("open-sesame-1", "in-a-list"))
    assert "AKIAIOSFODNN7EXAMPLE" not in Redaction.of(listed).text(SIGNED)
