"""What is wrong with a place on EC2 is said before anything is launched, each with its remedy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from moto.core.exceptions import JsonRESTError
from moto.servicequotas.models import ServiceQuotasBackend

from prudent.cloud.providers.provider import LaunchOrder
from prudent.core.errors import BadInput

from ...ec2_cloud import Ec2Cloud
from ...ec2_faults import Faults, refusal


def wrong(cloud: Ec2Cloud, *types: str, **changes: Any) -> list[str]:
    found = cloud.provider(**changes).check(types)
    assert all(said.endswith(".") and "\n" not in said for said in found)
    assert cloud.machines() == []
    return found


def test_nothing_is_wrong(cloud: Ec2Cloud) -> None:
    cloud.client.create_key_pair(KeyName="mine")
    cloud.service("iam").create_instance_profile(InstanceProfileName="worker")
    assert wrong(cloud, "m5.large", "m6g.large", key="mine", instance_profile="worker") == []
    assert wrong(cloud) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"subnets": ["subnet-0123"]}, "subnet-0123"),
        ({"security_groups": ["sg-0123"]}, "security group sg-0123"),
        ({"security_groups": None}, "the default one lets nobody in"),
        ({"image": "ami-0123"}, "ami-0123"),
        ({"key": "nobody"}, "key pair nobody"),
        ({"key_file": "/nowhere/key"}, "no key file /nowhere/key"),
        ({"key_file": None}, "No key lets us in"),
        ({"instance_profile": "nobody"}, 'no instance profile "nobody"'),
        ({"zones": ["us-east-1z"], "subnets": None}, "Did you mean"),
        ({"region": "us-east1"}, 'Did you mean "us-east-1"'),
        ({"alternatives": {"m5.large": ["m5.lagre"]}}, '"m5.lagre"'),
    ],
)
def test_each_problem_is_one_sentence(cloud: Ec2Cloud, changes: dict[str, Any], says: str) -> None:
    [said] = wrong(cloud, "m5.large", **changes)
    assert says in said


def test_several_problems_are_all_said(cloud: Ec2Cloud) -> None:
    said = wrong(cloud, "m5.lagre", security_groups=["sg-0123"], key="nobody")
    assert len(said) == 3


def test_a_closed_port(cloud: Ec2Cloud) -> None:
    [said] = wrong(cloud, "m5.large", port=2222)
    assert "lets nobody in at port 2222" in said


def test_a_port_that_is_open_for_others_only(cloud: Ec2Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prudent.cloud.providers.ec2.check._own_address", lambda: "192.0.2.9")
    vpc = cloud.client.describe_vpcs()["Vpcs"][0]["VpcId"]
    group = cloud.client.create_security_group(GroupName="g", Description="g", VpcId=vpc)["GroupId"]
    cloud.client.authorize_security_group_ingress(
        GroupId=group, IpProtocol="tcp", FromPort=20, ToPort=30, CidrIp="10.0.0.0/8"
    )
    [said] = wrong(cloud, "m5.large", security_groups=[group], address="private")
    assert "for 10.0.0.0/8, not for this computer (192.0.2.9)" in said
    assert wrong(cloud, "m5.large", security_groups=[group]) == []


def test_a_type_that_these_zones_lack(cloud: Ec2Cloud) -> None:
    [said] = wrong(cloud, "m5.large", subnets=[cloud.subnets["us-east-1e"]])
    assert "not offered in us-east-1e, only in us-east-1a" in said


def test_without_credentials_nothing_else_is_asked(
    cloud: Ec2Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    [said] = wrong(cloud, "m5.large", security_groups=None)
    assert "no AWS credentials" in said
    assert "aws configure" in said
    [said] = wrong(cloud, "m5.large", profile="work")
    assert "work" in said
    with pytest.raises(BadInput, match="aws configure"):
        cloud.provider().list()


@pytest.mark.parametrize("code", ["InvalidClientTokenId", "ExpiredToken", "AuthFailure"])
def test_credentials_that_are_not_accepted(cloud: Ec2Cloud, code: str) -> None:
    provider = cloud.provider()
    provider.clients.sts.meta.events.register_first(
        "before-send.sts", lambda request, **_: sts_refusal(request, code)
    )
    [said] = provider.check(["m5.large"])
    assert "does not accept these credentials" in said


def sts_refusal(request: Any, code: str) -> Any:
    from ...ec2_faults import _answer

    text = f"<ErrorResponse><Error><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
    return _answer(request, 403, text)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("UnauthorizedOperation", "attach the policy of prudent infra aws"),
        ("VcpuLimitExceeded", "ask AWS for a higher quota"),
    ],
)
def test_what_only_a_pretended_launch_tells(cloud: Ec2Cloud, code: str, says: str) -> None:
    provider = cloud.provider()
    Faults(provider, {"RunInstances": [code]})
    [said] = provider.check(["m5.large"])
    assert says in said


@pytest.fixture
def quotas(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What moto leaves out: it knows quotas of networks only."""
    values = {"L-1216C47A": 5.0, "L-34B43A08": 64.0}

    def told(_: Any, service_code: str, quota_code: str) -> dict[str, Any]:
        assert service_code == "ec2"
        return {"QuotaCode": quota_code, "Value": values[quota_code]}

    monkeypatch.setattr(ServiceQuotasBackend, "get_service_quota", told)
    return values


def test_a_quota_that_is_too_small_for_what_is_wanted(cloud: Ec2Cloud, quotas: dict[str, float]) -> None:
    assert wrong(cloud, "2*m5.large") == []
    [said] = wrong(cloud, "3*m5.large")
    assert said.startswith(
        "3*m5.large needs 6 vCPUs, and for on-demand Standard machines this account has 5 in us-east-1, 0 of"
    )
    assert "ask AWS for a higher quota" in said
    assert cloud.provider().check(["3*m5.large"], spot=True) == []


def test_what_runs_already_counts_against_the_quota(cloud: Ec2Cloud, quotas: dict[str, float]) -> None:
    provider = cloud.provider()
    provider.launch(LaunchOrder("c1", "run", "me", "m5.large", 2, time.time() + 600))
    [said] = provider.check(["m5.large"])
    assert "needs 2 vCPUs" in said
    quotas["L-1216C47A"] = 64.0
    assert provider.check(["m5.large"]) == []


def test_who_may_not_ask_for_the_quota_is_only_warned(
    cloud: Ec2Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Denied(JsonRESTError):
        code = 400

    def denied(*_: Any, **__: Any) -> Any:
        raise Denied("AccessDeniedException", "You may not.")

    monkeypatch.setattr(ServiceQuotasBackend, "get_service_quota", denied)
    assert wrong(cloud, "300*m5.large") == []
    assert "could not be looked at (AccessDeniedException); allow servicequotas:" in caplog.text


def test_an_endpoint_where_nobody_is(cloud: Ec2Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    [said] = wrong(cloud, "m5.large", endpoint="http://127.0.0.1:9")
    assert "Check the region and the network" in said
    [said] = wrong(cloud, "m5.large", endpoint="no address")
    assert "correct region or endpoint" in said


def test_refusals_are_what_ec2_says() -> None:
    """The texts that these tests put into EC2's mouth are read as its errors."""

    class Request:
        url = "http://x"

    assert b"<Code>X</Code>" in refusal(Request(), "X", 400).content
