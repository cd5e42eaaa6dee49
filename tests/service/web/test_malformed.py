"""Some of the malformed requests that `benchmarks/service_malformed.py` sends, and finds of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from prudent.service.intake.admission import read_json
from prudent.service.intake.refusal import Refused
from prudent.service.settings import Settings
from prudent.service.store import models, runs
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table
from prudent.service.web.app import create_app

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "service_malformed.py"


@pytest.mark.parametrize("count", [120, pytest.param(1000, marks=pytest.mark.soak)])
def test_no_malformed_request_is_an_error_of_the_service(count: int, make_model: Callable[..., Path]) -> None:
    pytest.importorskip("schemathesis")
    said = ["--requests", str(count), "--seed", "7", "--model", str(make_model())]
    command = [sys.executable, str(BENCHMARK), *said]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{count} requests" in done.stdout
    assert "refused because their check stumbled: 0" in done.stdout


@pytest.fixture
def client(
    store: Store, settings: Settings, serving: Callable[[FastAPI], AbstractContextManager[httpx.Client]]
) -> Iterator[httpx.Client]:
    """On SQLite and on PostgreSQL, which has no zero byte in its texts."""
    with serving(create_app(settings, store)) as found:
        yield found


def test_zero_bytes_in_addresses_find_nothing(client: httpx.Client) -> None:
    for path in (
        "/v1/runs?user=%00",
        "/v1/runs?after=1_%00",
        "/v1/models?user=a%00",
        "/v1/models?after=1_%00",
    ):
        assert client.get(path).status_code == 422, path
    for path in ("/v1/runs/%00", "/v1/models/%00", "/runs/%00", "/models/%00", "/runs/a%00/live"):
        assert client.get(path).status_code == 404, path
    for path in ("/runs?user=%00", "/runs?after=1_%00", "/models?after=1_%00", "/runs/live?user=%00"):
        assert client.get(path).status_code == 200, path


@pytest.fixture
def model(store: Store, make_model: Callable[..., Path]) -> str:
    """A model that adds its numbers up."""
    run, _ = store.write(runs.insert, NewRun("train", "local", {}, "rest", "hash"))
    begun = table.update().where(table.c.id == run.id).values(status="running", fence=1)
    store.write(lambda connection: connection.execute(begun))
    kept = StoredModel(f"{run.id}-1", run.id, "local", 1, "x", 0.9, "rmse", 0.9, str(make_model(())), 1.0)
    store.write(models.record, [kept], run.id, 1)
    return kept.id


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_numbers_that_no_model_can_take_are_told(client: httpx.Client, model: str) -> None:
    """A sum beyond the largest number is none, and JSON has no word for that."""
    place = f"/v1/models/{model}/predict"
    right = {"age": 2, "colour": "green", "weight": 1}
    assert client.post(place, json={"rows": [right]}).json()["predictions"] == [3.0]
    for rows, why in (
        ("[[2, null, 1], [3e38, null, 3e38]]", "no answer for row 2"),
        ('[{"age": 1e999}]', "larger than any number"),
        ('[{"age": 1, "age": 2}]', "twice"),
        ('[{"colour": "\\ud800"}]', "half of a character"),
        ("[[1" + "0" * 4000 + ", null, 1]]", ""),
    ):
        answer = client.post(place, content=f'{{"rows": {rows}}}')
        assert 400 <= answer.status_code < 500, rows
        assert why in answer.json()["detail"], rows


def test_documents_are_as_deep_as_requests_are() -> None:
    assert read_json("[" * 99 + "1" + "]" * 99)
    assert read_json(json.dumps({"rows": [[1, 2]] * 500}))
    for wrong in ("[" * 101 + "]" * 101, '{"a":' * 500 + "1" + "}" * 500, "[" * 100_000):
        with pytest.raises(Refused) as refused:
            read_json(wrong)
        assert refused.value.status == 400


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_model_whose_files_are_gone_is_gone(client: httpx.Client, store: Store, model: str) -> None:
    import shutil

    found = store.read(models.get, model)
    assert found is not None
    shutil.rmtree(found.path)
    assert client.post(f"/v1/models/{model}/predict", content='{"rows": [[1]]}').status_code == 410
    assert client.get(f"/v1/models/{model}").status_code == 410
    assert client.get(f"/v1/models/{model}/download").status_code == 410
