"""What a request's computational resources mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.clusters.autoscaling import ClusterRequest, MachineRange
from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.core.errors import BadInput
from prudent.training.request.request import Resources, TrainingRequest
from prudent.training.request.resources import (
    cluster_for_request,
    cluster_trial_price,
    machines_requested,
    paid_before,
    parallelism_of,
)
from prudent.training.train import train


def requested(tmp_path: Path, **said: Any) -> ClusterRequest:
    return machines_requested(Resources.model_validate(said), LocalProvider(tmp_path))


def test_cheapest_types_come_first_and_limits_are_kept(tmp_path: Path) -> None:
    instances = [
        {"ec2Instance": "m5.xlarge", "maxInstances": 4},
        {"ec2Instance": "m5.large", "minInstances": 1},
    ]
    found = requested(tmp_path, instances=instances, minTotalInstances=2, maxTotalInstances=3)
    assert found == ClusterRequest((MachineRange("m5.large", 1, None), MachineRange("m5.xlarge", 0, 4)), 2, 3)


def test_without_a_maximum_nothing_is_rented_beyond_the_minimum(tmp_path: Path) -> None:
    assert requested(tmp_path, instances=[{"ec2Instance": "m5.large"}]) == ClusterRequest(
        (MachineRange("m5.large"),), 1, 1
    )
    found = requested(tmp_path, instances=[{"ec2Instance": "m5.large", "minInstances": 2, "maxInstances": 5}])
    assert (found.least, found.most) == (2, 5)


def test_gpus_only_where_asked(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not ask"):
        requested(tmp_path, instances=[{"ec2Instance": "p3.2xlarge"}])
    named = requested(tmp_path, instances=[{"ec2Instance": "t2.micro", "additionalHardware": ["GPU"]}])
    assert named.machines[0].type == "t2.micro"
    asked = requested(tmp_path, instances=[{"ec2Instance": "p3.2xlarge", "additionalHardware": ["GPU"]}])
    assert asked.machines[0].type == "p3.2xlarge"


def test_no_type_means_the_cheapest_that_fits(tmp_path: Path) -> None:
    provider = LocalProvider(tmp_path)
    plain = requested(tmp_path, maxTotalInstances=2).machines[0].type
    with_gpu = requested(tmp_path, instances=[{"additionalHardware": ["GPU"]}]).machines[0].type
    assert provider.offer(plain).price.usd_per_h < provider.offer(with_gpu).price.usd_per_h


def test_contradictions_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="at least and 2 at most"):
        requested(tmp_path, instances=[{"ec2Instance": "m5.large", "maxInstances": 2}], minTotalInstances=3)
    with pytest.raises(BadInput, match="z5"):
        requested(tmp_path, instances=[{"ec2Instance": "z5.large"}])


def request(tmp_path: Path, **more: Any) -> TrainingRequest:
    (tmp_path / "data.csv").write_text("x,y\n1,2\n2,4\n")
    said = {"domain": "regression", "dataset": {"path": str(tmp_path / "data.csv"), "target": "y"}}
    return TrainingRequest.parse({**said, **more})


def test_machines_are_for_spark_alone(tmp_path: Path) -> None:
    asked = request(tmp_path)
    with pytest.raises(BadInput, match="--engine spark"):
        cluster_for_request(asked, "local", None, "3*m5.large", "local", tmp_path, tmp_path)
    with pytest.raises(BadInput, match="--master"):
        cluster_for_request(asked, "spark", "spark://x:1", None, "ec2:aws.yaml", tmp_path, tmp_path)
    with pytest.raises(BadInput, match="nothing to rent"):
        cluster_for_request(asked, "spark", None, None, {"hosts": "x"}, tmp_path, tmp_path)
    assert cluster_for_request(asked, "spark", None, None, "local", tmp_path, tmp_path) is None
    limited = request(tmp_path, computationalResources={"maxTotalInstances": 3})
    assert cluster_for_request(limited, "local", None, None, "local", tmp_path, tmp_path) is None


def test_a_cluster_in_words_comes_before_the_request(tmp_path: Path) -> None:
    asked = request(tmp_path, computationalResources={"maxTotalInstances": 9})
    found = cluster_for_request(
        asked, "spark", None, "3*m5.large", "local", tmp_path / "out", tmp_path / "home"
    )
    assert found is not None
    assert found.request == ClusterRequest.exactly(3, "m5.large")
    assert parallelism_of(found) == 6
    assert cluster_trial_price(found, 6).usd_per_h == pytest.approx(
        found.offer("m5.large").price.usd_per_h / 2
    )
    assert found.held == {}
    with pytest.raises(BadInput):
        cluster_for_request(asked, "spark", None, "3*m5.larg", "local", tmp_path / "out", tmp_path / "home")


def test_a_slip_in_the_path_of_the_data_costs_no_machine(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    asked = {
        "domain": "regression",
        "dataset": {"path": str(tmp_path / "dat.csv"), "target": "y"},
        "computationalResources": {"maxTotalInstances": 3},
    }
    (tmp_path / "data.csv").write_text("x,y\n1,2\n2,4\n")
    with pytest.raises(BadInput, match=r"data\.csv"):
        train(asked, engine="spark", out=tmp_path / "out", home=tmp_path / "home")
    assert LeaseRegister(tmp_path / "home").leases() == ()


def test_what_earlier_sessions_of_a_request_have_paid_is_counted(tmp_path: Path) -> None:
    provider, register = LocalProvider(tmp_path / "home"), LeaseRegister(tmp_path / "home")

    def rent(run: str) -> float:
        with Rental(provider, "m5.large", run=run, register=register) as rental:
            rental.channel()
        return rental.cost_usd()

    def paid_usd() -> float:
        return paid_before(tmp_path, register, provider, "mine")

    rent("mine")  # by an older request with this name
    assert paid_usd() == 0.0  # the first session begins
    mine_usd = rent("mine")
    rent("another")
    assert paid_usd() == pytest.approx(mine_usd)
    assert mine_usd > 0
    both_usd = mine_usd + rent("mine")
    assert paid_usd() == pytest.approx(both_usd)
