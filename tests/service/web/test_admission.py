"""How much is taken: what waits, how large documents are checked, and what becomes of too much."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from prudent.service.intake.backlog import Backlog, BacklogFull
from prudent.service.intake.folders import FolderSource, QueueFolderSource, put_message
from prudent.service.intake.refusal import Refused
from prudent.service.settings import Settings
from prudent.service.store import claims, runs
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL, User
from prudent.service.web import forms, submission
from prudent.service.web.app import create_app
from prudent.service.web.submission import DocumentChecker, Submission

TRAIN: dict[str, Any] = {"domain": "misc-functions", "budget": "3 trials"}


def large(size: int = 100_000) -> dict[str, Any]:
    """A study whose table is so large."""
    table = "vm,n,time_s,price_usd_per_h\n" + "".join(f"a,{n},{n + 5},1\n" for n in range(size // 10))
    return {
        "table": {"csv": table},
        "parameters": ["vm", "n"],
        "goal": "minimise cost_usd",
        "budget": "$1",
    }


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store(settings.database) as opened:
        yield opened


def submit(client: httpx.Client, document: dict[str, Any], kind: str = "train") -> httpx.Response:
    return client.post(f"/v1/runs/{kind}", json=document)


# What waits


def test_more_than_may_wait_is_asked_to_come_later(serving: Any, settings: Settings, store: Store) -> None:
    with serving(create_app(replace(settings, waiting_per_user=3), store)) as client:
        for _ in range(3):
            assert submit(client, TRAIN).status_code == 202
        full = submit(client, TRAIN)
        assert (full.status_code, full.headers["retry-after"]) == (429, "30")
        assert "3 of your runs wait" in full.json()["detail"]
        assert client.get("/v1/runs").status_code == 200
    assert store.read(runs.counts)["queued"] == 3


def taken(waiting: Backlog, user: str, size: int) -> None:
    async def take() -> None:
        async with waiting.reserve(user, size):
            pass

    asyncio.run(take())


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_room_is_for_each_and_for_all_and_comes_back(settings: Settings, store: Store) -> None:
    clock = Clock()
    waiting = Backlog(store, replace(settings, waiting_per_user=2, waiting=3), clock)

    def take(user: str) -> None:
        taken(waiting, user, 100)
        store.write(runs.insert, NewRun("train", user, {}, "rest", "hash"))

    take("ada")
    take("ada")
    with pytest.raises(Refused, match="2 of your runs wait"):
        take("ada")
    take("bob")
    with pytest.raises(Refused, match="As much waits here as may"):
        take("eve")
    assert store.write(claims.claim, "worker", 8) is not None
    clock.now_s = 5.0
    take("eve")
    with pytest.raises(Refused, match="As much waits"):
        take("bob")


def test_large_documents_count_by_their_size(settings: Settings, store: Store) -> None:
    waiting = Backlog(store, replace(settings, waiting_mb_per_user=0.2, waiting_mb=0.4))
    taken(waiting, "ada", 150_000)
    for _ in range(5):
        taken(waiting, "ada", 1000)  # small ones do not
    with pytest.raises(Refused, match=r"documents of more than 0\.2 MB"):
        taken(waiting, "ada", 100_000)
    taken(waiting, "bob", 180_000)
    with pytest.raises(Refused, match="As much waits"):
        taken(waiting, "eve", 150_000)
    text = json.dumps({"x": "y" * 100_000})
    store.write(runs.insert, NewRun("train", "ada", {}, "rest", "hash", text=text))
    assert store.read(runs.waiting) == ({"ada": 1}, {"ada": len(text)})
    with closing(sqlite3.connect(settings.home / "prudent.db")) as base:
        assert base.execute("SELECT document FROM runs").fetchall() == [("",)], "its row is small"
    (listed,) = store.read(runs.page).runs
    shown = store.read(runs.get, listed.id)
    assert (listed.document, shown and shown.document) == ({}, json.loads(text))
    assert store.read(runs.page).runs[0].title == ""


def test_documents_count_while_they_are_checked(settings: Settings, store: Store) -> None:
    """However long that takes, and however often the database is asked, which does not know them yet."""
    clock = Clock()
    waiting = Backlog(store, replace(settings, waiting_mb_per_user=0.2), clock)

    async def two_at_a_time() -> None:
        async with waiting.reserve("ada", 150_000):
            clock.now_s += 60.0
            async with waiting.reserve("ada", 150_000):
                pytest.fail("There is no room for both.")

    with pytest.raises(Refused, match=r"documents of more than 0\.2 MB"):
        asyncio.run(two_at_a_time())
    taken(waiting, "ada", 150_000)  # neither was kept


def test_what_lies_in_a_folder_or_queue_stays_there_until_there_is_room(
    settings: Settings, store: Store, tmp_path: Path
) -> None:
    settings = replace(settings, waiting_per_user=1)
    clock = Clock()
    folder = FolderSource(tmp_path / "drop", store, settings, clock=clock)
    for name in ("a", "b"):
        (tmp_path / "drop" / f"{name}.train.json").write_text(json.dumps(TRAIN))
        put_message(tmp_path / "queue", "train", TRAIN)
    folder.step()
    clock.now_s = 5.0
    with pytest.raises(BacklogFull):
        folder.step()
    queue = QueueFolderSource(tmp_path / "queue", store, settings)
    for _ in range(5):  # more often than a message may be received in vain
        with pytest.raises(BacklogFull):
            queue.step()
    assert store.read(runs.waiting)[0] == {"folder": 1, "queue": 1}
    for _ in range(2):
        assert store.write(claims.claim, "worker", 8) is not None
    assert (folder.step(), queue.step()) == (1, 1)
    assert store.read(runs.counts)["queued"] == 2
    assert not list((tmp_path / "queue" / "dead").iterdir())


def test_a_large_document_without_room_is_refused_before_it_is_read(
    serving: Any, settings: Settings, store: Store
) -> None:
    """Nothing of its body is sent: the answer comes all the same."""
    place = "/v1/runs/tune"
    settings = replace(settings, waiting_per_user=0)
    with serving(create_app(settings, store)) as client:
        address = (client.base_url.host, client.base_url.port)
        with socket.create_connection(address, timeout=120) as line:
            head = f"POST {place} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 7000000\r\n\r\n"
            line.sendall(head.encode())
            assert line.recv(1 << 16).startswith(b"HTTP/1.1 429 ")


# Large documents


def order(
    settings: Settings, document: Any, user: User = LOCAL, kind: str = "tune", **more: Any
) -> Submission:
    return Submission(settings, kind, user, "rest", json.dumps(document).encode(), **more)


@pytest.fixture(scope="module")
def checker() -> Iterator[DocumentChecker]:
    with closing(DocumentChecker(memory_mb=300)) as made:
        yield made


def test_a_large_document_is_checked_elsewhere_and_kept_as_it_is(
    serving: Any, settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Submission, "prepared", lambda self: pytest.fail("It was checked here."))
    with serving(create_app(settings, store)) as client:
        answer = submit(client, large(), "tune")
        assert answer.status_code == 202, answer.text
        wrong = submit(client, {**large(), "goal": "be quick"}, "tune")
        assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (422, "goal")
        malformed = client.post("/v1/runs/tune", content=b"[" * 200_000)
        assert (malformed.status_code, "nested" in malformed.json()["detail"]) == (400, True)
        assert client.get(answer.json()["url"]).json()["document"] == large()


@pytest.mark.parametrize(("user", "is_read"), [(LOCAL, True), (User("ada", "admin"), False)])
def test_files_are_read_there_for_whom_they_are_read_here(
    settings: Settings, checker: DocumentChecker, tmp_path: Path, user: User, is_read: bool
) -> None:
    """The operator's own folders are for nobody else, however large a document is."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "runs.csv").write_text(large(100)["table"]["csv"])
    settings = replace(settings, own_data=(tmp_path / "own",))
    document = {**large(), "table": str(tmp_path / "own" / "runs.csv")}
    asked = replace(order(settings, document, user), body=json.dumps(document).encode() + b" " * 100_000)
    assert asked.is_large
    if is_read:
        assert asyncio.run(checker.prepared(asked)).user == user.name
    else:
        with pytest.raises(Refused):
            asyncio.run(checker.prepared(asked))


