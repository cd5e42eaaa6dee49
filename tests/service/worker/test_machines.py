"""Machines of a run: ended by whoever has the run, and paid for, whoever rented them."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.core.errors import BadInput
from prudent.service.worker import machines
from prudent.training.request.request import TrainingRequest

ASKED = {"instances": [{"ec2Instance": "m3.medium"}], "maxTotalInstances": 2}


def test_what_has_a_runs_name_is_ended_even_if_its_holder_lives(tmp_path: Path) -> None:
    home = tmp_path / "home"
    register, provider = LeaseRegister(home), LocalProvider(home)
    left = Rental(provider, "m3.medium", run="train-mine", register=register).launch()
    with Rental(provider, "m3.medium", run="train-others", register=register) as others:
        assert machines.end_left_machines(home / "runs" / "mine", home) == 1
        assert [one.cluster for one in provider.list()] == [others.cluster]
        assert machines.end_left_machines(home / "runs" / "mine", home) == 0
    lease = register.read(left.cluster)
    assert lease is not None
    assert (lease.state, lease.why) == ("released", "its worker is gone")
    paid = machines.machine_cost(home / "runs" / "mine", home)
    assert paid.usd == pytest.approx(lease.cost_usd(0.0))
    assert paid.usd > 0
    assert paid.price == lease.price
    left.release()


def test_who_asks_for_machines() -> None:
    said = {"domain": "regression", "dataset": {"path": "s3://b/x.csv"}}
    assert machines.wants_machines(TrainingRequest.parse({**said, "computationalResources": ASKED}))
    left_open = {**said, "machines": {"types": ["m5.large"]}}
    assert machines.wants_machines(TrainingRequest.parse(left_open))
    assert machines.may_have_machines("train", left_open, "local")
    assert not machines.wants_machines(TrainingRequest.parse(said))
    assert not machines.wants_machines(TrainingRequest.parse({**said, "computationalResources": {}}))
    function = {"domain": "misc-functions", "computationalResources": ASKED}
    assert not machines.wants_machines(TrainingRequest.parse(function))


def test_a_place_that_is_none_is_told_before_anything_runs(tmp_path: Path) -> None:
    machines.check(None, tmp_path)
    machines.check("local", tmp_path)
    with pytest.raises(BadInput, match='Did you mean "local"'):
        machines.check("locl", tmp_path)
    with pytest.raises(BadInput, match=r"gone\.yaml"):
        machines.check("hosts:gone.yaml", tmp_path)
    with pytest.raises(BadInput, match=r"gone\.csv"):
        machines.check("local:gone.csv", tmp_path)
