"""Prices in every form they may be said, and the formulas among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.cloud.catalog import Catalog
from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.jobs.pricing import Formula, pricing

SPACE = Space.parse(
    {"workers": {"integer": [0, 8]}, "vm": ["m5.large", "c5.xlarge"], "rate": {"real": [0, 1]}}
)
CHOSEN = {"workers": 4, "vm": "c5.xlarge", "rate": 0.5}
CLUSTER = MachineParameter("cluster", ["m5.large", "c5.xlarge"], [1, 2, 4])
SERVER = MachineParameter("server", ["m5.large"])


def price(said: Any, space: Space = SPACE, **chosen: Any) -> Price:
    return pricing(said, space).price({**CHOSEN, **chosen} if space is SPACE else chosen)


@pytest.mark.parametrize(
    ("said", "usd_per_h"),
    [
        (None, 0.0),
        (0, 0.0),
        (1.5, 1.5),
        (Price(2.5, "2025-01-31", "a contract", 60), 2.5),
        ("0.05 * workers + 0.1", 0.3),
        ("workers / 8 - -rate", 1.0),
        ("max(workers, 6) * 0.5", 3.0),
        ("min(workers, 6) // 3 + workers % 3", 2.0),
        ("ceil(workers / 3)", 2.0),
        ({"machine": "m5.large"}, 0.096),
        ({"machine": "m5.large", "count": 3}, 0.288),
        ({"machine": "m5.large", "count": "workers + 1"}, 0.48),
        ({"machine": "vm", "count": "workers"}, 0.68),
        (lambda c: c["workers"] * 0.25, 1.0),
        (lambda c: Price(3.0, "", "mine"), 3.0),
    ],
)
def test_every_form_of_price(said: Any, usd_per_h: float) -> None:
    assert price(said).usd_per_h == pytest.approx(usd_per_h)
    assert price(said).source


def test_machines_are_billed_by_their_rules() -> None:
    assert price({"machine": "m5.large", "count": "workers"}).minimum_s == 60
    assert price({"machine": "m5.large", "count": "workers"}, workers=0).usd_per_h == 0
    assert price("0.05 * workers").minimum_s == 0


def test_the_machine_in_the_space_is_the_price() -> None:
    space = Space([CLUSTER])
    assert price(None, space, cluster="4*m5.large") == CLUSTER.price("4*m5.large")
    assert price("cluster", space, cluster="4*m5.large") == CLUSTER.price("4*m5.large")
    assert price("cluster.price_usd_per_h * 2", space, cluster="4*m5.large").usd_per_h == pytest.approx(0.768)
    assert price(0.5, space, cluster="4*m5.large").usd_per_h == 0.5


def test_several_clusters_are_rented_together() -> None:
    both = price(None, Space([CLUSTER, SERVER]), cluster="4*m5.large", server="1*m5.large")
    assert both.usd_per_h == pytest.approx(5 * 0.096)
    assert both.minimum_s == 60
    assert both.date


def test_own_prices_are_used(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("name,price_usd_per_h\nmybox,0.5\nm5.large,0.01\n")
    said = {"machine": "mybox", "catalog": str(tmp_path / "mine.csv"), "count": 2}
    assert price(said).usd_per_h == 1.0
    own = MachineParameter("cluster", ["m5.large"], [1], Catalog.load(tmp_path / "mine.csv"))
    assert pricing(None, Space([own])).fingerprint() != pricing(None, Space([SERVER])).fingerprint()


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (-1, "price -1"),
        (float("nan"), "price nan"),
        (True, "is not a price"),
        ([1], "is not a price"),
        ("0.05 * worker", 'Unknown name "worker". Did you mean "workers"'),
        ("0.05 *", "cannot be read"),
        ("", "cannot be read"),
        ("workers ** 9", "is not arithmetic"),
        ("workers < 3", "is not arithmetic"),
        ("'a' * 3", "is not arithmetic"),
        ("True", "is not arithmetic"),
        ("eval(workers)", 'Unknown function "eval"'),
        ("max()", "is not arithmetic"),
        ("__import__('os').getpid()", "is not arithmetic"),
        ({"machine": "m5.lagre"}, 'Did you mean "m5.large"'),
        ({"machine": "rate"}, "lists no machine types"),
        ({"machine": "workers"}, 'Unknown machine type "0"'),
        ({"machin": "m5.large"}, 'Unknown key of the price "machin"'),
        ({"count": 3}, "names no machine"),
        ({"machine": "m5.large", "count": "wokers"}, 'Did you mean "workers"'),
    ],
)
def test_a_wrong_price_is_refused_before_anything_runs(said: Any, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        pricing(said, SPACE)


def test_a_cluster_already_knows_its_count() -> None:
    with pytest.raises(BadInput, match='write the price as "cluster" alone'):
        pricing({"machine": "cluster", "count": 2}, Space([CLUSTER]))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("-workers", "price -4"),
        ("1 / (workers - 4)", "has no value at .*division by zero"),
        ("2 * vm", "vm is 'c5.xlarge'"),
        ("vm", "the result is 'c5.xlarge'"),
        ({"machine": "m5.large", "count": "workers / 3"}, "not a number of machines"),
        ({"machine": "m5.large", "count": "-workers"}, "not a number of machines"),
        (lambda c: "cheap", "answered 'cheap'"),
        (lambda c: c["worker"], "KeyError: 'worker'"),
        (lambda c: -1.0, "price -1"),
    ],
)
def test_a_price_that_fails_says_where(said: Any, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        price(said)


def test_a_price_function_cannot_change_the_configuration() -> None:
    chosen = dict(CHOSEN)
    pricing(lambda c: c.pop("rate"), SPACE).price(chosen)
    assert chosen == CHOSEN


def test_fingerprints_follow_the_prices() -> None:
    forms: list[Any] = [None, 1.0, 2.0, "workers", "workers * 2", {"machine": "m5.large"}, {"machine": "vm"}]
    assert len({pricing(form, SPACE).fingerprint() for form in forms}) == len(forms)
    assert pricing(1, SPACE).fingerprint() == pricing(1.0, SPACE).fingerprint()


@given(a=st.integers(-50, 50), b=st.floats(0.1, 50), workers=st.integers(0, 8))
def test_formulas_calculate_as_python_does(a: int, b: float, workers: int) -> None:
    formula = Formula.parse(f"({a} + workers) * {b!r} - workers / {b!r}", SPACE)
    assert formula({"workers": workers}) == (a + workers) * b - workers / b