def test_one_that_takes_too_much_memory_is_refused_and_the_next_is_not(
    settings: Settings, checker: DocumentChecker
) -> None:
    bomb = Submission(settings, "tune", LOCAL, "rest", b"[" + b"[]," * 3_500_000 + b"[]]")
    with pytest.raises(Refused, match="more than 300 MB of memory") as error:
        asyncio.run(checker.prepared(bomb))
    assert error.value.status == 413
    new = asyncio.run(checker.prepared(order(settings, large())))
    assert (dict(new.document), json.loads(new.text)) == ({}, large())


def test_one_that_takes_too_long_is_refused(
    settings: Settings, checker: DocumentChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "_longest_s", 0.0)
    checker._begun()
    assert checker._process is not None
    checker._process.send_signal(signal.SIGSTOP)
    with pytest.raises(Refused, match="took longer than 0 s"):
        asyncio.run(checker.prepared(order(settings, large())))


def test_a_user_may_have_a_few_under_way(settings: Settings, checker: DocumentChecker) -> None:
    async def all_at_once() -> list[Any]:
        orders = [order(settings, large(), User("ada", "member")) for _ in range(submission.PER_USER + 2)]
        orders.append(order(settings, large(), User("bob", "member")))
        return await asyncio.gather(*(checker.prepared(each) for each in orders), return_exceptions=True)

    *ada, bob = asyncio.run(all_at_once())
    refusals = [each for each in ada if isinstance(each, Refused)]
    assert [(each.status, each.retry_s) for each in refusals] == [(429, 5.0)] * 2
    assert isinstance(bob, NewRun)


