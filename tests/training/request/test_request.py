"""Requests: the paper's documents are understood, and wrong ones answered with all that is wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.training.algorithms.registry import algorithms
from prudent.training.request.errors import BadRequest
from prudent.training.request.request import TrainingRequest, schema, searches

PAPER: dict[str, Any] = {
    "domain": "regression",
    "methods": [
        {
            "algorithm": "linear-regression",
            "hyperparameters": [
                {"param": "maxIter", "values": [10, 50, 100]},
                {"param": "regParam", "values": [0.0, 0.3]},
                {"param": "elasticNetParam", "values": [0.0, 0.8]},
            ],
        }
    ],
    "dataset": {"path": "https://example.org/sample_linear_regression_data.txt", "format": "libsvm"},
    "parameterSearch": "random",
    "computationalResources": {
        "instances": [
            {"ec2Instance": "t2.micro", "additionalHardware": ["GPU"], "minInstances": 1, "maxInstances": 3}
        ],
        "minTotalInstances": 1,
        "maxTotalInstances": 64,
    },
    "emailAddress": "somebody@example.org",
}


def errors_of(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(BadRequest) as caught:
        TrainingRequest.parse(document)
    return {error.path: error.message for error in caught.value.errors}


def changed(**changes: Any) -> dict[str, Any]:
    document = copy.deepcopy(PAPER)
    document.update(changes)
    return document


def test_the_papers_example_is_understood() -> None:
    request = TrainingRequest.parse(PAPER)
    assert request.domain == "regression"
    assert request.dataset is not None
    assert request.dataset.format == "libsvm"
    assert request.methods[0].hyperparameters is not None
    assert request.methods[0].hyperparameters[0].values == (10, 50, 100)
    assert request.parameter_search == "random"
    assert request.validation.share == 0.3
    assert request.notes == ()


def test_a_request_is_the_same_after_it_was_written_and_read() -> None:
    request = TrainingRequest.parse(
        changed(budget="60 s", deadline="10 min", transforms=[{"name": "pca", "k": 3}])
    )
    again = TrainingRequest.parse(json.loads(json.dumps(request.to_dict())))
    assert again == request
    assert again.fingerprint() == request.fingerprint()


def test_limits_do_not_make_another_request_but_the_question_does() -> None:
    request = TrainingRequest.parse(PAPER)
    assert request.changed({"budget": "$5", "parallelism": 3}).fingerprint() == request.fingerprint()
    assert request.changed({"seed": 1}).fingerprint() != request.fingerprint()


@pytest.mark.parametrize(
    ("said", "usd", "time_s", "trials"),
    [
        ("$2", 2.0, None, None),
        ("60 s", None, 60.0, None),
        ("1 h 30 min", None, 5400.0, None),
        ("20 trials", None, None, 20),
        ({"usd": "$0.50", "trials": 3}, 0.5, None, 3),
        ({"time": "5 min"}, None, 300.0, None),
        ({"time": 30}, None, 30.0, None),
        (None, None, None, None),
    ],
)
def test_budgets_are_said_in_many_ways(said: Any, usd: Any, time_s: Any, trials: Any) -> None:
    budget = TrainingRequest.parse(changed(budget=said)).budget
    assert (budget.usd, budget.time_s, budget.trials) == (usd, time_s, trials)


def test_a_deadline_is_a_time_from_now_or_a_moment() -> None:
    soon = TrainingRequest.parse(changed(deadline="90 s")).deadline
    moment = TrainingRequest.parse(changed(deadline="2030-01-31T18:00:00Z")).deadline
    assert soon is not None
    assert soon.after_s == 90
    assert moment is not None
    assert moment.at is not None
    assert moment.at.year == 2030


def test_every_error_is_told_at_once_by_its_place() -> None:
    found = errors_of(
        {
            "domain": "regresion",
            "datset": {"path": "x"},
            "methods": [
                {"algorithm": "linear-regression"},
                {
                    "algorithm": "linear-regression",
                    "hyperparameters": [
                        {"param": "maxItr", "values": [1]},
                        {"param": "regParam", "values": [0.1, -1]},
                        {"param": "tol", "range": [1, 0.1], "scale": "logarithm"},
                        {"param": "epsilon"},
                        {"param": "epsilon", "values": [2]},
                    ],
                },
                {"algorithm": "kmeans"},
            ],
            "parameterSearch": "lynceos",
            "budget": {"dollars": 3},
            "parallelism": 0,
            "validation": {"holdout": 0.3, "folds": 5},
            "seed": "seven",
            "emailAddress": "nobody",
            "transforms": [{"name": "scal"}, {"name": "pca", "k": 0, "q": 1}],
            "machine": "m5.lagre",
            "computationalResources": {"minTotalInstances": 5, "maxTotalInstances": 2},
        }
    )
    expected = {
        "domain": 'Did you mean "regression"',
        "datset": 'Did you mean "dataset"',
        "methods[1].hyperparameters[0].param": 'Did you mean "maxIter"',
        "methods[1].hyperparameters[1].values[1]": "0 or more",
        "methods[1].hyperparameters[2].range": "smaller end first",
        "methods[1].hyperparameters[2].scale": "linear, log",
        "methods[1].hyperparameters[3].values": "list the values",
        "methods[1].hyperparameters[4].param": "given twice",
        "methods[2].algorithm": 'Did you mean "k-means"',
        "parameterSearch": 'Did you mean "lynceus"',
        "budget": "usd, time, trials",
        "parallelism": "greater than or equal to 1",
        "validation": "keep one of them",
        "seed": "whole number",
        "emailAddress": "name@example.org",
        "transforms[0].name": 'Did you mean "scale"',
        "transforms[1].k": "1 or more",
        "transforms[1].q": "setting of pca",
        "machine": 'Did you mean "m5.large"',
        "computationalResources.maxTotalInstances": "raise it",
    }
    assert set(found) == set(expected)
    for path, words in expected.items():
        assert words in found[path]


def test_the_text_of_the_error_lists_them_all() -> None:
    with pytest.raises(BadInput) as caught:
        TrainingRequest.parse(changed(domain="cooking", seed=-1))
    assert "2 errors" in str(caught.value)
    assert "\n- domain: " in str(caught.value)
    assert "\n- seed: " in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"dataset": None}, "dataset"),
        ({"dataset": {"path": ""}}, "dataset.path"),
        ({"dataset": {}}, "dataset.path"),
        ({"dataset": {"path": "x", "format": "exel"}}, "dataset.format"),
        ({"dataset": {"path": "x", "features": []}}, "dataset.features"),
        ({"dataset": {"path": "x", "target": "y", "features": ["a", "y"]}}, "dataset.features[1]"),
        ({"domain": "clustering"}, "methods[0].algorithm"),
        ({"methods": {}}, "methods"),
        ({"methods": [{}]}, "methods[0].algorithm"),
        ({"methods": [PAPER["methods"][0], PAPER["methods"][0]]}, "methods[1]"),
        ({"metric": "mcc"}, "metric"),
        ({"budget": "2 apples"}, "budget"),
        ({"budget": "0 s"}, "budget.time"),
        ({"budget": {"trials": 0}}, "budget.trials"),
        ({"deadline": "2030-13-01"}, "deadline"),
        ({"validation": {"holdout": 1}}, "validation.holdout"),
        ({"validation": {"holdot": 0.2}}, "validation.holdot"),
        ({"computationalResources": {"instances": [{"additionalHardware": ["TPU"]}]}}, None),
    ],
)
def test_each_error_is_at_its_place(changes: dict[str, Any], path: str | None) -> None:
    place = path or "computationalResources.instances[0].additionalHardware[0]"
    assert place in errors_of(changed(**changes))


def test_a_grid_cannot_search_a_range_of_real_numbers() -> None:
    method = {"algorithm": "linear-regression", "hyperparameters": [{"param": "regParam", "range": [0, 1]}]}
    found = errors_of(changed(methods=[method], parameterSearch="grid"))
    assert "list values" in found["methods[0].hyperparameters[0].range"]
    whole = {"algorithm": "linear-regression", "hyperparameters": [{"param": "maxIter", "range": [1, 9]}]}
    assert TrainingRequest.parse(changed(methods=[whole], parameterSearch="grid"))


def test_what_nobody_understands_is_kept_and_told() -> None:
    request = TrainingRequest.parse(changed(comment="for Monday", priority=3))
    assert len(request.notes) == 2
    assert '"comment"' in request.notes[0]


def test_documents_are_read_from_files_with_data_beside_them(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n1,2\n")
    (tmp_path / "request.json").write_text(json.dumps(changed(dataset={"path": "rows.csv"})))
    request = TrainingRequest.parse(tmp_path / "request.json")
    assert request.dataset is not None
    assert request.dataset.path == str(tmp_path / "rows.csv")


@pytest.mark.parametrize("text", ["{", '{"domain": "regression",}', "[1]", '"regression"'])
def test_what_is_no_document_is_told_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "request.json").write_text(text)
    with pytest.raises(BadInput, match="JSON"):
        TrainingRequest.parse(tmp_path / "request.json")


def test_a_document_that_does_not_exist_is_told() -> None:
    with pytest.raises(BadInput, match="check the path"):
        TrainingRequest.parse("no/such/request.json")


# Documents that the paper's schema allows

_values = st.lists(st.sampled_from([1, 2, 0.5, 1.0]), min_size=1, max_size=3)


@st.composite
def paper_documents(draw: st.DrawFn) -> dict[str, Any]:
    domain = draw(st.sampled_from(["regression", "clustering", "misc-functions"]))
    choices = {
        "regression": [("linear-regression", "epsilon"), ("random-forest-regression", "stepSize")][:1],
        "clustering": [("k-means", "tol"), ("gaussian-mixture-model", "tol")],
        "misc-functions": [("branin", "x1")],
    }[domain]
    methods = []
    for name, parameter in draw(st.lists(st.sampled_from(choices), unique=True, max_size=2)):
        method: dict[str, Any] = {"algorithm": name}
        if draw(st.booleans()):
            values = [value + 1.0 for value in draw(_values)]
            method["hyperparameters"] = [{"param": parameter, "values": values}]
        methods.append(method)
    document: dict[str, Any] = {"domain": domain, "methods": methods, "emailAddress": "a@b.org"}
    if domain != "misc-functions" or draw(st.booleans()):
        document["dataset"] = {"path": "s3a://bucket/rows.txt"} | draw(
            st.sampled_from([{}, {"format": "libsvm"}])
        )
    if draw(st.booleans()):
        document["parameterSearch"] = draw(st.sampled_from(["grid", "random", "bayesian-optimization"]))
    if draw(st.booleans()):
        document["computationalResources"] = {"maxTotalInstances": draw(st.integers(1, 64))}
    return document


@given(paper_documents())
@settings(max_examples=60)
def test_a_document_of_the_paper_is_a_request(document: dict[str, Any]) -> None:
    request = TrainingRequest.parse(document)
    assert request.to_dict()["domain"] == document["domain"]
    assert TrainingRequest.parse(request.to_dict()) == request


def test_the_schema_lists_names_and_takes_budgets_in_words() -> None:
    published = schema()
    assert published["$defs"]["Method"]["properties"]["algorithm"]["enum"] == algorithms()
    assert published["properties"]["parameterSearch"]["enum"] == searches()
    budget = json.dumps(published["properties"]["budget"])
    assert '"string"' in budget
    assert published["required"] == ["domain"]
    json.dumps(published)


def test_what_is_a_request_is_valid_by_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    judge = jsonschema.Draft202012Validator(schema())
    wide = changed(
        budget="60 s", deadline="5 min", transforms=[{"name": "pca", "k": {"range": [2, 5]}}], seed=3
    )
    for document in (PAPER, wide, {"domain": "misc-functions", "budget": {"usd": "$1", "trials": 4}}):
        judge.validate(document)
        judge.validate(TrainingRequest.parse(document).to_dict())
    assert not judge.is_valid(changed(domain="cooking"))
    assert not judge.is_valid(changed(budget={"dollars": 1}))


def test_only_a_document_in_the_form_of_the_paper_is_exported_as_pmml_unasked() -> None:
    paper: dict[str, Any] = {
        "domain": "regression",
        "dataset": {"path": "flats.libsvm", "format": "libsvm"},
        "methods": [{"algorithm": "linear-regression", "hyperparameters": []}],
        "parameterSearch": "grid",
        "emailAddress": "mia@example.org",
    }
    both = ("onnx", "pmml")
    assert TrainingRequest.parse(paper).export == both
    assert TrainingRequest.parse(paper).changed({"budget": "3 trials"}).export == both
    for own in (
        {key: said for key, said in paper.items() if key != "emailAddress"},
        {**paper, "budget": "3 trials"},
        {**paper, "dataset": {"path": "flats.csv", "target": "price"}},
        {**paper, "export": ["onnx"]},
    ):
        assert TrainingRequest.parse(own).export == ("onnx",)
