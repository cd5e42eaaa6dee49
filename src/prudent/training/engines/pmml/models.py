"""The PMML element of each kind of model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.local.learners.clusters import GaussianMixtureModel, KMeansModel
from prudent.training.engines.local.learners.generalized import GeneralizedLinearModel
from prudent.training.engines.local.learners.linear import (
    BinaryLinearClassifier,
    LinearRegressor,
    SoftmaxClassifier,
)
from prudent.training.engines.local.learners.naive_bayes import GaussianNaiveBayes
from prudent.training.engines.local.learners.perceptron import MultilayerPerceptron
from prudent.training.engines.local.learners.solver import LinearFunction
from prudent.training.engines.local.learners.tree_arrays import (
    LEAF,
    AveragedTrees,
    SummedTrees,
    Tree,
    flat_tree,
    rounded_down,
)
from prudent.training.engines.pmml.fields import FeatureField, NotExpressible, mining_schema, number

Matrix = NDArray[np.float64]
_LINKS = {"identity": "none", "log": "exp", "logit": "logit", "probit": "probit", "cloglog": "cloglog"}


@dataclass(frozen=True)
class ModelSchema:
    """What a model is declared with: raw inputs, derived fields, features, target and its classes."""

    inputs: Sequence[str]
    derived: Element
    features: Sequence[FeatureField]
    target: str | None
    labels: Sequence[str]
    probable: bool
    """Whether the model says how likely each class is."""
    wide: bool = False
    """Whether raw columns have more digits than single precision keeps."""

    @property
    def fields(self) -> list[str]:
        """The names of the fields that hold the features."""
        return [feature.field for feature in self.features]

    def begin(self, name: str, function: str, **more: str) -> Element:
        """The outermost element of a model, up to where its own parts begin."""
        made = Element(name, {"functionName": function, **more})
        mining_schema(made, self.inputs, self.target)
        if self.probable:
            output = SubElement(made, "Output")
            for label in self.labels:
                SubElement(
                    output,
                    "OutputField",
                    name=f"probability({label})",
                    optype="continuous",
                    dataType="double",
                    feature="probability",
                    value=label,
                )
        return made


def element(model: Any, schema: ModelSchema) -> Element:
    """The model in PMML."""
    model = getattr(model, "exported", model)  # of trees that one library or another has grown
    for kind, make in _MAKERS.items():
        if isinstance(model, kind):
            return make(model, schema)
    raise NotExpressible(f"a model of the kind {type(model).__name__}")


# Linear models


def _table(
    place: Element, schema: ModelSchema, linear: LinearFunction, output: int, label: str | None = None
) -> Element:
    named = {} if label is None else {"targetCategory": label}
    table = SubElement(place, "RegressionTable", {"intercept": number(linear.intercepts[output]), **named})
    for field, weight in zip(schema.fields, linear.weights[:, output], strict=True):
        if weight:
            SubElement(table, "NumericPredictor", name=field, coefficient=number(weight))
    return table


def _value(model: LinearRegressor, schema: ModelSchema) -> Element:
    made = schema.begin("RegressionModel", "regression", normalizationMethod="none")
    made.append(schema.derived)
    _table(made, schema, model.linear, 0)
    return made


def _classes(linear: LinearFunction, schema: ModelSchema) -> Element:
    """The class with the highest linear function, by softmax."""
    made = schema.begin("RegressionModel", "classification", normalizationMethod="softmax")
    made.append(schema.derived)
    for output, label in enumerate(schema.labels):
        _table(made, schema, linear, output, label)
    return made


def _side(model: BinaryLinearClassifier, schema: ModelSchema) -> Element:
    if model.probable and model.threshold != 0:
        raise NotExpressible("a threshold other than 0.5, as PMML always takes the likelier class")
    nothing = np.zeros_like(model.linear.weights)
    weights = np.concatenate([nothing, model.linear.weights], axis=1)
    shifts = np.array([0.0, model.linear.intercepts[0] - model.threshold])
    return _classes(LinearFunction(weights, shifts), schema)


def _generalized(model: GeneralizedLinearModel, schema: ModelSchema) -> Element:
    if model.link.name not in _LINKS:
        raise NotExpressible(f"the link {model.link.name}")
    made = schema.begin("RegressionModel", "regression", normalizationMethod=_LINKS[model.link.name])
    made.append(schema.derived)
    _table(made, schema, model.linear, 0)
    return made


def _quadratic(schema: ModelSchema, constants: Matrix, straight: Matrix, squares: Matrix) -> Element:
    """Classes by second-degree polynomials: (k), (k, features) and (k, features, features)."""
    made = schema.begin("RegressionModel", "classification", normalizationMethod="softmax")
    made.append(schema.derived)
    fields = schema.fields
    for output, label in enumerate(schema.labels):
        table = SubElement(made, "RegressionTable", intercept=number(constants[output]), targetCategory=label)
        for place, field in enumerate(fields):
            SubElement(table, "NumericPredictor", name=field, coefficient=number(straight[output, place]))
            square = number(squares[output, place, place])
            SubElement(table, "NumericPredictor", name=field, exponent="2", coefficient=square)
        for one, other in zip(*np.triu_indices(len(fields), 1), strict=True):
            weight = squares[output, one, other] + squares[output, other, one]
            if weight:
                term = SubElement(table, "PredictorTerm", coefficient=number(weight))
                SubElement(term, "FieldRef", field=fields[one])
                SubElement(term, "FieldRef", field=fields[other])
    return made


def _bayes(model: GaussianNaiveBayes, schema: ModelSchema) -> Element:
    halves = 0.5 / model.variances
    constants = model.offsets - (halves * model.means**2).sum(axis=1)
    squares = np.stack([np.diag(-each) for each in halves])
    return _quadratic(schema, constants, 2.0 * halves * model.means, squares)


def _mixture(model: GaussianMixtureModel, schema: ModelSchema) -> Element:
    inverse = model.whitening @ model.whitening.transpose(0, 2, 1)
    straight = np.einsum("kij,kj->ki", inverse, model.means)
    constants = model.offsets - 0.5 * np.einsum("ki,ki->k", straight, model.means)
    return _quadratic(schema, constants, straight, -0.5 * inverse)


# Trees


def _nodes(place: Element, tree: Tree, schema: ModelSchema, score: Callable[[Element, Any], None]) -> None:
    """The nodes of a tree, each with the question that leads to it."""
    root = SubElement(place, "Node", id="0")
    SubElement(root, "True")
    left_to_do = [(0, root)]
    while left_to_do:
        at, node = left_to_do.pop()
        if tree.left[at] == LEAF:
            score(node, tree.values[at])
            continue
        left, right = (SubElement(node, "Node", id=str(int(side[at]))) for side in (tree.left, tree.right))
        if tree.missing_left is not None:
            node.set("defaultChild", (left if tree.missing_left[at] else right).attrib["id"])
        _question(tree, at, schema, left, right)
        left_to_do += [(int(tree.left[at]), left), (int(tree.right[at]), right)]


def _question(tree: Tree, at: int, schema: ModelSchema, left: Element, right: Element) -> None:
    """What leads to the left and to the right child of a node."""
    feature = schema.features[int(tree.feature[at])]
    field = feature.field
    if at in tree.sets:
        values, leads_left = tree.sets[at]
        for child, inside in ((left, leads_left), (right, not leads_left)):
            operator = "isIn" if inside else "isNotIn"
            asked = SubElement(child, "SimpleSetPredicate", field=field, booleanOperator=operator)
            kind, said = _array(feature, values)
            SubElement(asked, "Array", n=str(len(values)), type=kind).text = said
        return
    exact = tree.threshold[at : at + 1]
    value = number((exact if schema.wide else rounded_down(exact))[0])
    SubElement(left, "SimplePredicate", field=field, operator="lessOrEqual", value=value)
    SubElement(right, "SimplePredicate", field=field, operator="greaterThan", value=value)


def _array(feature: FeatureField, values: Sequence[float]) -> tuple[str, str]:
    """The type and the text of an array of a feature's values."""
    if feature.categories is None:
        return "real", " ".join(number(np.float32(value)) for value in values)
    words = [feature.categories[int(value)].replace('"', '\\"') for value in values]
    return "string", " ".join(f'"{word}"' for word in words)


