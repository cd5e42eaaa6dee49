"""Algorithms: the paper's names, parameters as Spark has them, values that are understood or refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.parameters import Constant
from prudent.training.algorithms.algorithm import domain, domains
from prudent.training.algorithms.hyperparameter import CHOICE, INTEGER, REAL, Hyperparameter
from prudent.training.algorithms.registry import algorithm, algorithms, algorithms_of, default_algorithms

PAPER = [
    "linear-regression",
    "generalized-linear-regression",
    "random-forest-regression",
    "decision-tree-regression",
    "gradient-boosted-tree-regression",
    "linear-support-vector-machine",
    "binomial-logistic-regression",
    "naive-bayes",
    "random-forest-classification",
    "multinomial-logistic-regression",
    "decision-tree-classification",
    "gradient-boosted-tree-classification",
    "k-means",
    "gaussian-mixture-model",
    "multilayer-perceptron-classifier",
    "branin",
]


LATER = [
    "lightgbm-regression",
    "lightgbm-classification",
    "xgboost-regression",
    "xgboost-classification",
]


def test_the_algorithms_are_those_of_the_paper_and_four_more() -> None:
    assert sorted(algorithms()) == sorted([*PAPER, *LATER])


def test_an_engine_tries_what_it_builds() -> None:
    local = {found.name for found in default_algorithms("regression", 0, "local")}
    assert local - {found.name for found in default_algorithms("regression", 0, "spark")} == {
        "lightgbm-regression"
    }


@pytest.mark.parametrize("name", [*PAPER, *LATER])
def test_every_default_and_every_place_to_look_is_a_legal_value(name: str) -> None:
    found = algorithm(name)
    for parameter in found.hyperparameters:
        if parameter.default is not None:
            assert parameter.check(parameter.default) == parameter.default
        looked = parameter.searched()
        for u in (0.0, 0.3, 0.999999):
            value = looked.from_unit(u)
            if value is not None:
                assert parameter.check(value) == value
        if parameter.search is not None and parameter.search.cheap is not None:
            parameter.check(parameter.search.cheap)
    assert found.complete({}) == found.defaults


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("linear-regression", "maxIter regParam elasticNetParam tol fitIntercept"),
        ("generalized-linear-regression", "family link variancePower maxIter regParam"),
        ("random-forest-classification", "numTrees maxDepth maxBins maxCategories featureSubsetStrategy"),
        (
            "gradient-boosted-tree-regression",
            "maxIter stepSize subsamplingRate minInstancesPerNode minInfoGain",
        ),
        ("naive-bayes", "smoothing modelType"),
        ("k-means", "k maxIter tol initMode initSteps"),
        (
            "multilayer-perceptron-classifier",
            "numHiddenLayers hiddenLayersWidth inputLayerWidth outputLayerWidth blockSize maxIter",
        ),
        ("branin", "x1 x2"),
    ],
)
def test_parameters_have_their_names_in_spark(name: str, parameters: str) -> None:
    assert all(parameter in algorithm(name) for parameter in parameters.split())


@pytest.mark.parametrize("name", domains())
def test_every_domain_has_algorithms_of_its_task_and_a_metric(name: str) -> None:
    assert algorithms_of(name)
    assert {found.task for found in algorithms_of(name)} == {domain(name).task}
    assert default_algorithms(name)
    assert domain(name).metric_for(2) in domain(name).metrics
    assert domain(name).metric_for(5) in domain(name).metrics


def test_what_tells_only_two_classes_apart_is_not_sensible_for_three() -> None:
    names = [found.name for found in default_algorithms("classification", 3)]
    assert "linear-support-vector-machine" not in names
    assert "multinomial-logistic-regression" in names
    two = [found.name for found in default_algorithms("classification", 2)]
    assert "binomial-logistic-regression" in two
    assert "multinomial-logistic-regression" not in two


def test_values_are_read_as_they_are_written_in_json_or_as_text() -> None:
    forest, linear = algorithm("random-forest-regression"), algorithm("linear-regression")
    assert forest["numTrees"].check("20") == 20
    assert isinstance(forest["numTrees"].check(20.0), int)
    assert linear["fitIntercept"].check("false") is False
    assert linear["fitIntercept"].check(1) is True
    assert linear["regParam"].check(1) == 1.0
    assert linear["loss"].check("SquaredError") == "squaredError"
    assert forest["featureSubsetStrategy"].check("0.3") == 0.3
    assert forest["featureSubsetStrategy"].check("sqrt") == "sqrt"


@pytest.mark.parametrize(
    ("name", "parameter", "value", "said"),
    [
        ("random-forest-regression", "numTrees", 2.5, "whole number of 1 or more"),
        ("random-forest-regression", "numTrees", True, "whole number"),
        ("random-forest-regression", "featureSubsetStrategy", 0, "sqrt, log2, or a number above 0"),
        ("linear-regression", "elasticNetParam", 1.5, "a number from 0 to 1"),
        ("linear-regression", "fitIntercept", "perhaps", "true or false"),
        ("linear-regression", "regParam", float("nan"), "a number of 0 or more"),
        ("gradient-boosted-tree-regression", "stepSize", 0, "a number above 0 up to 1"),
        ("k-means", "initMode", "k-means", 'Did you mean "k-means||"'),
    ],
)
def test_a_value_that_is_not_taken_is_answered_with_what_is(
    name: str, parameter: str, value: object, said: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        algorithm(name)[parameter].check(value)


def test_an_unknown_parameter_is_answered_with_the_near_one() -> None:
    with pytest.raises(BadInput, match='Did you mean "maxDepth"'):
        algorithm("decision-tree-regression")["maxdepht"]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_listed_values_are_each_taken_once(values: list[int]) -> None:
    depth = Hyperparameter("maxDepth", INTEGER, 5, "", low=0, high=30)
    parameter = depth.of_values([*values, *map(str, values)])
    assert sorted(parameter.values) == sorted(set(values))


@given(st.floats(1e-6, 1.0), st.floats(1.5, 100.0), st.booleans(), st.floats(0, 0.999))
def test_a_range_gives_numbers_within_it(low: float, factor: float, log: bool, u: float) -> None:
    rate = Hyperparameter("regParam", REAL, 0.0, "", low=0)
    high = low * factor
    assert low <= rate.of_range(low, high, log).from_unit(u) <= high
    whole = rate.of_range(1, 50, log, whole=True).from_unit(u)
    assert isinstance(whole, int)


def test_a_range_of_one_number_is_constant_and_words_have_no_range() -> None:
    assert isinstance(Hyperparameter("a", REAL, 0.0, "").of_range(2, 2, False), Constant)
    with pytest.raises(BadInput, match="list its values"):
        Hyperparameter("a", CHOICE, "x", "", choices=("x", "y")).of_range(1, 2, False)


def test_the_reference_names_every_parameter_with_its_default() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "training-request.md"
    sections = dict(
        re.findall(r"^### ([\w-]+)\n(.*?)(?=^### |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    )
    assert list(sections) == algorithms()
    for name, section in sections.items():
        rows = dict(re.findall(r"^\| `(\w+)` \| ([^|\\]*(?:\\\|[^|\\]*)*) \|", section, re.MULTILINE))
        assert list(rows) == [parameter.name for parameter in algorithm(name).hyperparameters]
        for parameter in algorithm(name).hyperparameters:
            told = rows[parameter.name].replace("\\|", "|")
            if parameter.default is not None:
                assert parameter.check(told) == parameter.default
