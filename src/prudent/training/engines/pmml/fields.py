"""What a PMML document says of fields: raw columns, and what is derived from them before the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from prudent.training.data.dataset import CATEGORICAL, Column
from prudent.training.engines.fitted_transforms import Affine, FittedTransform, Impute, OneHot, TargetEncode


class NotExpressible(Exception):
    """PMML has no form for this; the message says for what."""


@dataclass(frozen=True)
class FeatureField:
    """One feature on its way to the model: the field that holds it, and its categories if it has some."""

    field: str
    categories: tuple[Any, ...] | None = None


def number(value: Any) -> str:
    """A number with all its digits.

    >>> number(np.float32(0.1)), number(2)
    ('0.10000000149011612', '2.0')
    """
    return repr(float(value))


def dictionary(
    root: Element, columns: Sequence[Column], target: str | None, classes: Sequence[Any], precision: str
) -> None:
    """Every column of the data as a field, in the precision in which the trained model took them."""
    found = SubElement(root, "DataDictionary")
    for column in columns:
        if column.kind == CATEGORICAL:
            _categories(found, column.name, column.categories)
        else:
            SubElement(found, "DataField", name=column.name, optype="continuous", dataType=precision)
    if target is not None and classes:
        _categories(found, target, classes)
    elif target is not None:
        SubElement(found, "DataField", name=target, optype="continuous", dataType="double")


def _categories(place: Element, name: str, values: Sequence[Any]) -> None:
    field = SubElement(place, "DataField", name=name, optype="categorical", dataType="string")
    for value in values:
        SubElement(field, "Value", value=str(value))


def mining_schema(place: Element, names: Sequence[str], target: str | None = None) -> None:
    """The fields that a model takes; a category that nobody has seen is taken for a missing one."""
    found = SubElement(place, "MiningSchema")
    if target is not None:
        SubElement(found, "MiningField", name=target, usageType="target")
    for name in names:
        SubElement(found, "MiningField", name=name, invalidValueTreatment="asMissing")


class DerivedFields:
    """Fields that transforms derive one from the other; `features` are what the model gets."""

    def __init__(self, columns: Sequence[Column], wide: bool = False) -> None:
        self.precision = "double" if wide else "float"
        self.element = Element("LocalTransformations")
        self.features = [
            FeatureField(column.name, column.categories if column.kind == CATEGORICAL else None)
            for column in columns
        ]
        self._raw = {column.name for column in columns}
        self._count = 0

    def add(self, transform: FittedTransform) -> None:
        if isinstance(transform, Impute):
            self.features = [
                self._filled(feature, fill)
                for feature, fill in zip(self.features, transform.fills, strict=True)
            ]
        elif isinstance(transform, TargetEncode):
            tables = zip(transform.sources, transform.tables, strict=True)
            means = [self._mean(self.features[source], aim) for source, table in tables for aim in table.T]
            self.features = [*(self.features[place] for place in transform.kept), *means]
        elif isinstance(transform, OneHot):
            pairs = zip(transform.sources, transform.values, strict=True)
            hot = [self._hit(self.features[source], value) for source, value in pairs]
            self.features = [*(self.features[place] for place in transform.kept), *hot]
        elif isinstance(transform, Affine):
            self._affine(transform)
        else:
            raise NotExpressible("dates")

    def _filled(self, feature: FeatureField, fill: float) -> FeatureField:
        if feature.categories is not None:
            if not feature.categories:
                return feature
            said, kind = str(feature.categories[int(fill)]), "string"
        else:
            said, kind = self._number(fill), "double"
        field = self._field(categorical=feature.categories is not None)
        chosen = apply(field, "if")
        SubElement(apply(chosen, "isMissing"), "FieldRef", field=feature.field)
        SubElement(chosen, "Constant", dataType=kind).text = said
        SubElement(chosen, "FieldRef", field=feature.field)
        return FeatureField(field.attrib["name"], feature.categories)

    def _hit(self, feature: FeatureField, value: float) -> FeatureField:
        field = self._field()
        if feature.categories is not None:
            wanted = str(feature.categories[int(value)])
            SubElement(field, "NormDiscrete", field=feature.field, value=wanted, mapMissingTo="0")
            return FeatureField(field.attrib["name"])
        chosen = apply(field, "if")
        asked = apply(chosen, "equal")
        SubElement(asked, "FieldRef", field=feature.field)
        SubElement(asked, "Constant", dataType="float").text = number(value)
        SubElement(chosen, "Constant", dataType="double").text = "1"
        SubElement(chosen, "Constant", dataType="double").text = "0"
        return FeatureField(field.attrib["name"])

    def _mean(self, feature: FeatureField, aim: Sequence[float]) -> FeatureField:
        """The value of a category; the last one is for a missing category."""
        field = self._field()
        last = self._number(aim[-1])
        facts = {"outputColumn": "mean", "mapMissingTo": last, "defaultValue": last, "dataType": "double"}
        table = SubElement(field, "MapValues", facts)
        SubElement(table, "FieldColumnPair", field=feature.field, column="category")
        rows = SubElement(table, "InlineTable")
        for category, mean in zip(feature.categories or (), aim, strict=False):
            row = SubElement(rows, "row")
            SubElement(row, "category").text = str(category)
            SubElement(row, "mean").text = self._number(mean)
        return FeatureField(field.attrib["name"])

    def _affine(self, transform: Affine) -> None:
        if transform.weights.ndim == 1:
            triples = zip(self.features, transform.shift, transform.weights, strict=True)
            self.features = [
                feature if (shift, factor) == (0.0, 1.0) else self._combined([(feature, shift, factor)])
                for feature, shift, factor in triples
            ]
            return
        features = self.features
        self.features = [
            self._combined(list(zip(features, transform.shift, axis, strict=True)))
            for axis in transform.weights.T
        ]

    def _combined(self, parts: Sequence[tuple[FeatureField, float, float]]) -> FeatureField:
        """The sum of (feature - shift) x factor."""
        field = self._field()
        total = apply(field, "sum") if len(parts) > 1 else field
        for feature, shift, factor in parts:
            product = apply(total, "*")
            moved = apply(product, "-")
            SubElement(moved, "FieldRef", field=feature.field)
            SubElement(moved, "Constant", dataType="double").text = number(shift)
            SubElement(product, "Constant", dataType="double").text = number(factor)
        return FeatureField(field.attrib["name"])

    def _number(self, value: Any) -> str:
        return number(value if self.precision == "double" else np.float32(value))

    def _field(self, categorical: bool = False) -> Element:
        self._count += 1
        while (name := f"prepared {self._count}") in self._raw:
            self._count += 1
        kind, of = ("categorical", "string") if categorical else ("continuous", self.precision)
        return SubElement(self.element, "DerivedField", name=name, optype=kind, dataType=of)


def apply(place: Element, function: str) -> Element:
    return SubElement(place, "Apply", function=function)