def _tree_facts(tree: Tree) -> dict[str, str]:
    missing = {} if tree.missing_left is None else {"missingValueStrategy": "defaultChild"}
    return {"splitCharacteristic": "binarySplit", **missing}


def _scored(node: Element, values: Any) -> None:
    node.set("score", number(values[0]))


def _forest(model: AveragedTrees, schema: ModelSchema) -> Element:
    function = "classification" if model.classifies else "regression"

    def shares(node: Element, values: Any) -> None:
        node.set("score", schema.labels[int(np.argmax(values))])
        for label, share in zip(schema.labels, values, strict=True):
            SubElement(node, "ScoreDistribution", value=label, recordCount=number(share))

    trees, score = model.trees, shares if model.classifies else _scored
    if len(trees) == 1:
        made = schema.begin("TreeModel", function, **_tree_facts(trees[0]))
        made.append(schema.derived)
        _nodes(made, trees[0], schema, score)
        return made
    made = schema.begin("MiningModel", function)
    made.append(schema.derived)
    _segments(made, trees, schema, function, "average", score)
    return made


def _segments(
    place: Element,
    trees: Sequence[Tree],
    schema: ModelSchema,
    function: str,
    method: str,
    score: Callable[[Element, Any], None],
) -> None:
    together = SubElement(place, "Segmentation", multipleModelMethod=method)
    for place_of, tree in enumerate(trees):
        segment = SubElement(together, "Segment", id=str(place_of + 1))
        SubElement(segment, "True")
        one = SubElement(segment, "TreeModel", {"functionName": function, **_tree_facts(tree)})
        inner = tree.left != LEAF
        used = [schema.fields[feature] for feature in np.unique(tree.feature[inner])]
        mining_schema(one, used, schema.target if function == "classification" else None)
        _nodes(one, tree, schema, score)


