"""REST as outside programs see it."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from prudent.service.security.tokens import AccessMode
from prudent.service.settings import Settings
from prudent.service.store import events, models, runs, trials
from prudent.service.store.models import StoredModel
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table
from prudent.service.store.trials import TrialRow
from prudent.service.web.app import create_app

TRAIN = {"domain": "misc-functions", "budget": "3 trials"}


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store(settings.database) as opened:
        yield opened


@pytest.fixture
def client(serving: Any, settings: Settings, store: Store) -> Iterator[httpx.Client]:
    with serving(create_app(settings, store)) as opened:
        yield opened


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Iterator[httpx.Client]:
    """A service in which nothing is, and stays so: for tests that submit nothing that is taken."""
    settings = Settings(tmp_path_factory.mktemp("idle"))
    settings.create()
    AccessMode(settings.home).choose(True)
    with Store(settings.database) as store, serving(create_app(settings, store)) as found:
        yield found
        assert store.read(runs.page).runs == ()


def submitted(client: httpx.Client, **headers: str) -> dict[str, Any]:
    answer = client.post("/v1/runs/train", json=TRAIN, headers=headers)
    assert answer.status_code == 202, answer.text
    said: dict[str, Any] = answer.json()
    return said


def taken(store: Store, run_id: str) -> None:
    change = table.update().where(table.c.id == run_id).values(status="running", fence=1, started_s=1.0)
    store.write(lambda connection: connection.execute(change))


def test_a_submission_is_answered_with_id_status_and_url(client: httpx.Client) -> None:
    answer = client.post("/v1/runs/train", json=TRAIN)
    said = answer.json()
    assert answer.status_code == 202
    assert set(said) == {"id", "status", "url"}
    assert said["status"] == "queued"
    assert said["url"] == f"/v1/runs/{said['id']}" == answer.headers["location"]
    run = client.get(said["url"]).json()
    assert (run["kind"], run["progress"], run["spent_usd"], run["document"]) == ("train", 0.0, 0.0, TRAIN)


def test_a_key_gives_the_same_run_and_conflicts_with_another_body(client: httpx.Client) -> None:
    first = submitted(client, **{"Idempotency-Key": "k"})
    assert submitted(client, **{"Idempotency-Key": "k"})["id"] == first["id"]
    other = client.post("/v1/runs/train", json={**TRAIN, "seed": 3}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"


def test_fifty_concurrent_posts_with_one_key_give_one_run(settings: Settings, store: Store) -> None:
    async def post_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(settings, store))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            key = {"Idempotency-Key": "one"}
            return await asyncio.gather(
                *(client.post("/v1/runs/train", json=TRAIN, headers=key) for _ in range(50))
            )

    answers = asyncio.run(post_all())
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert store.read(runs.counts)["queued"] == 1


def test_lists_go_page_by_page(client: httpx.Client) -> None:
    ids = [submitted(client)["id"] for _ in range(5)]
    first = client.get("/v1/runs", params={"limit": 3}).json()
    second = client.get("/v1/runs", params={"limit": 3, "after": first["next"]}).json()
    assert [run["id"] for run in first["runs"] + second["runs"]] == sorted(ids, reverse=True)
    assert second["next"] is None
    assert client.get("/v1/runs", params={"status": "running"}).json()["runs"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/runs/unknown", None, 404),
        ("GET", "/v1/runs/..%2f..%2fetc", None, 404),
        ("GET", "/v1/runs/%00", None, 404),
        ("GET", "/v1/models/unknown/download", None, 404),
        ("POST", "/v1/models/unknown/predict", b"{}", 404),
        ("POST", "/v1/runs/bake", b"{}", 422),
        ("POST", "/v1/runs/train", b"{", 400),
        ("POST", "/v1/runs/train", b"[]", 400),
        ("POST", "/v1/runs/train", b"\xff", 400),
        ("POST", "/v1/runs/train", b"{}", 422),
        ("POST", "/v1/runs/train?priority=99", json.dumps(TRAIN).encode(), 422),
        ("GET", "/v1/runs?limit=0", None, 422),
        ("GET", "/v1/runs?after=x", None, 422),
        ("GET", "/v1/runs?status=gone", None, 422),
        ("DELETE", "/v1/runs", None, 405),
        ("GET", "/nowhere", None, 404),
    ],
)
def test_errors_are_problems(
    idle: httpx.Client, method: str, path: str, body: bytes | None, status: int
) -> None:
    answer = idle.request(method, path, content=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["detail"]


def test_a_wrong_document_is_told_place_by_place(idle: httpx.Client) -> None:
    said = idle.post("/v1/runs/train", json={"domain": "regresion", "seed": -1}).json()
    assert {error["path"] for error in said["errors"]} == {"domain", "seed"}


def test_cancel(client: httpx.Client, store: Store) -> None:
    waiting, under_way = submitted(client), submitted(client)
    taken(store, under_way["id"])
    assert client.post(f"{waiting['url']}/cancel").json()["status"] == "cancelled"
    assert client.post(f"{under_way['url']}/cancel").json()["status"] == "running"
    assert client.get(under_way["url"]).json()["cancelling"]
    assert client.post(f"{waiting['url']}/cancel").status_code == 202


def test_events_are_followed_to_the_end_and_taken_up_again(client: httpx.Client, store: Store) -> None:
    run = submitted(client)
    taken(store, run["id"])
    store.write(events.append, run["id"], "progress", {"progress": 0.5})
    store.write(runs.finish, run["id"], 1, "succeeded")
    text = client.get(f"{run['url']}/events").text
    kinds = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert kinds == ["queued", "progress", "succeeded"]
    again = client.get(f"{run['url']}/events", headers={"Last-Event-ID": "2"}).text
    assert "progress" not in again
    assert '"kind": "succeeded"' in again


def test_results_come_when_there_are_some(client: httpx.Client, store: Store, settings: Settings) -> None:
    run = submitted(client)
    for part in ("result", "report"):
        assert client.get(f"{run['url']}/{part}").status_code == 409
    folder = settings.folder_of(run["id"])
    folder.mkdir()
    (folder / "result.json").write_text('{"best": 1}')
    (folder / "report.html").write_text("<h1>Report</h1>")
    taken(store, run["id"])
    store.write(trials.record, TrialRow(run["id"], 1, "f", {"x": 1}, "finished", 0.5), 1)
    store.write(runs.finish, run["id"], 1, "succeeded")
    assert client.get(f"{run['url']}/result").json() == {"best": 1, "models": []}
    report = client.get(f"{run['url']}/report")
    assert report.headers["content-type"].startswith("text/html")
    assert "Report" in report.text
    saved = client.get(f"{run['url']}/report", params={"download": "true"})
    assert saved.headers["content-disposition"] == f'attachment; filename="report-{run["id"]}.html"'
    assert client.get(f"{run['url']}/trials").json()["trials"][0]["score"] == 0.5


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder, of a real request."""
    pytest.importorskip("sklearn")
    import prudent

    folder = tmp_path_factory.mktemp("trained")
    rows = "\n".join(f"{x},{2 * x + 1},{'big' if x > 20 else 'small'}" for x in range(40))
    (folder / "data.csv").write_text(f"a,b,label\n{rows}\n")
    request = {
        "domain": "classification",
        "dataset": {"path": str(folder / "data.csv"), "target": "label"},
        "methods": [{"algorithm": "binomial-logistic-regression"}],
        "budget": "1 trials",
    }
    return Path(prudent.train(request, out=folder / "models").entries[0].model_path)


