"""From a request to what is searched for each method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prudent.core.money import Price
from prudent.training.engines.engine import DataShape
from prudent.training.request.request import FRUGAL, TrainingRequest
from prudent.training.request.resources import available_cores, trial_price
from prudent.training.search.method_search import QUEUED, MethodSearch, QueuedSearch, search_for
from prudent.training.search.methods import method_plans, strategy_name
from prudent.training.search.preview import preview
from prudent.tuning.trial import FINISHED, Configuration, Trial


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


# Searches


def made(search: str, seed: int = 0) -> MethodSearch:
    [plan] = method_plans(request(methods=[PAPER], parameterSearch=search))
    return search_for(plan, seed, Price(1.0, "", ""))


def proposed(search: MethodSearch, count: int) -> list[Configuration]:
    found = [search.propose(number, ()) for number in range(count)]
    return [proposal.configuration for proposal in found if proposal is not None]


def ended(number: int, configuration: Configuration) -> Trial:
    return Trial(number, configuration, FINISHED, 1.0, 0.5, 0.5, {"score": float(number)}, True)


@pytest.mark.parametrize("search", ["random", "grid"])
def test_every_configuration_comes_once_and_then_no_more(search: str) -> None:
    asking = made(search)
    assert len({tuple(one.items()) for one in proposed(asking, 12)}) == 12
    assert not asking.has_more(12)
    assert asking.propose(12, ()) is None


def test_grid_is_in_order_and_random_is_not() -> None:
    [plan] = method_plans(request(methods=[PAPER], parameterSearch="grid"))
    listed = list(plan.space.configurations())
    assert proposed(made("grid"), 12) == listed
    assert proposed(made("random"), 12) != listed


def test_a_random_search_without_end_goes_on_after_a_restart_where_it_was() -> None:
    rate = {"param": "regParam", "range": [1e-4, 100], "scale": "log"}
    [plan] = method_plans(request(methods=[method("linear-regression", rate)], parameterSearch="random"))
    whole = proposed(search_for(plan, 0, Price(1.0, "", "")), 8)
    later = search_for(plan, 0, Price(1.0, "", ""))
    fifth, again = later.propose(4, ()), later.propose(4, ())
    assert fifth is not None
    assert again is not None
    assert fifth.configuration == again.configuration == whole[4]


@pytest.mark.parametrize("search", ["random", "grid", "gp-ei"])
def test_what_has_ended_before_a_restart_is_not_proposed_again(search: str) -> None:
    first, second, told = made(search), made(search), []
    for number in range(4):
        proposal = first.propose(number, ())
        assert proposal is not None
        told.append(proposal.configuration)
        for one in (first, second):
            one.take(ended(number + 1, proposal.configuration))
    proposal = second.propose(4, ())
    assert proposal is not None
    assert proposal.configuration not in told
    assert proposal == first.propose(4, ())


def test_a_method_that_is_trained_on_more_data_takes_each_configuration_once() -> None:
    [plan] = method_plans(request(methods=[PAPER], parameterSearch="grid"))
    queue = search_for(replace(plan, search=QUEUED), 0, Price(1.0, "", ""))
    assert isinstance(queue, QueuedSearch)
    one, other = list(plan.space.configurations())[:2]
    queue.take(ended(1, one))
    for configuration in (one, other):
        queue.enqueue(configuration)
    proposal = queue.propose(1, ())
    assert proposal is not None
    assert proposal.configuration == other
    assert queue.propose(2, (proposal,)) is None
