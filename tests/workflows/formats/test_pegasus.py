"""Pegasus 5: what its API writes is read, and what is written follows its rules and reads back the same."""

from __future__ import annotations

import re

import pytest
import yaml

from prudent.core.errors import BadInput
from prudent.workflows import Activation, File, Usage, Workflow
from prudent.workflows.formats.generate import generate, shapes
from prudent.workflows.formats.pegasus import parse, render

WORKFLOW = """\
x-pegasus: {apiLang: python, createdBy: ada, createdOn: 11-19-26T22:01:07Z}
pegasus: 5.0.4
name: tides
replicaCatalog:
  replicas:
  - lfn: levels.csv
    pfns: [{site: local, pfn: /data/levels.csv}]
    metadata: {size: 1024}
transformationCatalog:
  transformations:
  - namespace: sea
    name: smooth
    version: '4.0'
    sites:
    - {name: condorpool, pfn: /usr/bin/smooth, type: installed}
    profiles:
      pegasus: {runtime: 60, cores: 2, memory: 2048}
  - name: sum
    sites:
    - {name: local, pfn: file:///usr/bin/sum, type: installed}
jobs:
- type: job
  namespace: sea
  version: '4.0'
  name: smooth
  id: ID0000001
  arguments: [-w 5, levels.csv, -o, smooth.csv]
  uses:
  - {lfn: smooth.csv, type: output, stageOut: true, registerReplica: true}
  - {lfn: levels.csv, type: input}
  profiles:
    pegasus: {runtime: '61.5'}
- type: job
  name: sum
  id: ID9
  stdout: total.txt
  arguments: [smooth.csv]
  uses:
  - {lfn: smooth.csv, metadata: {size: 300}, size: 300, type: input}
  - {lfn: total.txt, type: output, stageOut: true, registerReplica: true}
  profiles:
    condor: {request_cpus: 3, request_memory: $(memory)}
    pegasus: {runtime: 5}
- type: pegasusWorkflow
  file: more.yml
  id: SUB
  arguments: []
  uses:
  - {lfn: more.yml, forPlanning: true, type: input}
jobDependencies:
- id: ID0000001
  children: [ID9, SUB]
"""


def test_jobs_with_their_catalogs():
    workflow = parse(WORKFLOW)
    assert workflow.name == "tides"
    assert set(workflow.edges) == {("ID0000001", "ID9"), ("ID0000001", "SUB")}
    smooth, total = workflow["ID0000001"], workflow["ID9"]
    assert smooth.program == "smooth"
    assert smooth.runtime_s == 61.5, "the job's own profile wins over its transformation's"
    assert (smooth.cores, smooth.memory_bytes) == (2, 2048 * 1024**2)
    assert smooth.inputs == (File("levels.csv", 1024),)
    assert smooth.outputs == (File("smooth.csv", 300),), "its reader knows how large it is"
    assert smooth.command == ("/usr/bin/smooth", "-w", "5", "levels.csv", "-o", "smooth.csv")
    assert total.command == ("sh", "-c", "/usr/bin/sum smooth.csv > total.txt")
    assert (total.cores, total.memory_bytes) == (3, 0), "an expression of Condor is not known beforehand"
    assert workflow["SUB"].program == "more.yml"
    assert "1 of 3 jobs have no run time" in workflow.notes[0]


def test_its_own_file_is_recognised(tmp_path):
    path = tmp_path / "workflow"
    path.write_text(WORKFLOW)
    assert Workflow.read(path) == parse(WORKFLOW)


@pytest.mark.parametrize("shape", shapes())
def test_what_is_written_reads_back(tmp_path, shape):
    workflow = generate(shape, 40, seed=3)
    workflow.write(tmp_path / "w.yml")
    assert Workflow.read(tmp_path / "w.yml") == workflow


def test_everything_survives():
    workflow = Workflow(
        "a b/c",
        (
            Activation(
                "run (s 1)",
                "p",
                2.5,
                (File("in put", 3), File("both", 1)),
                (File("both", 1), File("x", 4), File("g", 1)),
                ("/bin/p", "-o", "two words"),
                {"m": 3.0},
                ("a1", "a2"),
                cores=2,
                memory_bytes=512 * 1024**2,
                usage=Usage(1.5, 4e6, 10, 20),
            ),
            Activation("run_(s 1)", "p", 1.5, (File("x", 6),), (File("g", 2),), ("/opt/p", "x")),
            Activation("c", "q", 1.0),
        ),
        (("run_(s 1)", "c"),),
        frozenset({"g"}),
    )
    again = parse(render(workflow))
    assert again == workflow
    assert again["run (s 1)"].usage == workflow["run (s 1)"].usage


def test_what_is_written_follows_the_schema_of_pegasus():
    document = yaml.safe_load(render(generate("montage", 20)))
    word = re.compile(r"[-0-9a-zA-Z_]+")
    assert set(document) <= {
        "pegasus",
        "name",
        "transformationCatalog",
        "jobs",
        "jobDependencies",
        "x-prudent",
    }
    assert word.fullmatch(document["name"])
    for job in document["jobs"]:
        assert {"type", "name", "id", "arguments", "uses"} <= set(job)
        assert word.fullmatch(job["id"])
        assert all(isinstance(each, str) for each in job["arguments"])
        assert {use["type"] for use in job["uses"]} <= {"input", "output", "inout"}
    assert all(entry["sites"] for entry in document["transformationCatalog"]["transformations"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("jobs:\n", "tasks:\n", 'no list of "jobs"'),
        ("type: input}", "type: both}", 'as "both"'),
        ("children: [ID9, SUB]", "children: [nobody]", '"nobody"'),
        ("  id: ID9\n", "", "does not follow"),
        ("  name: sum\n  id", "  name: [sum]\n  id", "where a word belongs"),
        ("size: 300,", "size: big,", "does not follow"),
        ("name: tides", "name: [", "not valid YAML"),
    ],
)
def test_refused(old, new, message):
    assert old in WORKFLOW
    with pytest.raises(BadInput, match=message) as error:
        parse(WORKFLOW.replace(old, new))
    assert str(error.value).endswith(".")