def _sums(model: SummedTrees, schema: ModelSchema) -> Element:
    """Sums of trees, one after the other, and at the end what they mean."""
    if getattr(model, "shift", None) is not None:
        raise NotExpressible("trees on differences of numbers in single precision")
    if not model.classifies:
        made = schema.begin("MiningModel", "regression")
        targets = SubElement(made, "Targets")
        SubElement(targets, "Target", field=schema.target or "", rescaleConstant=number(model.base[0]))
        made.append(schema.derived)
        _segments(made, _trees_of(model, 0), schema, "regression", "sum", _scored)
        return made
    made = schema.begin("MiningModel", "classification")
    made.append(schema.derived)
    chain = SubElement(made, "Segmentation", multipleModelMethod="modelChain")
    sums = [f"sum {output + 1}" for output in range(len(model.base))]
    for output, name in enumerate(sums):
        segment = SubElement(chain, "Segment", id=str(output + 1))
        SubElement(segment, "True")
        inner = SubElement(segment, "MiningModel", functionName="regression")
        mining_schema(inner, schema.fields)
        said = SubElement(inner, "Output")
        facts = {"optype": "continuous", "dataType": "double", "feature": "predictedValue"}
        SubElement(said, "OutputField", {"name": name, "isFinalResult": "false", **facts})
        _segments(inner, _trees_of(model, output), schema, "regression", "sum", _scored)
    segment = SubElement(chain, "Segment", id=str(len(sums) + 1))
    SubElement(segment, "True")
    last = SubElement(
        segment, "RegressionModel", functionName="classification", normalizationMethod="softmax"
    )
    mining_schema(last, sums, schema.target)
    for output, label in enumerate(schema.labels):
        # Two classes share one sum, the log-odds of the second.
        place = output - (len(schema.labels) - len(sums))
        begin = number(model.base[place]) if place >= 0 else "0"
        table = SubElement(last, "RegressionTable", intercept=begin, targetCategory=label)
        if place >= 0:
            SubElement(table, "NumericPredictor", name=sums[place], coefficient="1")
    return made


