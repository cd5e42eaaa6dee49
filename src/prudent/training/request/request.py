"""A training request: the JSON document in which somebody asks for the best model of their data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from prudent.core.errors import BadInput
from prudent.training.algorithms.algorithm import domains, metric_name
from prudent.training.algorithms.registry import algorithms, transforms
from prudent.training.request.errors import BadRequest, RequestError, json_path
from prudent.training.request.limits import (
    Budget,
    Deadline,
    RowsFile,
    ValidationMethod,
    read_budget,
    read_deadline,
    read_test,
    read_weights,
)
from prudent.tuning.strategies.registry import strategies

BAYESIAN = "bayesian-optimization"
FRUGAL = "frugal"
"""The search of a request that names none: cheap settings first, then better ones near them."""
ONNX, PMML = "onnx", "pmml"
FORMATS = ("libsvm", "csv", "parquet", "avro", "jsonl", "json")

_LATER = ("machines", "fractions", "goal", "test", "class_weights")
"""Keys that older requests do not have: where they are not said, a request is still the same."""

Text = Annotated[str, Field(min_length=1)]
ColumnName = Annotated[str, BeforeValidator(lambda said: str(said) if type(said) is int else said)]
PlainValue = bool | int | float | str
Bound = int | float | str


def searches() -> list[str]:
    """The names that `parameterSearch` takes."""
    return list(dict.fromkeys([*strategies(), FRUGAL, BAYESIAN]))


def _one_of(names: list[str]) -> Any:
    """Words that the schema lists; the reader checks them, for it knows what was meant."""
    return Field(json_schema_extra={"enum": [*names]})


class _RequestPart(BaseModel):
    # Keys that are not known are kept: a document of another program may say more than is understood here.
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="allow")


class HyperparameterSearch(_RequestPart):
    """A hyper-parameter and where to look: `values`, or a `range` with its `scale` and `type`."""

    param: Text
    values: tuple[PlainValue, ...] | None = None
    range: Annotated[tuple[Bound, Bound] | None, Field(description="lowest and highest number")] = None
    scale: Annotated[str, _one_of(["linear", "log"])] = "linear"
    type: Annotated[str | None, _one_of(["integer", "real"])] = None


class Method(_RequestPart):
    """An algorithm; without `hyperparameters` those that matter are searched where they usually are."""

    algorithm: Annotated[str, _one_of(algorithms())]
    hyperparameters: tuple[HyperparameterSearch, ...] | None = None


class DataSource(_RequestPart):
    """Where the data are and what they mean; without a format it is seen from the path and the data."""

    path: Text
    format: Annotated[str | None, _one_of(list(FORMATS))] = None
    target: ColumnName | None = None
    features: tuple[ColumnName, ...] | None = None


class Instances(_RequestPart):
    """Machines of one type."""

    ec2_instance: Annotated[
        str | None,
        Field(pattern=r"[A-Za-z][A-Za-z0-9-]*\.?(\d{1,2}x|x)?(nano|micro|small|medium|large|metal)$"),
    ] = None
    additional_hardware: tuple[Annotated[str, _one_of(["GPU"])], ...] = ()
    min_instances: Annotated[int | None, Field(ge=1, le=32)] = None
    max_instances: Annotated[int | None, Field(ge=1, le=32)] = None


class Resources(_RequestPart):
    """The machines to train on: rented for the Spark engine, and their price is what a trial costs."""

    instances: tuple[Instances, ...] = ()
    min_total_instances: Annotated[int | None, Field(ge=1, le=32)] = None
    max_total_instances: Annotated[int | None, Field(ge=1, le=64)] = None


class MachineOptions(_RequestPart):
    """Machines for the search to choose from: types (names, or patterns like m5.*) and how many of one."""

    types: Annotated[tuple[Text, ...], Field(min_length=1)]
    count: Annotated[
        tuple[Annotated[int, Field(ge=1, le=64)], ...],
        BeforeValidator(lambda said: (said,) if type(said) is int else said),
        Field(min_length=1),
    ] = (1,)


class Transform(_RequestPart):
    """A step before the algorithm: its name, and settings (a value, {"values": …} or {"range": …})."""

    name: Annotated[str, _one_of(transforms())]

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class TrainingRequest(_RequestPart):
    """What to train on which data, how to look for the best, and how long.

    >>> request = TrainingRequest.parse({"domain": "misc-functions", "budget": "20 trials"})
    >>> request.budget.trials, request.parallelism
    (20, None)
    >>> TrainingRequest.parse({"domain": "misc-function"})
    Traceback (most recent call last):
    ...
    prudent.training.request.errors.BadRequest: The request is wrong at domain: Unknown domain \
