import math
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.parameter_parsing import prefers_log
from prudent.core.parameters import Categorical, Constant, Ordinal, Parameter
from prudent.core.ranges import Integer, Real
from prudent.core.space import Space, infer_parameter

DOCUMENT = """
learning_rate: {log: [1e-5, 1e-1]}
dropout: {real: [0, 0.5]}
decay: {real: [1e-6, 1], log: true}
depth: {integer: [1, 10]}
width: {integer: [16, 1024], log: true, step: 16}
batch: [16, 64, 256]
rates: [1e-3, 1e-4, 1e-5]
cores: [8, 16, 32, 48, 64, 80, 96, 112]
optimiser: [adam, sgd]
flag: [true, false]
size: {values: [S, M, L], ordered: true}
code: {values: [1, 2, 3], ordered: false}
plain: {values: [1, 10, 100], log: false}
epochs: 20
layers: {constant: [64, 64]}
mixed: [1, auto, null]
"""


def test_every_form_of_the_schema() -> None:
    space = Space.parse(yaml.safe_load(DOCUMENT))
    assert list(space.parameters) == [
        Real("learning_rate", 1e-5, 1e-1, log=True),
        Real("dropout", 0, 0.5),
        Real("decay", 1e-6, 1, log=True),
        Integer("depth", 1, 10),
        Integer("width", 16, 1024, log=True, step=16),
        Ordinal("batch", [16, 64, 256], log=True),
        Ordinal("rates", [1e-5, 1e-4, 1e-3], log=True),
        Ordinal("cores", [8, 16, 32, 48, 64, 80, 96, 112]),
        Categorical("optimiser", ["adam", "sgd"]),
        Categorical("flag", [True, False]),
        Ordinal("size", ["S", "M", "L"]),
        Categorical("code", [1, 2, 3]),
        Ordinal("plain", [1, 10, 100]),
        Constant("epochs", 20),
        Constant("layers", (64, 64)),
        Categorical("mixed", [1, "auto", None]),
    ]


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ({"intger": [1, 2]}, 'Did you mean "integer"'),
        ({"integer": [1, 2], "stpe": 2}, 'Did you mean "step"'),
        ({"integer": [1, 2], "real": [0, 1]}, "keep one of them"),
        ({"integer": [1]}, r"\{integer: \[low, high\]\}"),
        ({"integer": 3}, r"\{integer: \[low, high\]\}"),
        ({"log": True}, "does not say its values"),
        ({}, "does not say its values"),
        ({"values": "abc"}, "give a list"),
        ({"values": [1, 2], "ordered": "yes"}, "true or false"),
        ({"values": ["a", "b"], "log": True}, "no log scale"),
        ({"real": ["a", 1]}, "must be numbers"),
        ({"real": [3, 1]}, "smaller bound first"),
        ([], "at least one"),
        ({"machine": [1], "count": 3}, "move it under machine"),
    ],
)
def test_a_wrong_form_is_refused_with_the_remedy(spec: Any, remedy: str) -> None:
    with pytest.raises(BadInput, match=remedy):
        Space.parse({"p": spec}, kinds={"machine": lambda name, spec: Constant(name, 1)})


def test_a_space_must_be_a_mapping_with_text_names() -> None:
    for wrong in ([1], {3: [1, 2]}, {}):
        with pytest.raises(BadInput):
            Space.parse(wrong)  # type: ignore[arg-type]


def test_other_kinds_can_be_added() -> None:
    def make(name: str, spec: Any) -> Parameter:
        return Categorical(name, [f"{spec['count']}*{kind}" for kind in spec["types"]])

    space = Space.parse({"cluster": {"machine": {"types": ["a", "b"], "count": 4}}}, kinds={"machine": make})
    assert space["cluster"].values == ("4*a", "4*b")
    with pytest.raises(BadInput, match='Did you mean "machine"'):
        Space.parse({"cluster": {"machin": {}}}, kinds={"machine": make})


def test_a_column_shows_its_parameter() -> None:
    assert infer_parameter("n", np.array([4, 2, 4])) == Ordinal("n", [2, 4])
    assert infer_parameter("n", [1e-3, 1e-5, 1e-4]) == Ordinal("n", [1e-5, 1e-4, 1e-3], log=True)
    assert infer_parameter("n", ["b", "a", "b"]) == Categorical("n", ["b", "a"])
    assert infer_parameter("n", [True, False]) == Categorical("n", [True, False])
    assert infer_parameter("n", [7, 7]) == Constant("n", 7)
    for wrong in ([], [1.0, math.nan]):
        with pytest.raises(BadInput):
            infer_parameter("n", wrong)


@settings(deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1.5, 20), st.integers(3, 8))
def test_geometric_lists_are_on_a_log_scale_and_even_ones_are_not(start: float, ratio: float, n: int) -> None:
    geometric = [start * ratio**k for k in range(n)]
    assert prefers_log(geometric) == (geometric[-1] / geometric[0] >= 10)
    assert not prefers_log([start * (1 + k * ratio) for k in range(n)])
    assert not prefers_log([0.0, *geometric])
