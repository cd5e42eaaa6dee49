"""A whole PMML document: fields, preparation and model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from prudent._version import __version__
from prudent.training.dataset import Column
from prudent.training.engines.local.clusters import Mixture
from prudent.training.engines.local.lesson import Model
from prudent.training.engines.local.linear import RivalsModel, SideModel
from prudent.training.engines.local.pmml.fields import Derived, dictionary
from prudent.training.engines.local.pmml.models import Frame, element
from prudent.training.engines.local.steps import Step

_NAMESPACE = "http://www.dmg.org/PMML-4_4"


def document(
    model: Model, steps: Sequence[Step], columns: Sequence[Column], target: str | None, classes: Sequence[Any]
) -> bytes | None:
    """The model, with all that happens to raw rows before it; None if PMML has no words for it.

    A row is given by the names of its columns, categories as they are; the answer is the class as the data
    have it, the value, or the number of the cluster.
    """
    derived = Derived(columns)
    for step in steps:
        derived.add(step)
    labels = [str(label) for label in classes]
    if isinstance(model, Mixture):
        # PMML knows no mixtures, but the classes of a polynomial are the same.
        labels, target = [str(number) for number in range(len(model.means))], "cluster"
    unsure = isinstance(model, RivalsModel) or (isinstance(model, SideModel) and not model.logistic)
    frame = Frame(
        [column.name for column in columns],
        derived.element,
        [slot.field for slot in derived.slots],
        target,
        labels,
        probable=bool(labels) and not unsure,
    )
    found = element(model, frame)
    if found is None:
        return None
    if not len(derived.element):
        found.remove(derived.element)
    root = Element("PMML", version="4.4", xmlns=_NAMESPACE)
    header = SubElement(root, "Header")
    SubElement(header, "Application", name="Prudent", version=__version__)
    dictionary(root, columns, target, labels)
    root.append(found)
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True))