"misc-function". Did you mean "misc-functions"? Choose one of: regression, classification, clustering, \
deep-learning, binomial-classification, multinomial-classification, misc-functions.
    """

    domain: Annotated[str, _one_of(domains())]
    dataset: DataSource | None = None
    methods: tuple[Method, ...] = ()
    parameter_search: Annotated[str | None, _one_of(searches())] = None
    computational_resources: Resources | None = None
    email_address: str | None = None
    budget: Annotated[Budget, BeforeValidator(read_budget, json_schema_input_type=Budget | str)] = Budget()
    deadline: Annotated[
        Deadline | None,
        BeforeValidator(read_deadline, json_schema_input_type=Deadline | str | float | None),
    ] = None
    parallelism: Annotated[int | None, Field(ge=1, le=1024)] = None
    validation: ValidationMethod = ValidationMethod()
    test: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | bool | RowsFile | None,
        BeforeValidator(read_test, json_schema_input_type=float | bool | RowsFile | None),
        Field(
            description="the share of the rows that only the best models see at the end, or a file of them; "
            "false: none"
        ),
    ] = None
    class_weights: Annotated[
        dict[str, Annotated[float, Field(gt=0)]] | str | None,
        BeforeValidator(read_weights, json_schema_input_type=dict[str, float] | str | None),
        Field(description='"balanced", or how much the rows of each class count, by its label'),
    ] = None
    refit: Annotated[
        bool, Field(description="whether the few best models are trained once more, on all rows")
    ] = True
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    transforms: tuple[Transform, ...] = ()
    metric: Annotated[
        str | None, BeforeValidator(lambda said: metric_name(said) if isinstance(said, str) else said)
    ] = None
    export: Annotated[
        tuple[Annotated[str, _one_of([ONNX, PMML])], ...],
        Field(description="in which forms models are written; ONNX always, for predictions are made with it"),
    ] = (ONNX,)
    early_stopping: Annotated[
        bool | None,
        Field(
            description="whether a trial that does clearly worse than others did by then is cut; "
            "by default it is, except in a grid"
        ),
    ] = None
    ensemble: Annotated[
        bool,
        Field(description="whether a weighted average of the models may stand among them, as one more"),
    ] = True
    machine: str | None = None
    machines: Annotated[
        MachineOptions | None,
        Field(description="leaves the machines open: they are searched together with all else, on Spark"),
    ] = None
    fractions: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1)], ...] | None,
        Field(description="shares of the training rows that such a search may use; 1 is among them"),
    ] = None
    goal: Annotated[
        str | None,
        Field(
            description='of such a search, by default "maximise score"; also "minimise cost_usd subject to '
            'score >= 0.9"'
        ),
    ] = None

    @classmethod
    def parse(cls, said: Any) -> Self:
        """The request that a mapping, a JSON text or a path says; BadRequest has every error of it."""
        if isinstance(said, cls):
            return said
        if isinstance(said, Mapping):
            return cls._checked(dict(said))
        if isinstance(said, (str, Path)):
            return cls._read(said)
        raise BadInput(f"A request is a mapping or the path of a JSON document, not {type(said).__name__}.")

    @classmethod
    def _read(cls, said: str | Path) -> Self:
        if isinstance(said, str) and said.lstrip().startswith("{"):
            return cls._checked(_loads(said, "The request"))
        path = Path(said)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise BadInput(f'Cannot read the request "{path}" ({why}); check the path.') from error
        return cls._checked(_relative_to(_loads(text, f'"{path}"'), path.parent))

    @classmethod
    def _checked(cls, document: dict[str, Any]) -> Self:
        from prudent.training.request.checks import check

        if is_of_the_paper(document):
            document = {**document, "export": [ONNX, PMML]}
        try:
            request, wrong = cls.model_validate(document), list[RequestError]()
        except ValidationError as error:
            request, wrong = None, _request_errors(error)
        known = {found.path for found in wrong}
        wrong += [found for found in check(document) if found.path not in known]
        if wrong or request is None:
            raise BadRequest(wrong)
        return request

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """The same request with some of its keys said otherwise."""
        return type(self).parse({**self.to_dict(), **changes}) if changes else self

    @property
    def notes(self) -> tuple[str, ...]:
        """What the document says and nobody here understands: it was ignored."""
        return tuple(f'"{path}" is unknown and was ignored.' for path in _unknown_keys(self))

    def to_dict(self) -> dict[str, Any]:
        """The document again, in full."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def fingerprint(self) -> str:
        """Tells requests apart by what they ask for, so that another one's journals are refused.

        Limits and the machine's number of trials are left out: a request may go on with a larger budget.
        """
        asked = self.model_dump(
            mode="json",
            exclude={
                "budget",
                "deadline",
                "parallelism",
                "email_address",
                "computational_resources",
                "early_stopping",
                "ensemble",
                *(
                    name
                    for name in ("machines", "fractions", "goal", "test", "class_weights")
                    if getattr(self, name) is None
                ),
                *(["refit"] if self.refit else []),
            },
        )
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


