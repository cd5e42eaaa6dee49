"""DAX documents: what is read, what is refused, what is mended."""

from __future__ import annotations

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Workflow
from prudent.workflows.formats.dax import parse

STAMP = 'version="2.1" count="1" index="0" name="t" jobCount="2" fileCount="0" childCount="1"'


def dax(body: str, attributes: str = "") -> str:
    return f'<?xml version="1.0"?><adag xmlns="http://pegasus.isi.edu/schema/DAX" {attributes}>{body}</adag>'


def test_version_2():
    workflow = parse(
        dax(
            '<job id="A" name="split" runtime="12.5"><uses file="in" link="input" size="10"/>'
            '<uses file="mid" link="output" size="20"/></job>'
            '<job id="B" name="join" runtime="0.02"><uses file="mid" link="input" size="20"/></job>'
            '<child ref="B"><parent ref="A"/></child>'
        )
    )
    assert [(a.id, a.program, a.runtime_s) for a in workflow.activations] == [
        ("A", "split", 12.5),
        ("B", "join", 0.1),
    ]
    assert workflow["A"].staged() == {"in": 10}
    assert workflow.edges == (("A", "B"),)


def test_version_3_has_arguments_profiles_and_names():
    workflow = parse(
        dax(
            '<job id="A" name="grep"><argument>-c "two words" <file name="in.txt"/></argument>'
            '<profile namespace="pegasus" key="runtime">33</profile>'
            '<uses name="in.txt" link="input" size="5"/><uses name="log" link="inout" size="1"/></job>'
        )
    )
    activation = workflow["A"]
    assert activation.command == ("grep", "-c", "two words", "in.txt")
    assert activation.runtime_s == 33
    assert activation.staged() == {"in.txt": 5}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('<job id="A" runtime="-3"/>', "run time"),
        ('<job id="A" runtime="soon"/>', '"soon"; give a number'),
        ('<job id="A" runtime="1"><uses file="x" link="output" size="-7"/></job>', "size"),
        ('<job id="A" runtime="1"><uses link="output"/></job>', "without a name"),
        ('<job id="A" runtime="1"><uses file="x" link="sideways"/></job>', '"sideways"'),
        ('<job runtime="1"/>', 'no "id"'),
        ('<job id="A"/><child ref="A"><parent ref="Z"/></child>', 'names activation "Z"'),
        ('<job id="A"/><child ref="A"><parent ref="A"/></child>', "cycle"),
        ("", "no activations"),
        (
            '<job id="A"><uses file="x" link="output"/></job>'
            '<job id="B"><uses file="x" link="output"/></job>',
            "written by both",
        ),
    ],
)
def test_refused(body, message):
    with pytest.raises(BadInput, match=message):
        parse(dax(body))


def test_not_dax():
    with pytest.raises(BadInput, match="not <adag>"):
        parse("<html/>")
    with pytest.raises(BadInput, match="not well-formed"):
        parse("<adag>")


def test_generators_faults_are_mended_only_under_its_stamp():
    body = (
        '<job id="A" runtime="-1"><uses file="x" link="output" size="-8"/>'
        '<uses file="o" link="output"/></job>'
        '<job id="B"><uses file="x" link="input" size="-8"/><uses file="o" link="output"/></job>'
        '<child ref="B"><parent ref="A"/></child>'
    )
    workflow = parse(dax(body, STAMP))
    assert workflow["A"].runtime_s == 0.1
    assert workflow["B"].staged() == {"x": 8}
    assert workflow.gathered == {"o"}
    assert len(workflow.notes) == 3
    with pytest.raises(BadInput):
        parse(dax(body))


def test_a_generated_trace_has_the_edges_it_declares():
    body = (
        '<job id="A" runtime="1"><uses file="x" link="output" size="8"/></job>'
        '<job id="B" runtime="1"><uses file="x" link="input" size="8"/></job>'
    )
    assert parse(dax(body, STAMP)).edges == ()
    assert parse(dax(body)).edges == (("A", "B"),)


def test_a_stamp_does_not_excuse_sizes_that_disagree():
    body = '<job id="A" runtime="1"><uses file="x" link="input" size="-8"/></job>'
    with pytest.raises(BadInput, match="size"):
        parse(dax(body, STAMP))


@pytest.mark.parametrize(
    ("name", "jobs", "edges"),
    [
        ("CyberShake_30", 30, 52),
        ("Epigenomics_997", 997, 1234),
        ("Montage_100", 100, 233),
        ("floodplain", 7, 10),
    ],
)
def test_public_traces(traces, name, jobs, edges):
    workflow = Workflow.read(traces / f"{name}.xml")
    assert (len(workflow), len(workflow.edges)) == (jobs, edges)