def test_models_are_listed_downloaded_and_used(client: httpx.Client, store: Store, trained: Path) -> None:
    run = submitted(client)
    taken(store, run["id"])
    model = StoredModel(f"{run['id']}-1", run["id"], "local", 1, "x", 0.9, "accuracy", 0.9, str(trained), 1.0)
    store.write(models.record, [model], run["id"], 1)
    (listed,) = client.get("/v1/models").json()["models"]
    assert listed["id"] == model.id
    assert [column["name"] for column in client.get(listed["url"]).json()["columns"]] == ["a", "b"]
    answer = client.get(listed["download"])
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert f"{model.id}/model.onnx" in archive.namelist()
        assert f"{model.id}/model.json" in archive.namelist()
    onnx = client.get(listed["download"], params={"format": "onnx"})
    assert onnx.content == (trained / "model.onnx").read_bytes()
    rows = [{"a": 1, "b": 3}, {"a": 39, "b": 79}]
    said = client.post(listed["predict"], json={"rows": rows, "probabilities": True}).json()
    assert said["predictions"] == ["small", "big"]
    assert len(said["probabilities"][0]) == len(said["classes"]) == 2
    for wrong in ({"rows": []}, {"rows": 3}, {"rows": [[1]]}, {"rows": [{"a": "x"}]}, {"row": []}, []):
        assert 400 <= client.post(listed["predict"], json=wrong).status_code < 500


def test_signs_and_figures(client: httpx.Client) -> None:
    submitted(client)
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/ready").json() == {"status": "ready", "workers": 0}
    text = client.get("/metrics").text
    assert 'prudent_runs{status="queued"} 1' in text
    assert 'path="/v1/runs/{kind}",status="202"} 1' in text
    assert client.get("/openapi.json").json()["paths"].keys() >= {
        "/v1/runs", "/v1/runs/{kind}", "/v1/runs/{run_id}", "/v1/runs/{run_id}/events",
        "/v1/runs/{run_id}/cancel", "/v1/runs/{run_id}/result", "/v1/runs/{run_id}/report",
        "/v1/models", "/v1/models/{model_id}/download", "/v1/models/{model_id}/predict",
    }  # fmt: skip
