"""Which machines come of an order on EC2: zones, types, spot, tags, and what is said when none come."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from hypothesis import given
from hypothesis import strategies as st

from prudent.cloud.providers.ec2.client import kind_of, translated
from prudent.cloud.providers.ec2.tags import LONGEST, notes_text, price_of, price_text, tag_map
from prudent.cloud.providers.provider import (
    CAPACITY,
    CONFIG,
    GONE,
    PENDING,
    QUOTA,
    TRANSIENT,
    LaunchFailed,
    LaunchOrder,
)
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price

from ...ec2_cloud import Ec2Cloud
from ...ec2_faults import Faults


def order(**changes: Any) -> LaunchOrder:
    return replace(LaunchOrder("c-1", "run-1", "me", "m5.large", 2, time.time() + 600.25), **changes)


def refused(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "No."}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "RunInstances",
    )


# Zones and types


def test_the_next_zone_is_tried_and_the_reason_kept(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    Faults(provider, {"RunInstances": ["InsufficientInstanceCapacity"]})
    made = provider.launch(order())
    assert {one.zone for one in made} == {"us-east-1b"}
    for one in (*made, *cloud.provider().list()):
        assert one.notes == (
            "m5.large in us-east-1a: InsufficientInstanceCapacity: has no such machine free",
        )


def test_then_the_next_type(cloud: Ec2Cloud) -> None:
    provider = cloud.provider(alternatives={"m5.large": ["m5a.large"]})
    Faults(provider, {"RunInstances": ["InsufficientInstanceCapacity", "Unsupported"]})
    made = provider.launch(order())
    assert {(one.type, one.zone) for one in made} == {("m5a.large", "us-east-1a")}
    assert made[0].price.usd_per_h == pytest.approx(0.086)
    assert len(made[0].notes) == 2


def test_a_quota_is_the_same_in_every_zone(cloud: Ec2Cloud) -> None:
    provider = cloud.provider(alternatives={"m5.large": ["t3.medium"]})
    faults = Faults(provider, {"RunInstances": ["VcpuLimitExceeded"]})
    assert {one.type for one in provider.launch(order())} == {"t3.medium"}
    assert faults.calls["RunInstances"] == 2


def test_a_wrong_setting_is_not_tried_elsewhere(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    faults = Faults(provider, {"RunInstances": ["InvalidParameterValue"] * 9})
    with pytest.raises(LaunchFailed) as failed:
        provider.launch(order())
    assert failed.value.kind == CONFIG
    assert faults.calls["RunInstances"] == 1


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("InsufficientInstanceCapacity", CAPACITY, "try again later"),
        ("SpotMaxPriceTooLow", CAPACITY, "asks more for spot machines"),
        ("VcpuLimitExceeded", QUOTA, "higher quota"),
        ("InvalidSubnetID.NotFound", CONFIG, "prudent check"),
        ("UnauthorizedOperation", CONFIG, "may not launch 2*m5.large"),
        ("AuthFailure", CONFIG, "aws configure"),
    ],
)
def test_what_is_said_when_none_come(cloud: Ec2Cloud, code: str, kind: str, says: str) -> None:
    provider = cloud.provider()
    Faults(provider, {"RunInstances": [code] * 9})
    with pytest.raises(LaunchFailed) as failed:
        provider.launch(order())
    assert failed.value.kind == kind
    assert says in str(failed.value)
    assert code in str(failed.value)
    assert str(failed.value).endswith(".")
    assert cloud.machines() == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused("InsufficientHostCapacity", 500), CAPACITY),
        (refused("InstanceLimitExceeded"), QUOTA),
        (refused("MaxSpotInstanceCountExceeded"), QUOTA),
        (refused("RequestLimitExceeded", 503), TRANSIENT),
        (refused("SomethingNew", 500), TRANSIENT),
        (refused("SomethingNew", 400), CONFIG),
        (ReadTimeoutError(endpoint_url="https://x"), TRANSIENT),
        (ConnectionClosedError(endpoint_url="https://x"), TRANSIENT),
        (EndpointConnectionError(endpoint_url="https://x"), TRANSIENT),
        (NoCredentialsError(), CONFIG),
    ],
)
def test_kinds(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_errors_are_the_users_or_the_worlds() -> None:
    assert isinstance(translated(NoCredentialsError(), "list machines"), BadInput)
    assert isinstance(translated(refused("AccessDenied"), "list machines"), BadInput)
    assert isinstance(translated(refused("RequestLimitExceeded", 503), "list machines"), RunFailed)


def test_without_subnets_there_are_zones(cloud: Ec2Cloud) -> None:
    provider = cloud.provider(subnets=None, zones=["us-east-1c", "us-east-1d"])
    Faults(provider, {"RunInstances": ["InsufficientInstanceCapacity"]})
    [one, _] = provider.launch(order())
    assert one.zone == "us-east-1d"


def test_without_either_ec2_chooses(cloud: Ec2Cloud) -> None:
    assert len(cloud.provider(subnets=None).launch(order())) == 2


def test_nobody_launches_no_machines(cloud: Ec2Cloud) -> None:
    with pytest.raises(BadInput, match="order one or more"):
        cloud.provider().launch(order(count=0))


# What machines are made of


def test_what_a_machine_is_launched_with(cloud: Ec2Cloud) -> None:
    cloud.client.create_key_pair(KeyName="mine")
    cloud.service("iam").create_instance_profile(InstanceProfileName="worker")
    provider = cloud.provider(key="mine", instance_profile="worker", disk_gb=50, tags={"team": "red"})
    wanted = order()
    provider.launch(wanted)
    for machine in cloud.machines():
        assert machine["KeyName"] == "mine"
        assert machine["MetadataOptions"]["HttpTokens"] == "required"
        assert machine["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
        [card] = machine["NetworkInterfaces"]
        assert [one["GroupId"] for one in card["Groups"]] == [cloud.group]
        assert machine["PublicIpAddress"]
        ended = cloud.client.describe_instance_attribute(
            InstanceId=machine["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
        )
        assert ended["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
        assert machine["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"]
        tags = tag_map(machine)
        assert tags["team"] == "red"
        assert tags["prudent"] == "machine"
        assert tags["prudent:run"] == "run-1"
        assert tags["prudent:owner"] == "me"
        assert float(tags["prudent:lease-end-s"]) == wanted.lease_end_s
        assert tags["prudent:host-key"].startswith("ssh-ed25519 ")
    profiles = cloud.client.describe_iam_instance_profile_associations()["IamInstanceProfileAssociations"]
    assert profiles[0]["IamInstanceProfile"]["Arn"].endswith("/worker")
    assert {volume["Size"] for volume in cloud.client.describe_volumes()["Volumes"]} == {50}


def test_arm_machines_get_an_arm_image(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    provider.launch(order(cluster="x", count=1))
    provider.launch(order(cluster="y", count=1, type="m6g.large"))
    kinds = {
        machine["InstanceType"]: cloud.client.describe_images(ImageIds=[machine["ImageId"]])["Images"][0]
        for machine in cloud.machines()
    }
    assert kinds["m5.large"]["Architecture"] == "x86_64"
    assert kinds["m6g.large"]["Architecture"] == "arm64"


def test_an_image_for_other_processors_is_refused(cloud: Ec2Cloud) -> None:
    image = cloud.client.describe_images(Filters=[{"Name": "architecture", "Values": ["arm64"]}])["Images"][0]
    with pytest.raises(BadInput, match=r"is for arm64, but m5.large is x86_64"):
        cloud.provider(image=image["ImageId"]).launch(order())


def test_names_that_no_tag_can_hold(cloud: Ec2Cloud) -> None:
    with pytest.raises(BadInput, match="shorten it"):
        cloud.provider().launch(order(run="r" * 300))
    assert cloud.machines() == []


# Prices


def test_prices_on_demand_have_the_date_of_the_catalog(cloud: Ec2Cloud) -> None:
    offer = cloud.provider().offer("m5.large")
    assert offer.price == Price(0.096, "2025-01-01", "catalog aws us-east-1", 60.0)
    assert (offer.vcpus, offer.memory_gb) == (2, 8)


def test_prices_of_another_region_say_so(cloud: Ec2Cloud) -> None:
    assert cloud.provider(region="eu-west-1").offer("m5.large").price.source.endswith(", not eu-west-1")


def test_own_prices(cloud: Ec2Cloud) -> None:
    (cloud.folder / "mine.csv").write_text("name,price_usd_per_h,date\nm5.large,0.08,2026-02-01\n")
    assert cloud.provider(prices="mine.csv").offer("m5.large").price.usd_per_h == 0.08


def history(*entries: tuple[str, str, str]) -> str:
    items = "".join(
        f"<item><instanceType>m5.large</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{price}</spotPrice><timestamp>{at}</timestamp><availabilityZone>{zone}</availabilityZone>"
        "</item>"
        for zone, at, price in entries
    )
    return (
        '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet></DescribeSpotPriceHistoryResponse>"
    )


def answered(provider: Any, operation: str, text: str) -> None:
    """What moto cannot say, said in its place."""
    from ...ec2_faults import _answer

    provider.clients.ec2.meta.events.register_first(
        f"before-send.ec2.{operation}", lambda request, **_: _answer(request, 200, text)
    )


def test_spot_is_the_last_price_of_the_cheapest_zone_of_ours(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    answered(
        provider,
        "DescribeSpotPriceHistory",
        history(
            ("us-east-1a", "2026-05-01T10:00:00Z", "0.031"),
            ("us-east-1a", "2026-05-02T10:00:00Z", "0.041"),
            ("us-east-1b", "2026-05-02T23:00:00Z", "0.036"),
            ("us-east-1f", "2026-05-02T23:00:00Z", "0.001"),
        ),
    )
    offer = provider.offer("m5.large", spot=True)
    assert (offer.price.usd_per_h, offer.zone) == (0.036, "us-east-1b")
    assert (offer.price.date, offer.price.source) == ("2026-05-02", "spot aws us-east-1b")
    [one, _] = provider.launch(order(spot=True))
    assert one.spot
    assert (one.zone, one.price.usd_per_h) == ("us-east-1a", 0.041)
    assert {machine["InstanceLifecycle"] for machine in cloud.machines()} == {"spot"}


def test_a_type_without_a_spot_price(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    answered(provider, "DescribeSpotPriceHistory", history())
    with pytest.raises(BadInput, match=r"no spot price for m5.large"):
        provider.offer("m5.large", spot=True)


def test_spot_asks_for_machines_that_end_when_taken(cloud: Ec2Cloud) -> None:
    provider = cloud.provider(spot_max_usd_per_h="$0.05")
    [(site, _)] = [(site, None) for site in provider_sites(provider)][:1]
    request = provider._request(order(spot=True), site, ())
    assert request["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {
            "SpotInstanceType": "one-time",
            "InstanceInterruptionBehavior": "terminate",
            "MaxPrice": "0.050000",
        },
    }
    kinds = [one["ResourceType"] for one in request["TagSpecifications"]]
    assert kinds == ["instance", "volume", "network-interface", "spot-instances-request"]


def provider_sites(provider: Any) -> list[Any]:
    from prudent.cloud.providers.ec2.launch import launch_targets

    return list(launch_targets(provider.place, "m5.large", provider._images.zone))


# Machines that are taken away


REQUESTS = (
    '<DescribeSpotInstanceRequestsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    "<spotInstanceRequestSet><item><spotInstanceRequestId>sir-1</spotInstanceRequestId><status>"
    "<code>{code}</code><message>in two minutes</message></status></item></spotInstanceRequestSet>"
    "</DescribeSpotInstanceRequestsResponse>"
)


def described(machine: str, state: str, code: str = "", request: str = "") -> str:
    spot = f"<spotInstanceRequestId>{request}</spotInstanceRequestId>" if request else ""
    return (
        '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet><item>'
        f"<instancesSet><item><instanceId>{machine}</instanceId><instanceType>m5.large</instanceType>{spot}"
        f"<instanceState><name>{state}</name></instanceState><launchTime>2026-05-02T10:00:00Z</launchTime>"
        f"<stateReason><code>{code}</code><message>{code}: no longer</message></stateReason>"
        "</item></instancesSet></item></reservationSet></DescribeInstancesResponse>"
    )


@pytest.mark.parametrize("code", ["marked-for-termination", "instance-terminated-by-price"])
def test_an_interruption_is_known_before_it_comes(cloud: Ec2Cloud, code: str) -> None:
    provider = cloud.provider()
    [one, _] = provider.launch(order())
    answered(provider, "DescribeInstances", described(one.id, "running", "", "sir-1"))
    answered(provider, "DescribeSpotInstanceRequests", REQUESTS.format(code=code))
    assert code in (provider.preempted(one) or "")


@pytest.mark.parametrize(
    "code", ["fulfilled", "request-canceled-and-instance-running", "instance-terminated-by-user"]
)
def test_a_spot_machine_that_may_stay(cloud: Ec2Cloud, code: str) -> None:
    provider = cloud.provider()
    [one, _] = provider.launch(order())
    answered(provider, "DescribeInstances", described(one.id, "running", "", "sir-1"))
    answered(provider, "DescribeSpotInstanceRequests", REQUESTS.format(code=code))
    assert provider.preempted(one) is None


@pytest.mark.parametrize(
    ("code", "taken"),
    [
        ("Server.SpotInstanceTermination", True),
        ("Server.InternalError", True),
        ("Client.UserInitiatedShutdown", False),
        ("Client.InstanceInitiatedShutdown", False),
    ],
)
def test_who_ended_a_machine(cloud: Ec2Cloud, code: str, taken: bool) -> None:
    provider = cloud.provider()
    [one, _] = provider.launch(order())
    answered(provider, "DescribeInstances", described(one.id, "terminated", code))
    assert bool(provider.preempted(one)) is taken


def test_a_machine_that_dies_while_it_boots_is_capacity(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    made = provider.launch(order(count=1))
    answered(
        provider,
        "DescribeInstances",
        described(made[0].id, "terminated", "Server.InsufficientInstanceCapacity"),
    )
    with pytest.raises(LaunchFailed, match="gone before it could be used") as failed:
        provider.ready(made, 5)
    assert failed.value.kind == CAPACITY
    assert cloud.machines() == []


def test_a_stopped_machine_is_still_there(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    made = provider.launch(order())
    cloud.client.stop_instances(InstanceIds=[made[0].id])
    assert {one.id: one.state for one in provider.list()}[made[0].id] == PENDING


def test_machines_of_others_are_not_ours(cloud: Ec2Cloud) -> None:
    image = cloud.client.describe_images()["Images"][0]["ImageId"]
    cloud.client.run_instances(ImageId=image, MinCount=1, MaxCount=1)
    assert len(cloud.machines()) == 1
    assert cloud.provider().list() == ()


def test_a_machine_without_a_lease_is_long_past(cloud: Ec2Cloud) -> None:
    """Somebody took the tags away; the reaper must find it all the same."""
    [one, _] = cloud.provider().launch(order())
    cloud.client.delete_tags(
        Resources=[one.id],
        Tags=[{"Key": "prudent:lease-end-s"}, {"Key": "prudent:price"}, {"Key": "prudent:host-key"}],
    )
    found = {other.id: other for other in cloud.provider().list()}[one.id]
    assert found.lease_end_s == 0
    assert found.price.source == "unknown"
    with pytest.raises(RunFailed, match="cannot be trusted"):
        cloud.provider().channel(found)
    assert replace(found, state=GONE).cluster == one.cluster


# Texts


SOURCES = st.text("abc de-1", min_size=1).map(str.strip)


@given(st.floats(0, 1e6), st.sampled_from(["", "2025-01-01"]), SOURCES, st.floats(0, 600))
def test_prices_survive_their_tag(usd: float, date: str, source: str, minimum_s: float) -> None:
    price = Price(usd, date, source, minimum_s)
    assert price_of(price_text(price)) == price


@given(st.lists(st.text("abc: /", min_size=1, max_size=300), min_size=1, max_size=12))
def test_notes_fit_a_tag(notes: list[str]) -> None:
    assert len(notes_text(notes)) <= LONGEST
