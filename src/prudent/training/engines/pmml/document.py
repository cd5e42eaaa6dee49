"""A whole PMML document: fields, preparation and model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from prudent._version import __version__
from prudent.training.data.dataset import Column
from prudent.training.engines.fitted_transforms import FittedTransform
from prudent.training.engines.local.learners.clusters import GaussianMixtureModel
from prudent.training.engines.pmml.fields import DerivedFields, dictionary
from prudent.training.engines.pmml.models import ModelSchema, element

_NAMESPACE = "http://www.dmg.org/PMML-4_4"


def document(
    model: Any,
    transforms: Sequence[FittedTransform],
    columns: Sequence[Column],
    target: str | None,
    classes: Sequence[Any],
    wide: bool = False,
) -> bytes:
    """The model, with all that happens to raw rows before it; NotExpressible if PMML cannot say it.

    A row is given by the names of its columns, categories as they are; the answer is the class as the data
    have it, the value, or the number of the cluster.
    """
    derived = DerivedFields(columns, wide)
    for transform in transforms:
        derived.add(transform)
    labels = [str(label) for label in classes]
    if isinstance(model, GaussianMixtureModel):
        # PMML knows no mixtures, but the classes of a polynomial are the same.
        labels, target = [str(number) for number in range(len(model.means))], "cluster"
    schema = ModelSchema(
        [column.name for column in columns],
        derived.element,
        derived.features,
        target,
        labels,
        probable=bool(labels) and getattr(model, "probable", True),
        wide=wide,
    )
    found = element(model, schema)
    if not len(derived.element):
        found.remove(derived.element)
    root = Element("PMML", version="4.4", xmlns=_NAMESPACE)
    header = SubElement(root, "Header")
    SubElement(header, "Application", name="Prudent", version=__version__)
    dictionary(root, columns, target, labels, derived.precision)
    root.append(found)
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True))