def _trees_of(model: SummedTrees, output: int) -> list[Tree]:
    return [tree for number_of, tree in model.trees if number_of == output] or [flat_tree()]


# Networks and clusters


def _network(model: MultilayerPerceptron, schema: ModelSchema) -> Element:
    made = schema.begin("NeuralNetwork", "classification", activationFunction="logistic")
    made.append(schema.derived)
    inputs = SubElement(made, "NeuralInputs")
    before = []
    for place, field in enumerate(schema.fields):
        before.append(f"0,{place}")
        holder = SubElement(inputs, "NeuralInput", id=before[-1])
        derived = SubElement(holder, "DerivedField", optype="continuous", dataType="double")
        SubElement(derived, "FieldRef", field=field)
    for depth, linear in enumerate(model.layers, start=1):
        last = depth == len(model.layers)
        how = {"activationFunction": "identity", "normalizationMethod": "softmax"} if last else {}
        layer = SubElement(made, "NeuralLayer", how)
        now = [f"{depth},{place}" for place in range(len(linear.intercepts))]
        for place, name in enumerate(now):
            neuron = SubElement(layer, "Neuron", id=name, bias=number(linear.intercepts[place]))
            for source, weight in zip(before, linear.weights[:, place], strict=True):
                SubElement(neuron, "Con", {"from": source, "weight": number(weight)})
        before = now
    outputs = SubElement(made, "NeuralOutputs")
    for name, label in zip(before, schema.labels, strict=True):
        holder = SubElement(outputs, "NeuralOutput", outputNeuron=name)
        derived = SubElement(holder, "DerivedField", optype="categorical", dataType="string")
        SubElement(derived, "NormDiscrete", field=schema.target or "", value=label)
    return made


def _centres(model: KMeansModel, schema: ModelSchema) -> Element:
    if model.cosine:
        raise NotExpressible("distances by cosine")
    said = Element("Output")
    facts = {"optype": "categorical", "dataType": "string", "feature": "predictedValue"}
    SubElement(said, "OutputField", {"name": "cluster", **facts})
    many = str(len(model.centres))
    made = schema.begin("ClusteringModel", "clustering", modelClass="centerBased", numberOfClusters=many)
    made.append(said)
    made.append(schema.derived)
    SubElement(SubElement(made, "ComparisonMeasure", kind="distance"), "squaredEuclidean")
    for field in schema.fields:
        SubElement(made, "ClusteringField", field=field, compareFunction="absDiff")
    for place, centre in enumerate(model.centres):
        cluster = SubElement(made, "Cluster", id=str(place))
        values = " ".join(number(value) for value in centre)
        SubElement(cluster, "Array", n=str(len(centre)), type="real").text = values
    return made


_MAKERS: dict[Any, Callable[[Any, ModelSchema], Element]] = {
    LinearRegressor: _value,
    SoftmaxClassifier: lambda model, schema: _classes(model.linear, schema),
    BinaryLinearClassifier: _side,
    GeneralizedLinearModel: _generalized,
    GaussianNaiveBayes: _bayes,
    AveragedTrees: _forest,
    SummedTrees: _sums,
    MultilayerPerceptron: _network,
    KMeansModel: _centres,
    GaussianMixtureModel: _mixture,
}
