"""`prudent clusters`: what is rented is shown with its cost, and what nobody needs is ended."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.lease import LeaseHolder
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PRUDENT_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    provider = LocalProvider(tmp_path / "home")
    provider.terminate(provider.list())


@pytest.fixture
def cluster(home: Path) -> Iterator[Rental]:
    rental = Rental(
        LocalProvider(home), "m3.medium", 2, run="digits", register=LeaseRegister(home), lease_s=60
    )
    with rental:
        yield rental


def orphan(rental: Rental) -> None:
    """As if the process that holds it were dead: one that was, and is not any more."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    path = rental.register.folder / f"{rental.cluster}.json"
    said = json.loads(path.read_text())
    said["holder"] = LeaseHolder(dead.pid, "boot:1", rental.lease.holder.realm).to_dict()
    path.write_text(json.dumps(said))


def test_nothing_is_rented(prudent: Callable[..., Any], home: Path) -> None:
    assert prudent("clusters", "list").out == "No machines are rented.\n"
    assert prudent("clusters", "list", "--json").json == []
    assert prudent("clusters", "reap").out == "Nothing to end.\n"


def test_a_cluster_is_shown_with_machines_age_cost_lease_and_run(
    prudent: Callable[..., Any], cluster: Rental
) -> None:
    done = prudent("clusters", "list")
    assert done.code == 0
    [line] = [line for line in done.out.splitlines() if cluster.cluster in line]
    assert line.split()[1:3] == ["2*m3.medium", "local"]
    assert "$0.00223" in line
    assert "s left" in line
    assert line.endswith("digits")
    assert "$0.134 per hour" in done.out


def test_json_has_every_machine(prudent: Callable[..., Any], cluster: Rental) -> None:
    [one] = prudent("clusters", "list", "--json").json
    assert (one["cluster"], one["run"], one["state"], one["held"]) == (cluster.cluster, "digits", "up", True)
    assert one["cost_usd"] == pytest.approx(2 * 0.067 / 60)
    assert 0 < one["lease_left_s"] <= 60
    assert [machine["index"] for machine in one["machines"]] == [0, 1]
    assert all(machine["state"] == "running" for machine in one["machines"])


def test_a_living_run_keeps_its_machines(prudent: Callable[..., Any], cluster: Rental) -> None:
    assert prudent("clusters", "reap").out == "Nothing to end.\n"
    assert len(cluster.provider.list()) == 2


def test_what_a_dead_run_left_is_ended(prudent: Callable[..., Any], cluster: Rental) -> None:
    orphan(cluster)
    assert "digits (gone)" in prudent("clusters", "list").out
    rehearsed = prudent("clusters", "reap", "--dry-run")
    assert rehearsed.out.count("would be ended: its run is gone") == 2
    assert len(cluster.provider.list()) == 2
    done = prudent("clusters", "reap", "--json")
    assert done.code == 0
    assert [one["why"] for one in done.json["ended"]] == ["its run is gone"] * 2
    assert done.json["released"] == [cluster.cluster]
    assert cluster.provider.list() == ()
    assert prudent("clusters", "list").out == "No machines are rented.\n"


def test_a_machine_in_no_record_is_shown(prudent: Callable[..., Any], cluster: Rental) -> None:
    (cluster.register.folder / f"{cluster.cluster}.json").unlink()
    assert "unrecorded" in prudent("clusters", "list").out


def test_trouble_is_told_and_the_rest_is_done(prudent: Callable[..., Any], cluster: Rental) -> None:
    orphan(cluster)
    (cluster.register.folder / "torn.json").write_text("{")
    done = prudent("clusters", "reap")
    assert done.code == 1
    assert "torn.json is damaged" in done.err
    assert cluster.provider.list() == ()


def test_a_lease_that_is_over_says_so(prudent: Callable[..., Any], home: Path) -> None:
    rental = Rental(
        LocalProvider(home), "m3.medium", run="old", register=LeaseRegister(home), lease_s=600
    ).launch()
    try:
        rental._over.set()  # nobody renews it
        rental.register.renew(rental.cluster, time.time() - 3 * 3600)
        assert "over for 3 h 0" in prudent("clusters", "list").out
    finally:
        rental.release()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--where", "hots:x.yaml"], 'Did you mean "hosts"'),
        (["reap", "--where", "hosts:nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_a_wrong_place_is_bad_input(
    prudent: Callable[..., Any], home: Path, words: list[str], said: str
) -> None:
    done = prudent("clusters", *words)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1
