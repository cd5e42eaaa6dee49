"""What is wrong with a place on EC2 is said before anything is launched, each with its remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput

from ..ec2_cloud import Ec2Cloud
from ..ec2_faults import Faults, refusal


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
    monkeypatch.setattr("prudent.cloud.providers.ec2_check._own_address", lambda: "192.0.2.9")
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
    from ..ec2_faults import _answer

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


def test_an_endpoint_where_nobody_is(cloud: Ec2Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    [said] = wrong(cloud, "m5.large", endpoint="http://127.0.0.1:9")
    assert "Check the region and the network" in said
    [said] = wrong(cloud, "m5.large", endpoint="no address")
    assert "mend region or endpoint" in said


def test_refusals_are_what_ec2_says() -> None:
    """The texts that these tests put into EC2's mouth are read as its errors."""

    class Request:
        url = "http://x"

    assert b"<Code>X</Code>" in refusal(Request(), "X", 400).content
