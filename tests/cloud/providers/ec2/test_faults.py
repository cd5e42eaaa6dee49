"""Whatever is lost between us and EC2: no machine without its tags, and an order is one cluster."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prudent.cloud.providers.provider import TRANSIENT, Instance, LaunchFailed, LaunchOrder
from prudent.core.errors import PrudentError

from ...ec2_cloud import Ec2Cloud
from ...ec2_faults import Crash, Faults

COUNT = 2


def order(**changes: Any) -> LaunchOrder:
    wanted = LaunchOrder("c-1", "run-1", "me", "m5.large", COUNT, time.time() + 600)
    return replace(wanted, **changes)


def assert_all_known(cloud: Ec2Cloud, wanted: LaunchOrder) -> None:
    """Every machine that is there, and every disk, says whose it is and until when."""
    listed = {one.id: one for one in cloud.provider().list()}
    for machine in cloud.machines():
        one = listed[machine["InstanceId"]]
        assert (one.cluster, one.run, one.owner) == (wanted.cluster, wanted.run, wanted.owner)
        assert one.lease_end_s > time.time()
        assert one.price.usd_per_h > 0
    for volume in cloud.client.describe_volumes()["Volumes"]:
        assert {"Key": "prudent:cluster", "Value": wanted.cluster} in volume["Tags"]


def launched_again(cloud: Ec2Cloud, wanted: LaunchOrder) -> tuple[Instance, ...]:
    """The same order from a new program, when the trouble is over: exactly one cluster."""
    made = cloud.provider().launch(wanted)
    assert {one.id for one in made} == {one["InstanceId"] for one in cloud.machines()}
    assert [one.index for one in made] == list(range(wanted.count))
    assert_all_known(cloud, wanted)
    return made


def marked(cases: list[str]) -> list[Any]:
    """Cases for the soak only."""
    return [pytest.param(case, marks=pytest.mark.soak) for case in cases]


def some_of(cases: list[tuple[Any, ...]], *names: list[Any]) -> list[Any]:
    """Every combination; all but the cases that are named are for the soak."""
    return [
        pytest.param(*case, marks=() if case in cases else pytest.mark.soak)
        for case in itertools.product(*names)
    ]


@pytest.mark.parametrize(
    ("fault", "times", "unlisted"),
    some_of(
        [
            ("lost", 1, 0),
            ("unheard", 3, 4),
            ("throttled", 1, 4),
        ],
        ["lost", "unheard", "reset", "broken", "throttled"],
        [1, 3],
        [0, 4],
    ),
)
def test_a_fault_that_passes_is_not_noticed(cloud: Ec2Cloud, fault: str, times: int, unlisted: int) -> None:
    provider = cloud.provider()
    faults = Faults(provider, {"RunInstances": [fault] * times, "DescribeInstances": ["unlisted"] * unlisted})
    first = provider.launch(order())
    assert faults.calls["RunInstances"] == times + 1
    assert_all_known(cloud, order())
    assert [one.id for one in launched_again(cloud, order())] == [one.id for one in first]


@pytest.mark.parametrize("fault", ["lost", *marked(["throttled"])])
def test_a_fault_that_stays_is_told_as_one(cloud: Ec2Cloud, fault: str) -> None:
    provider = cloud.provider()
    Faults(provider, {"RunInstances": [fault] * 99})
    with pytest.raises(LaunchFailed, match=r"try again in a minute\.$") as failed:
        provider.launch(order())
    assert failed.value.kind == TRANSIENT
    assert cloud.machines() == []
    launched_again(cloud, order())


@pytest.mark.parametrize(
    ("fault", "unlisted"),
    some_of([("unheard", 5), ("reset", 0), ("broken", 0)], ["unheard", "reset", "broken"], [0, 5]),
)
def test_machines_whose_answers_all_were_lost_are_found(cloud: Ec2Cloud, fault: str, unlisted: int) -> None:
    provider = cloud.provider()
    Faults(provider, {"RunInstances": [fault] * 99, "DescribeInstances": ["unlisted"] * unlisted})
    found = provider.launch(order())
    assert {one.id for one in found} == {one["InstanceId"] for one in cloud.machines()}
    assert [one.id for one in launched_again(cloud, order())] == [one.id for one in found]


@pytest.mark.parametrize(("later_s", "unlisted"), some_of([(0.0, 4), (300.0, 0)], [0.0, 300.0], [0, 4]))
def test_a_program_that_dies_after_the_launch(cloud: Ec2Cloud, later_s: float, unlisted: int) -> None:
    """Its successor asks with the same token, a new host key and perhaps a later lease, which EC2 refuses."""
    wanted = order()
    provider = cloud.provider()
    Faults(provider, {"RunInstances": ["crash"]})
    with pytest.raises(Crash):
        provider.launch(wanted)
    assert len(cloud.machines()) == COUNT
    assert_all_known(cloud, wanted)
    successor = cloud.provider()
    Faults(successor, {"DescribeInstances": ["unlisted"] * unlisted})
    made = successor.launch(replace(wanted, lease_end_s=wanted.lease_end_s + later_s))
    assert {one.id for one in made} == {one["InstanceId"] for one in cloud.machines()}


@pytest.mark.parametrize("listed", [True, False])
def test_a_cluster_that_is_gone_is_launched_anew(cloud: Ec2Cloud, listed: bool) -> None:
    """EC2 remembers a token longer than its machines, and shows those that are gone only for a while."""
    for _ in range(2):
        before = cloud.provider().launch(order())
        cloud.provider().terminate(before)
        assert cloud.machines() == []
        provider = cloud.provider()
        Faults(provider, {} if listed else {"DescribeInstances": ["unlisted"]})
        made = provider.launch(order())
        assert not {one.id for one in made} & {one.id for one in before}
        assert {one.id for one in made} == {one["InstanceId"] for one in cloud.machines()}
        cloud.provider().terminate(made)


def test_half_a_cluster_is_no_cluster(cloud: Ec2Cloud) -> None:
    before = cloud.provider().launch(order())
    cloud.client.terminate_instances(InstanceIds=[before[0].id])
    made = launched_again(cloud, order())
    assert not {one.id for one in made} & {one.id for one in before}


def test_a_second_cluster_of_one_order_is_ended(cloud: Ec2Cloud) -> None:
    """A zone that was full, a launch in the next one, a crash, and a listing that does not show it yet."""
    wanted = order()
    provider = cloud.provider()
    Faults(provider, {"RunInstances": ["InsufficientInstanceCapacity", "crash"]})
    with pytest.raises(Crash):
        provider.launch(wanted)
    successor = cloud.provider(sleep=time.sleep)
    Faults(successor, {"DescribeInstances": ["unlisted"]})
    with cloud.entered():
        kept = successor.ready(successor.launch(wanted), 30)
    assert {one.id for one in kept} == {one["InstanceId"] for one in cloud.machines()}


@pytest.mark.parametrize("fault", ["unheard", *marked(["lost", "broken", "throttled"])])
def test_ending_is_asked_again(cloud: Ec2Cloud, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    provider = cloud.provider()
    made = provider.launch(order())
    Faults(provider, {"TerminateInstances": [fault] * 3})
    provider.terminate(made)
    assert cloud.machines() == []


def test_ending_machines_that_are_not_listed_yet(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    made = provider.launch(order())
    unknown = "InvalidInstanceID.NotFound"
    Faults(provider, {"TerminateInstances": [unknown] * 2, "DescribeInstances": ["unlisted"] * 2})
    provider.terminate(made)
    assert cloud.machines() == []


def test_one_unknown_machine_does_not_save_the_others(cloud: Ec2Cloud) -> None:
    provider = cloud.provider()
    made = provider.launch(order())
    stranger = replace(made[0], id="i-0123456789abcdef0", launched_s=0.0)
    provider.terminate([stranger, *made])
    assert cloud.machines() == []
    provider.renew([stranger], time.time() + 60)


WORDS = st.sampled_from(["ok", "lost", "unheard", "reset", "broken", "throttled", "crash"])
REFUSALS = st.sampled_from(["InsufficientInstanceCapacity", "VcpuLimitExceeded", "InvalidParameterValue"])


PLANS = st.lists(
    st.tuples(st.lists(WORDS | REFUSALS, max_size=7), st.lists(st.just("unlisted"), max_size=2)),
    min_size=1,
    max_size=3,
)
ON_ONE_CLOUD = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=4, **ON_ONE_CLOUD)
@given(plans=PLANS, ends=st.booleans())
def test_any_faults_any_number_of_programs(cloud: Ec2Cloud, plans: list[Any], ends: bool) -> None:
    follow_each_other(cloud, plans, ends)


@pytest.mark.soak
@settings(max_examples=40, **ON_ONE_CLOUD)
@given(plans=PLANS, ends=st.booleans())
def test_many_more_faults(cloud: Ec2Cloud, plans: list[Any], ends: bool) -> None:
    follow_each_other(cloud, plans, ends)


def follow_each_other(cloud: Ec2Cloud, plans: list[Any], ends: bool) -> None:
    """Programs follow each other, each with its own trouble; the last one has none.

    With a listing that lags at the worst moment two clusters of one order may be there for a while, each
    with its tags; `ready` keeps one. So the last program looks, as any does, and waits.
    """
    wanted = order(cluster=f"c-{time.monotonic_ns()}")
    for run_instances, describe in plans:
        provider = cloud.provider()
        Faults(provider, {"RunInstances": run_instances, "DescribeInstances": describe})
        try:
            made = provider.launch(wanted)
            if ends:
                provider.terminate(made)
        except (Crash, PrudentError):
            pass
        assert_all_known(cloud, wanted)
    last = cloud.provider()
    made = last.launch(wanted)
    last._wait._running(made, time.monotonic() + 60)
    assert {one.id for one in made} == {one["InstanceId"] for one in cloud.machines()}
    last.terminate(made)
    assert cloud.machines() == []


@pytest.mark.parametrize("many", [12, pytest.param(100, marks=pytest.mark.soak)])
def test_many_clusters_at_once(cloud: Ec2Cloud, many: int) -> None:
    provider = cloud.provider()
    orders = [order(cluster=f"c-{number}", count=1) for number in range(many)]
    with ThreadPoolExecutor(min(many, 32)) as several:
        launched = list(several.map(provider.launch, orders))
        assert len(provider.list()) == many
        list(several.map(provider.terminate, launched))
    assert provider.list() == ()