def test_the_process_ends_with_the_checker(settings: Settings) -> None:
    with closing(DocumentChecker()) as made:
        made._begun()
        assert made._process is not None
        pid = made._process.pid
        assert os.path.exists(f"/proc/{pid}")
    assert not os.path.exists(f"/proc/{pid}")


def test_yaml_of_a_form_is_read_elsewhere(settings: Settings) -> None:
    text = "domain: misc-functions\nbudget: 3 trials\n"
    fields = {"document": [text + "#" * 5000], "key": [""]}
    assert Submission(settings, "train", LOCAL, "form", fields=fields).is_large
    small = Submission(settings, "train", LOCAL, "form", fields={"document": [text]})
    assert not small.is_large
    assert small.prepared().document == TRAIN


def test_a_large_form_is_decoded_elsewhere_and_shown_again(
    serving: Any, settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here nobody decodes it: while Python does that, everybody else waits."""

    def decoded(body: bytes) -> dict[str, list[str]]:
        assert len(body) < 20_000, "decoded in the process that answers"
        return decode(body)

    decode = forms.decoded
    monkeypatch.setattr(forms, "decoded", decoded)
    text = "domain: misc-functions\nbudget: 3 trials\n" + "# words\n" * 5000
    with serving(create_app(settings, store)) as client:
        page = client.get("/submit/train?as=json").text
        token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
        taken = client.post("/submit/train", data={"csrf": token, "document": text, "key": "k"})
        again = client.post("/submit/train", data={"csrf": token, "document": text, "key": "k"})
        wrong = client.post("/submit/train", data={"csrf": token, "document": f"{text}\nbudget: $3"})
    assert taken.status_code == 303, taken.text
    assert again.headers["location"] == taken.headers["location"], "its key is read there, too"
    assert (wrong.status_code, "budget" in wrong.text, wrong.text.count("# words")) == (400, True, 5000)


def test_a_large_form_beyond_those_under_way_is_not_even_decoded(
    serving: Any, settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "PER_USER", 0)
    monkeypatch.setattr(forms, "decoded", None)
    with serving(create_app(settings, store)) as client:
        token = re.findall(r'name="csrf" value="([^"]+)"', client.get("/submit/train").text)[0]
        answer = client.post("/submit/train", data={"csrf": token, "document": "# words\n" * 5000})
        assert (answer.status_code, "# words" in answer.text) == (429, False)
        assert "what you wrote is still there" in answer.text
        assert client.post("/sign-in", data={"token": "x" * 70_000}).status_code in (401, 413)