_PAPER_KEYS = {"domain", "dataset", "methods", "parameterSearch", "computationalResources", "emailAddress"}
_PAPER_NEEDS = {"methods", "parameterSearch", "emailAddress"}


def is_of_the_paper(document: Mapping[str, Any]) -> bool:
    """Whether a document has the form of Zygarde's paper: all that it must have there, and nothing else.

    Its readers had their models as PMML, so it is written unasked.
    """
    said, dataset = set(document), document.get("dataset")
    own_data = isinstance(dataset, Mapping) and not set(dataset) <= {"path", "format"}
    return _PAPER_NEEDS <= said <= _PAPER_KEYS and not own_data


def schema() -> dict[str, Any]:
    """The JSON Schema of a request."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TrainingRequest.model_json_schema(by_alias=True),
    }


def _loads(text: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{what} is not a valid JSON document ({error}); correct it.") from None
    if not isinstance(document, dict):
        raise BadInput(f"{what} is not a JSON object; begin with {{ and name a domain.")
    return document


def _relative_to(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A relative data path means a file beside the document, if there is one."""
    found = dict(document)
    for key in ("dataset", "validation", "test"):
        path = said.get("path") if isinstance(said := document.get(key), dict) else None
        if isinstance(path, str) and path and "://" not in path and (folder / path).exists():
            found[key] = {**document[key], "path": str(folder / path)}
    return found


_WORDS = {
    "missing": "It is missing; add it.",
    "int_type": "Give a whole number.",
    "int_parsing": "Give a whole number.",
    "int_from_float": "Give a whole number.",
    "float_type": "Give a number.",
    "string_type": "Give a text.",
    "string_too_short": "It is empty; give a text.",
    "tuple_type": "Give a list.",
    "too_short": "The list is empty; put something in.",
    "model_type": "Give an object, as {…}.",
    "model_attributes_type": "Give an object, as {…}.",
    "string_pattern_mismatch": 'Write a machine type such as "m5.large".',
}


def _request_errors(error: ValidationError) -> list[RequestError]:
    """pydantic's findings in our words, one for each place."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        parts = [part for part in detail["loc"] if not _is_branch(part)]
        cause = detail.get("ctx", {}).get("error")
        words = str(cause) if cause else _WORDS.get(detail["type"], f"{detail['msg']}.")
        found.setdefault(json_path(parts), words)
    return [RequestError(path, words) for path, words in found.items()]


def _is_branch(part: str | int) -> bool:
    """Whether a part of a place names a type of a union rather than a key."""
    return isinstance(part, str) and (part in ("str", "int", "float", "bool") or "[" in part)


def _unknown_keys(part: BaseModel, parents: tuple[str | int, ...] = ()) -> list[str]:
    own = {} if isinstance(part, Transform) else part.model_extra or {}
    found = [json_path((*parents, name)) for name in own]
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        place = (*parents, field.alias or name)
        if isinstance(value, BaseModel):
            found += _unknown_keys(value, place)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                found += _unknown_keys(item, (*place, index)) if isinstance(item, BaseModel) else []
    return found
