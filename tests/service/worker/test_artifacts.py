"""Results in a bucket (moto's server): kept, fetched whole, and thrown away with every copy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from prudent.core.errors import BadInput, RunFailed
from prudent.service.intake import admission
from prudent.service.settings import Settings, environment_of
from prudent.service.store import runs
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL
from prudent.service.worker import artifacts

PLACE = "s3://kept/results"
FILES = {"result.json": "{}", "report.html": "<html>", "models/1-tree/model.onnx": "graph",
         "models/1-tree/model.json": "{}", "models/1-tree/model.pmml": "<PMML>",
         "models/1-tree/spark/metadata/part-0": "own form"}  # fmt: skip
STUDY = {
    "table": {"csv": "vm,time_s,price_usd_per_h\na,1,1\nb,2,1\n"},
    "parameters": ["vm"],
    "goal": "minimise cost_usd",
    "strategy": "random",
    "budget": "$1",
}
OURS = {"log.txt": "not kept", "models/.work/request.json": "not kept"}


@pytest.fixture
def s3(cloud: None) -> Iterator[Any]:
    client = boto3.client("s3")
    client.create_bucket(Bucket="kept")
    yield client
    client.close()


def run_folder(home: Path, run_id: str) -> Path:
    folder = home / "runs" / run_id
    for name, text in {**FILES, **OURS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def names(s3: Any) -> set[str]:
    return {fact["Key"] for fact in s3.list_objects_v2(Bucket="kept").get("Contents", ())}


def test_reports_in_the_home_share_one_plotly_and_those_elsewhere_are_whole(tmp_path: Path) -> None:
    page = '<meta content="script-src \'sha256-x\'"><script id="plotly">large()</script>'
    for run_id, place in (("01a", None), ("01b", str(tmp_path / "kept"))):
        folder = run_folder(tmp_path, run_id)
        (folder / "report.html").write_text(page)
        found = Path(artifacts.store_results(place, run_id, folder)) / "report.html"
        assert ("large()" in found.read_text()) is (place is not None)
        assert (artifacts.PLOTLY in found.read_text()) is (place is None)


def test_results_in_a_bucket(s3: Any, tmp_path: Path) -> None:
    cache, first, second = tmp_path / "cache", run_folder(tmp_path, "01a"), run_folder(tmp_path, "01b")
    place = artifacts.store_results(PLACE, "01a", first)
    assert artifacts.store_results(PLACE, "01a", first) == place == "s3://kept/results/01a"
    artifacts.store_results(PLACE, "01b", second)
    assert names(s3) == {f"results/{run}/{name}" for run in ("01a", "01b") for name in FILES}

    report = artifacts.local(place, "report.html", cache)
    assert report is not None
    assert report.read_text() == "<html>"
    assert artifacts.local(place, "plan.json", cache) is None
    model = artifacts.local_folder(f"{place}/models/1-tree", cache)
    assert model is not None
    found = {str(path.relative_to(model)) for path in model.rglob("*") if path.is_file()}
    assert found == {"model.onnx", "model.json", "model.pmml", "spark/metadata/part-0"}
    assert artifacts.local_folder(f"{place}/models/2-tree", cache) is None

    artifacts.remove(PLACE, "01a", first, cache)
    assert names(s3) == {f"results/01b/{name}" for name in FILES}
    assert not first.exists()
    assert list(cache.iterdir()) == []
    assert artifacts.local(place, "report.html", cache) is None


def test_no_name_in_a_bucket_leads_out_of_the_copys_folder(s3: Any, tmp_path: Path) -> None:
    cache, model = tmp_path / "cache", "results/01a/models/1-tree"
    for name in ("model.onnx", "../../up.txt", "a/../../../far.txt", "/rooted.txt"):
        s3.put_object(Bucket="kept", Key=f"{model}/{name}", Body=b"x")
    folder = artifacts.local_folder(f"s3://kept/{model}", cache)
    assert folder is not None
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {"model.onnx", "rooted.txt"}
    assert not [*tmp_path.rglob("up.txt"), *tmp_path.rglob("far.txt")]


def test_a_bucket_that_is_not_there_is_told_in_a_sentence(s3: Any, tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "01a")
    with pytest.raises(RunFailed, match=r"The bucket gone .*check that it is there"):
        artifacts.store_results("s3://gone/x", "01a", folder)
    with pytest.raises(RunFailed, match="The bucket gone"):
        artifacts.local_folder("s3://gone/x/01a/models/1-tree", tmp_path / "cache")


def test_a_pruned_run_is_gone_from_the_bucket(
    s3: Any, tmp_path: Path, nobody_left: Callable[[Path], None]
) -> None:
    """By a real worker, which keeps ended runs for a moment only; the bucket remembers what was in it."""
    s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
    home = tmp_path / "home"
    settings = Settings(home, artifacts=PLACE, keep_days=1.0 / 86_400, heartbeat_s=0.5, warm=False, nice=0)
    settings.create()
    command = [sys.executable, "-m", "prudent.cli.main", "worker"]
    with Store(settings.database) as store, (tmp_path / "log").open("wb") as log:
        run = admission.submit(store, admission.prepare(settings, "tune", STUDY, LOCAL, "rest")).run
        environment = {**os.environ, **environment_of(settings)}
        process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)
        try:
            until_s = time.monotonic() + 240
            while store.read(runs.get, run.id) is not None:
                assert time.monotonic() < until_s, (tmp_path / "log").read_text()[-3000:]
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
            nobody_left(home)
    assert names(s3) == set()
    kept = {fact["Key"] for fact in s3.list_object_versions(Bucket="kept")["Versions"]}
    assert f"results/{run.id}/result.json" in kept
    assert not settings.folder_of(run.id).exists()


@pytest.mark.parametrize("place", ["s3://", "gs://bucket/x"])
def test_what_is_no_place_for_results(place: str) -> None:
    with pytest.raises(BadInput, match="is not a place for results"):
        artifacts.check(place)


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A command may have left one in its run's folder, to what only the service can read."""
    (tmp_path / "operator.token").write_text("secret")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / artifacts.REPORT).symlink_to(tmp_path / "operator.token")
    (folder / artifacts.RESULT).write_text("{}")
    (folder / artifacts.MODELS).symlink_to(tmp_path)
    assert artifacts.local(str(folder), artifacts.REPORT, tmp_path / "cache") is None
    assert artifacts.local(str(folder), artifacts.RESULT, tmp_path / "cache") is not None
    place = artifacts.store_results(str(tmp_path / "kept"), "r", folder)
    assert [path.name for path in Path(place).iterdir()] == [artifacts.RESULT]
