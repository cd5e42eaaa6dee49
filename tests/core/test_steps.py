"""A neighbour is near: a step from a value, in its own scale, and back from the bounds."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.core.parameters import Categorical
from prudent.core.ranges import Integer, Real
from prudent.core.seeds import rng_for
from prudent.core.units import parse_quantity


@pytest.mark.parametrize("parameter", [Real("x", 0, 100), Integer("x", 0, 100)], ids=["real", "integer"])
@pytest.mark.parametrize("value", [0, 20, 50, 80, 100])
def test_steps_begin_where_the_value_is(parameter: Real | Integer, value: int) -> None:
    rng = rng_for(1, "steps")
    found = np.array([parameter.neighbours(value, rng) for _ in range(400)])
    assert found.min() >= 0
    assert found.max() <= 100
    # Not at the other end, and not always in one direction.
    assert np.median(np.abs(found - value)) < 25
    assert (found > value).any() == (value < 100)
    assert (found < value).any() == (value > 0)


def test_steps_in_a_log_scale_multiply() -> None:
    rng = rng_for(1, "log steps")
    found = np.log10([Real("x", 1e-6, 1, log=True).neighbours(1e-3, rng) for _ in range(400)])
    assert np.median(found) == pytest.approx(-3, abs=0.3)
    assert np.median(np.abs(found + 3)) < 1.5


@pytest.mark.parametrize(
    ("values", "names"),
    [(["a"], ("k=a",)), (["a", "b"], ("k=b",)), (["a", "b", "c"], ("k=a", "k=b", "k=c"))],
)
def test_a_category_has_as_many_names_as_features(values: list[str], names: tuple[str, ...]) -> None:
    parameter = Categorical("k", values)
    assert parameter.feature_names == names
    assert len(parameter.encode(values[0])) == len(names) == parameter.width


@pytest.mark.parametrize("text", ["$2 kB", "$2 TB", "$2 %", "$2 min", "$5 cents"])
def test_money_with_another_unit_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="has two units"):
        parse_quantity(text)
