"""The space of a request that leaves its machines open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.errors import BadInput
from prudent.training.joint.space import ALGORITHM, MACHINES, JointSpace
from prudent.training.request.request import TrainingRequest
from prudent.training.search.methods import FRACTION, method_plans

METHODS: list[dict[str, Any]] = [
    {"algorithm": "linear-regression", "hyperparameters": [{"param": "regParam", "values": [0.1, 0.2, 0.3]}]},
    {
        "algorithm": "decision-tree-regression",
        "hyperparameters": [{"param": "maxDepth", "values": [2, 4]}, {"param": "maxBins", "values": [8, 16]}],
    },
]


def space_of(methods: list[dict[str, Any]], **more: Any) -> JointSpace:
    said = {"domain": "regression", "dataset": {"path": "d.csv"}, "methods": methods, **more}
    machines = MachineParameter(MACHINES, ["m5.large", "m5.xlarge"], [1, 2])
    return JointSpace(method_plans(TrainingRequest.parse(said)), machines, (1.0, 0.3))


SPACE = space_of(METHODS, transforms=[{"name": "pca", "k": [2, 3]}])


def test_every_configuration_means_another_run() -> None:
    listed = list(SPACE.configurations())
    # Two types, two counts, two shares and two sizes of PCA, with three and with four settings.
    assert SPACE.size == len(listed) == 16 * (3 + 4)
    meant = [SPACE.settings_of(configuration) for configuration in listed]
    runs = {
        (c.plan.algorithm.name, str(c.hyperparameters), str(c.transforms), c.fraction, c.machines)
        for c in meant
    }
    assert len(runs) == len(listed)
    assert len({SPACE.key(configuration) for configuration in listed}) == len(listed)


def test_parameters_of_other_methods_do_not_count() -> None:
    asked = {ALGORITHM: "linear-regression", MACHINES: "2*m5.xlarge", FRACTION: 0.3, "pca.k": 3}
    own = {"linear-regression.regParam": 0.2}
    one = SPACE.check({**asked, **own, "decision-tree-regression.maxDepth": 2})
    assert one == SPACE.check({**asked, **own, "decision-tree-regression.maxDepth": 4})
    settings = SPACE.settings_of(one)
    assert settings.plan.algorithm.name == "linear-regression"
    assert (settings.hyperparameters, settings.transforms) == ({"regParam": 0.2}, {"pca": {"k": 3}})
    assert (settings.fraction, settings.machines, SPACE.machines_of(one)) == (
        0.3,
        "2*m5.xlarge",
        (2, "m5.xlarge"),
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 150), st.integers(0, 10**6), st.sampled_from(["random", "latin"]))
def test_drawn_configurations_differ_and_are_fairly_shared(n: int, seed: int, method: str) -> None:
    drawn = SPACE.sample(n, np.random.default_rng(seed), method)
    assert len({SPACE.key(configuration) for configuration in drawn}) == len(drawn) == min(n, 112)
    linear = sum(configuration[ALGORITHM] == "linear-regression" for configuration in drawn)
    assert abs(linear - min(n / 2, 48)) <= max(1, n - 96)
    assert all(configuration == SPACE.check(configuration) for configuration in drawn)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_neighbours_change_a_little_or_the_method(seed: int) -> None:
    rng = np.random.default_rng(seed)
    [here] = SPACE.sample(1, rng)
    near = SPACE.neighbours(here, rng, 12)
    assert near
    assert all(found in SPACE and SPACE.key(found) != SPACE.key(here) for found in near)
    switched = [found for found in near if found[ALGORITHM] != here[ALGORITHM]]
    assert len(switched) == 1
    assert switched[0][MACHINES] == here[MACHINES]


def test_one_algorithm_may_come_twice_and_ranges_have_no_end() -> None:
    tree: list[dict[str, Any]] = [
        {
            "algorithm": "decision-tree-regression",
            "hyperparameters": [{"param": "maxDepth", "values": [depth]}],
        }
        for depth in (2, 9)
    ]
    space = space_of(tree)
    depths = {space.settings_of(c).hyperparameters["maxDepth"] for c in space.configurations()}
    assert depths == {2, 9}
    endless = {"param": "regParam", "range": [1e-4, 1], "scale": "log"}
    space = space_of([METHODS[1], {"algorithm": "linear-regression", "hyperparameters": [endless]}])
    assert space.size is None
    assert len(space.sample(100, np.random.default_rng(1))) == 100


def test_what_is_not_in_the_space_is_refused() -> None:
    with pytest.raises(BadInput, match=r"m5\.lage"):
        SPACE.check({ALGORITHM: "linear-regression", MACHINES: "1*m5.lage", FRACTION: 1.0, "pca.k": 2})
