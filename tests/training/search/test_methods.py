"""From a request to what is searched for each method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.core.money import Price
from prudent.training.engines.engine import DataShape
from prudent.training.request.request import FRUGAL, TrainingRequest
from prudent.training.request.resources import available_cores, trial_price
from prudent.training.search.methods import method_plans, strategy_name
from prudent.training.search.preview import preview
from prudent.training.search.proposers import Proposer, proposer_for
from prudent.tuning.trial import FINISHED, Outcome


def request(**more: Any) -> TrainingRequest:
    return TrainingRequest.parse({"domain": "regression", "dataset": {"path": "x.csv"}, **more})


def method(algorithm: str, *hyperparameters: dict[str, Any]) -> dict[str, Any]:
    return {"algorithm": algorithm, "hyperparameters": list(hyperparameters)}


PAPER = method(
    "linear-regression",
    {"param": "maxIter", "values": [10, 50, 100]},
    {"param": "regParam", "values": [0.0, 0.3]},
    {"param": "elasticNetParam", "values": [0.0, 0.8]},
)


def test_the_papers_example_has_twelve_combinations_of_which_random_takes_four() -> None:
    [plan] = method_plans(request(methods=[PAPER], parameterSearch="random"))
    assert plan.space.size == 12
    assert plan.default_trials == 4
    [grid] = method_plans(request(methods=[PAPER], parameterSearch="grid"))
    assert grid.default_trials == 12


def test_without_methods_sensible_ones_are_searched_by_the_number_of_classes() -> None:
    said = TrainingRequest.parse({"domain": "classification", "dataset": {"path": "x.csv"}})
    three = [plan.algorithm.name for plan in method_plans(said, DataShape(100, 4, 3, ""))]
    two = [plan.algorithm.name for plan in method_plans(said, DataShape(100, 4, 2, ""))]
    assert "binomial-logistic-regression" not in three
    assert "binomial-logistic-regression" in two
    assert "gradient-boosted-tree-classification" in three


def test_a_method_without_hyperparameters_searches_those_that_matter() -> None:
    [plan] = method_plans(request(methods=[{"algorithm": "random-forest-regression"}]))
    assert {"numTrees", "maxDepth"} <= set(plan.space.names)
    assert "maxBins" not in plan.space.names
    assert plan.cheap["numTrees"] == 5
    assert plan.cheap in plan.space


def test_under_grid_or_with_an_empty_list_it_is_trained_once_with_defaults() -> None:
    [grid] = method_plans(
        request(methods=[{"algorithm": "random-forest-regression"}], parameterSearch="grid")
    )
    [empty] = method_plans(request(methods=[method("random-forest-regression")], parameterSearch="random"))
    for plan in (grid, empty):
        assert plan.space.size == 1
        chosen, _, _ = plan.split(next(plan.space.configurations()))
        assert plan.algorithm.complete(chosen) == plan.algorithm.defaults


def test_ranges_have_their_scale_and_type() -> None:
    [plan] = method_plans(
        request(
            methods=[
                method(
                    "gradient-boosted-tree-regression",
                    {"param": "stepSize", "range": [0.01, 1], "scale": "log"},
                    {"param": "maxDepth", "range": [2, 8]},
                    {"param": "featureSubsetStrategy", "range": [1, 4], "type": "integer"},
                )
            ]
        )
    )
    assert plan.space["stepSize"].from_unit(0.5) == pytest.approx(0.1)
    assert plan.space["maxDepth"].size == 7
    assert list(plan.space["featureSubsetStrategy"].values) == [1, 2, 3, 4]


def test_parts_of_a_configuration_go_where_they_belong() -> None:
    asked = request(
        methods=[PAPER],
        parameterSearch="hyperband",
        transforms=[{"name": "scale", "method": ["standard", "none"]}, {"name": "impute"}],
    )
    [plan] = method_plans(asked, DataShape(10_000, 5, 0, ""))
    [configuration] = plan.space.sample(1, np.random.default_rng(0))
    chosen, transforms, share = plan.split({**configuration, "fraction": 1 / 9})
    assert set(chosen) == {"maxIter", "regParam", "elasticNetParam"}
    assert list(transforms) == ["scale", "impute"]
    assert transforms["impute"] == {"strategy": "mean"}
    assert share == pytest.approx(1 / 9)


@pytest.mark.parametrize(
    ("search", "rows", "least"),
    [
        ("hyperband", 10_000, 1 / 27),
        ("hyperband", 500, 1 / 3),
        ("nephele", 150, 1.0),
        (None, 1_000_000, 4.0**-3),
        (None, 15_000, None),
        ("random", 1_000_000, None),
    ],
)
def test_parts_of_the_data_are_never_too_small(search: str | None, rows: int, least: float | None) -> None:
    [plan] = method_plans(request(methods=[PAPER], parameterSearch=search), DataShape(rows, 5, 0, ""))
    if least is None:
        assert plan.fraction is None
    else:
        shares = list(plan.space["fraction"].values)
        assert (shares[0], shares[-1]) == (pytest.approx(least), 1.0)


def test_the_names_of_searches() -> None:
    assert strategy_name(request()) == FRUGAL
    assert strategy_name(request(parameterSearch="bayesian-optimization")) == "gp-ei"
    assert strategy_name(request(parameterSearch="lynceus")) == "lynceus"


def test_the_price_of_a_trial_is_its_share_of_the_machine() -> None:
    assert trial_price(request(machine="m5.xlarge"), 4).usd_per_h == pytest.approx(0.192 / 4)
    named = request(computationalResources={"instances": [{"ec2Instance": "c5.large"}]})
    assert trial_price(named, 1).usd_per_h == pytest.approx(0.085)
    assert trial_price(request(), 2).usd_per_h == pytest.approx(0.096 / 2)
    assert trial_price(request(), 2).minimum_s == 0


def test_the_outlook_tells_limits_and_sizes() -> None:
    seen = preview(request(methods=[PAPER], budget={"usd": 2, "time": "5 min"}, deadline="1 h"), "local")
    assert seen.limits == ("$2.00", "5 min 00 s", "done by 1 h 00 min from now")
    assert seen.methods[0].combinations == 12
    assert seen.methods[0].trials is None
    assert seen.parallelism == available_cores()


# Seekers


def made(search: str, folder: Path, resume: bool = False, seed: int = 0) -> Proposer:
    [plan] = method_plans(request(methods=[PAPER], parameterSearch=search))
    return proposer_for(plan, seed, "f", folder / f"{search}.jsonl", resume, Price(1.0, "", ""))


@pytest.mark.parametrize("search", ["random", "grid"])
def test_every_configuration_comes_once_and_then_no_more(search: str, tmp_path: Path) -> None:
    asking = made(search, tmp_path)
    wishes = [asking.ask() for _ in range(13)]
    assert wishes[12] is None
    seen = {tuple(wish.configuration.items()) for wish in wishes if wish}
    assert len(seen) == 12
    asking.close()


def test_grid_is_in_order_and_random_is_not(tmp_path: Path) -> None:
    grid, random = made("grid", tmp_path), made("random", tmp_path)
    [plan] = method_plans(request(methods=[PAPER], parameterSearch="grid"))
    listed = list(plan.space.configurations())
    assert [grid.ask().configuration for _ in range(12)] == listed  # type: ignore[union-attr]
    assert [random.ask().configuration for _ in range(12)] != listed  # type: ignore[union-attr]
    grid.close()
    random.close()


@pytest.mark.parametrize("search", ["random", "grid", "gp-ei"])
def test_what_was_told_is_known_after_a_restart_and_not_asked_again(search: str, tmp_path: Path) -> None:
    first = made(search, tmp_path)
    told = []
    for number in range(4):
        wish = first.ask()
        assert wish is not None
        told.append(wish.configuration)
        first.tell(wish, Outcome(FINISHED, 1.0, {"score": float(number)}), [], 0.5)
    first.close()
    second = made(search, tmp_path, resume=True)
    earlier = list(second.earlier_trials())
    assert [known.configuration for known in earlier] == told
    assert [known.outcome.measures["score"] for known in earlier] == [0.0, 1.0, 2.0, 3.0]
    wish = second.ask()
    assert wish is not None
    assert wish.configuration not in told
    second.close()
