"""WfFormat: both versions are read, what is written reads back the same."""

from __future__ import annotations

import json

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, File, Usage, Workflow
from prudent.workflows.formats.generate import generate, shapes
from prudent.workflows.formats.wfformat import parse, render

OLD = {
    "name": "old",
    "schemaVersion": "1.4",
    "workflow": {
        "tasks": [
            {
                "name": "split_1",
                "id": "ID1",
                "category": "split",
                "runtimeInSeconds": 3.5,
                "parents": [],
                "children": ["join_2"],
                "command": {"program": "split", "arguments": ["-n", 2]},
                "files": [{"link": "output", "name": "x", "sizeInBytes": 12}],
            },
            {
                "name": "join_2",
                "id": "ID2",
                "runtimeInSeconds": 1,
                "parents": ["split_1"],
                "files": [{"link": "input", "name": "x", "sizeInBytes": 12}],
            },
        ]
    },
}


def test_version_1_4_refers_by_name():
    workflow = parse(json.dumps(OLD))
    assert workflow.edges == (("ID1", "ID2"),)
    assert workflow["ID1"].command == ("split", "-n", "2")
    assert workflow["ID1"].program == "split"
    assert workflow["ID2"].staged() == {"x": 12}


@pytest.mark.parametrize("shape", shapes())
def test_generated_round_trip(tmp_path, shape):
    workflow = generate(shape, 40, seed=3)
    workflow.write(tmp_path / "w.json")
    assert Workflow.read(tmp_path / "w.json") == workflow


def test_everything_survives():
    workflow = Workflow(
        "w",
        (
            Activation(
                "a", "p", 2.5, (), (File("x", 4), File("g", 1)), ("p", "-o", "x"), {"m": 3.0}, ("a1", "a2")
            ),
            Activation("b", "p", 1.5, (File("x", 6),), (File("g", 2),), cores=2, memory_bytes=4e9),
            Activation("c", "q", 1.0, usage=Usage(1.5, 3e6, 10, 20)),
        ),
        (("b", "c"),),
        frozenset({"g"}),
    )
    assert parse(render(workflow)) == workflow
    ran = json.loads(render(workflow))["workflow"]["execution"]["tasks"]
    assert ran[1]["coreCount"] == 2
    assert ran[2]["avgCPU"] == 150, "per cent of one core, as WfFormat has it"
    assert (ran[2]["memoryInBytes"], ran[2]["readBytes"], ran[2]["writtenBytes"]) == (3e6, 10, 20)


def test_public_trace_round_trip(traces):
    workflow = Workflow.read(traces / "Montage_25.xml")
    assert parse(render(workflow)) == workflow


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("workflow"), 'no "workflow"'),
        (lambda d: d["workflow"].update(tasks=[]), 'no list of "tasks"'),
        (lambda d: d["workflow"]["tasks"][0]["files"][0].update(sizeInBytes=-1), "zero or more"),
        (lambda d: d["workflow"]["tasks"][0]["files"][0].update(link="both"), '"both"'),
        (lambda d: d["workflow"]["tasks"][1].update(parents=["nobody"]), '"nobody"'),
        (lambda d: d["workflow"]["tasks"][0].update(parents=["join_2"]), "cycle"),
        (lambda d: d["workflow"]["tasks"][0].update(runtimeInSeconds="x"), "does not follow"),
        (lambda d: d["workflow"]["tasks"][0].update(files=[{}]), "does not follow"),
    ],
)
def test_refused(change, message):
    document = json.loads(json.dumps(OLD))
    change(document)
    with pytest.raises(BadInput, match=message):
        parse(json.dumps(document))


def test_refused_1_5():
    document = json.loads(render(generate("montage", 9)))
    document["workflow"]["specification"]["files"] = []
    with pytest.raises(BadInput, match="does not list"):
        parse(json.dumps(document))
    document = json.loads(render(generate("montage", 9)))
    document["workflow"]["execution"]["tasks"][0]["id"] = "odd"
    with pytest.raises(BadInput, match='names task "odd"'):
        parse(json.dumps(document))
    with pytest.raises(BadInput, match="not valid JSON"):
        parse("{")
