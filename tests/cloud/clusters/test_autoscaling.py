"""How many machines of which types: limits are kept whatever trials there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.cloud.clusters.autoscaling import ClusterRequest, MachineRange, ScalingStep, scaling_step
from prudent.core.errors import BadInput

SMALL, LARGE = "m5.large", "m5.xlarge"


def test_minimum_of_each_type_then_the_first_types() -> None:
    request = ClusterRequest((MachineRange(SMALL, most=1), MachineRange(LARGE, least=1)), least=3, most=4)
    assert request.needed({}) == (LARGE, 1)
    assert request.needed({LARGE: 1}) == (SMALL, 1)
    assert request.needed({LARGE: 1, SMALL: 1}) == (LARGE, 1)
    assert request.needed({LARGE: 2, SMALL: 1}) is None


def test_a_refused_type_is_made_up_for_by_the_next() -> None:
    request = ClusterRequest((MachineRange(SMALL), MachineRange(LARGE)), least=2, most=3)
    assert request.needed({}, refused={SMALL}) == (LARGE, 2)
    assert request.needed({}, refused={SMALL, LARGE}) is None


def test_trials_that_wait_get_a_machine_and_idle_ones_go() -> None:
    request = ClusterRequest((MachineRange(SMALL),), least=1, most=3)
    assert scaling_step(request, {SMALL: 1}, {SMALL: 2}, 3) == ScalingStep(SMALL, True)
    assert scaling_step(request, {SMALL: 3}, {SMALL: 2}, 60) is None
    assert scaling_step(request, {SMALL: 2}, {SMALL: 2}, 0) == ScalingStep(SMALL, False)
    assert scaling_step(request, {SMALL: 1}, {SMALL: 2}, 0) is None


@pytest.mark.parametrize(("least", "most"), [(0, 1), (3, 2)])
def test_limits_that_cannot_be_kept_are_refused(least: int, most: int) -> None:
    with pytest.raises(BadInput):
        ClusterRequest((MachineRange(SMALL),), least, most)


def test_types_that_ask_for_more_than_there_may_be_are_refused() -> None:
    with pytest.raises(BadInput, match="in all"):
        ClusterRequest((MachineRange(SMALL, least=2), MachineRange(LARGE, least=2)), 3, 3)


@st.composite
def wishes(draw: st.DrawFn) -> ClusterRequest:
    most = draw(st.integers(1, 12))
    least = draw(st.integers(1, most))
    owed = draw(st.integers(0, least))
    own = draw(st.one_of(st.none(), st.integers(owed, 12)))
    return ClusterRequest(
        (MachineRange(SMALL, most=draw(st.integers(0, 6))), MachineRange(LARGE, least=owed, most=own)),
        least,
        most,
    )


@given(wishes(), st.lists(st.integers(0, 40), max_size=40), st.sets(st.sampled_from([SMALL, LARGE])))
def test_never_more_than_allowed_and_never_fewer_than_the_minimum(
    request: ClusterRequest, trials: list[int], refused: set[str]
) -> None:
    held: dict[str, int] = {}
    cores = {SMALL: 2, LARGE: 4}
    while (missing := request.needed(held, refused)) is not None:
        name, count = missing
        assert count > 0
        held[name] = held.get(name, 0) + count
    begun = dict(held)
    for count in trials:
        found = scaling_step(request, held, cores, count, refused)
        if found is not None:
            held[found.type] = held.get(found.type, 0) + (1 if found.add else -1)
        assert sum(held.values()) <= request.most
        for kind in request.machines:
            assert kind.most is None or held.get(kind.type, 0) <= max(kind.most, kind.least)
            assert held.get(kind.type, 0) >= min(kind.least, begun.get(kind.type, 0))
        assert sum(held.values()) >= min(request.least, sum(begun.values()))


@given(wishes())
def test_with_steady_trials_it_comes_to_rest(request: ClusterRequest) -> None:
    held: dict[str, int] = {}
    while (missing := request.needed(held)) is not None:
        held[missing[0]] = held.get(missing[0], 0) + missing[1]
    for _ in range(30):
        found = scaling_step(request, held, {SMALL: 2, LARGE: 4}, 7)
        if found is None:
            return
        held[found.type] = held.get(found.type, 0) + (1 if found.add else -1)
    raise AssertionError("machines come and go for ever")
