"""Whose dropped documents are, with which rights; and from which buckets data may be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.service.intake import admission
from prudent.service.intake.incoming import DocumentReply, receive
from prudent.service.intake.refusal import Refused
from prudent.service.intake.sources import sources_of
from prudent.service.security.tokens import AccessMode, hash_token, make_token
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL, MEMBER, User

TRAIN = {"domain": "misc-functions", "budget": "3 trials"}
COMMAND = {"command": "make", "parameters": {"n": [1, 2]}, "goal": "minimise time_s"}
FOLDER = User("folder", MEMBER)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/store.db") as opened:
        for name, role in (("vera", "viewer"), ("mia", "member"), ("kim", "commander")):
            opened.write(users.put, User(name, role, None, hash_token(name)))
        yield opened


def dropped(store: Store, settings: Settings, kind: str, document: Any, key: str = "k") -> DocumentReply:
    return receive(store, settings, f"a.{kind}.json", json.dumps(document).encode(), FOLDER, "folder", key)


def test_without_a_word_they_are_a_plain_member_s(store: Store, settings: Settings) -> None:
    taken = dropped(store, settings, "train", TRAIN).run
    assert taken is not None
    assert (taken.user, taken.front) == ("folder", "folder")
    refusal = dropped(store, settings, "tune", COMMAND, "other").refusal
    assert refusal is not None
    assert refusal.status == 403


@pytest.mark.parametrize(
    ("name", "train", "command"),
    [("vera", 403, 403), ("mia", None, 403), ("kim", None, None), ("nobody", 403, 403), ("local", 403, 403)],
)
def test_a_user_is_named_and_their_role_counts(
    name: str, train: int | None, command: int | None, store: Store, settings: Settings
) -> None:
    named = replace(settings, intake_user=name)
    for kind, document, status in (("train", TRAIN, train), ("tune", COMMAND, command)):
        reply = dropped(store, named, kind, document, kind)
        assert (reply.refusal.status if reply.refusal else None) == status
        assert reply.run is None or reply.run.user == name


def test_a_role_that_is_taken_away_counts_at_once(store: Store, settings: Settings) -> None:
    named = replace(settings, intake_user="kim")
    assert dropped(store, named, "tune", COMMAND, "one").refusal is None
    store.write(users.put, User("kim", MEMBER, None, hash_token("kim")))
    assert dropped(store, named, "tune", COMMAND, "two").refusal is not None


def test_whoever_sits_at_the_machine_may_be_named_where_it_is_open(tmp_path: Path) -> None:
    alone = Settings(tmp_path / "home", intake_user="local")
    alone.create()
    access = AccessMode(alone.home)
    access.choose(True)
    with Store(f"sqlite:///{tmp_path}/alone.db") as store:
        assert admission.sender_of(store, alone, FOLDER) == LOCAL
        with pytest.raises(Refused, match="no account"):
            admission.sender_of(store, replace(alone, host="0.0.0.0"), FOLDER)
        access.choose(False)
        with pytest.raises(Refused, match="no account"):
            admission.sender_of(store, alone, FOLDER)
        make_token(alone.home)
        assert admission.sender_of(store, replace(alone, intake_user="operator"), FOLDER).role == "admin"


def test_a_name_without_an_account_is_told_at_the_start(store: Store, settings: Settings) -> None:
    watching = replace(settings, watch=settings.home / "inbox", intake_user="nobody")
    with pytest.raises(BadInput, match='"nobody", who has no account'):
        sources_of(watching, store)
    assert len(sources_of(replace(watching, intake_user="mia"), store)) == 1


def test_only_buckets_that_are_named_are_read(settings: Settings) -> None:
    document = {"domain": "regression", "dataset": {"path": "s3://theirs/cars.csv", "target": "price"}}
    admission.prepare(settings, "train", document, LOCAL, "rest")
    named = replace(settings, buckets=("ours",))
    with pytest.raises(Refused, match='bucket "theirs" is not read here'):
        admission.prepare(named, "train", document, LOCAL, "rest")
    document["dataset"] = {"path": "s3://ours/cars.csv", "target": "price"}
    admission.prepare(named, "train", document, LOCAL, "rest")
    assert admission.policy_for(named, named.data_folders).buckets == ("ours",)
