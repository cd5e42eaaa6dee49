"""Fleets from words, and worlds from distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.workflows import Distribution, Fleet, Vm, World


def test_one_slot_per_vm():
    fleet = Fleet.parse("8*m3.medium,3*m3.2xlarge", slots="vm")
    assert len(fleet) == 11
    assert {vm.mips for vm in fleet.vms} == {1000, 4156}
    assert len(fleet.lanes) == 11
    assert str(fleet) == "8*m3.medium,3*m3.2xlarge"


def test_one_slot_per_vcpu_shares_the_speed():
    fleet = Fleet.parse("m3.2xlarge", slots="vcpu")
    assert fleet.vms[0].slots == 8
    assert fleet.vms[0].mips == pytest.approx(4156 / 8)
    assert fleet.lanes[3] == (0, 3)


def test_speeds_can_be_given_and_vms_can_be_spot():
    fleet = Fleet.parse("2*spot:m3.medium,m3.medium", mips={"m3.medium": 1500})
    assert [vm.spot for vm in fleet.vms] == [True, True, False]
    assert [vm.name for vm in fleet.vms] == ["m3.medium-1", "m3.medium-2", "m3.medium-3"]
    assert fleet.vms[0].mips == 1500
    assert str(fleet) == "2*spot:m3.medium,1*m3.medium"


@pytest.mark.parametrize("text", ["", " ", "0*m3.medium", "m9.huge", "x*m3.medium"])
def test_bad_fleets(text):
    with pytest.raises(BadInput):
        Fleet.parse(text)


def test_bad_vms():
    with pytest.raises(BadInput, match="empty"):
        Fleet(())
    with pytest.raises(BadInput, match="MIPS"):
        Vm("v", "m", 0)
    with pytest.raises(BadInput, match="slots"):
        Vm("v", "m", slots=0)
    with pytest.raises(BadInput, match="same name"):
        Fleet((Vm("v", "m"), Vm("v", "m")))
    with pytest.raises(BadInput, match='kind of slots "core"'):
        Fleet.parse("m3.medium", slots="core")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["normal(10, 2)", "lognormal(10, 0.3)", "gamma(4, 2.5)", "weibull(2, 10)", "10"]
)
def test_draws_agree_with_the_mean(text):
    distribution = Distribution.parse(text)
    drawn = distribution.draw(np.random.default_rng(1), 40_000)
    assert drawn.mean() == pytest.approx(distribution.mean, rel=0.02)
    assert drawn.min() >= 0
    assert Distribution.parse(str(distribution)) == distribution


@pytest.mark.parametrize(
    "text", ["poisson(3)", "normal(1)", "normal(a, b)", "soon", "normal(-1, 2)", "gamma(0, 1)"]
)
def test_bad_distributions(text):
    with pytest.raises(BadInput):
        Distribution.parse(text)


@given(st.floats(0, 1e6), st.floats(0, 1e3))
def test_any_normal_reads_back(mean, deviation):
    distribution = Distribution("normal", float(f"{mean:g}"), float(f"{deviation:g}"))
    assert Distribution.parse(str(distribution)) == distribution


@pytest.mark.parametrize(
    "options",
    [
        {"storage": "cloud"},
        {"bandwidth_mb_s": 0},
        {"failure_rate": 1},
        {"retries": -1},
        {"billing": "day"},
        {"boot": "later"},
        {"drift_period_s": 0},
        {"queue_s": "often"},
    ],
)
def test_bad_worlds(options):
    with pytest.raises(BadInput):
        World(**options)


def test_a_calm_world_keeps_means_and_drops_luck():
    world = World(queue_s="gamma(2, 3)", speed="lognormal(1, 0.3)", failure_rate=0.1)
    assert not world.is_calm
    assert world.calm().is_calm
    assert world.calm().queue_s.mean == 6
    assert World().is_calm
    assert World().to_dict() == {}
    assert world.to_dict() == {"queue_s": "gamma(2, 3)", "speed": "lognormal(1, 0.3)", "failure_rate": 0.1}
