"""Nextflow: a trace, raw or for people, and the DAG that Nextflow draws become one workflow."""

from __future__ import annotations

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Workflow
from prudent.workflows.formats.nextflow import parse

HEADER = (
    "task_id hash native_id name status exit submit duration realtime %cpu peak_rss peak_vmem rchar wchar"
)
ROWS = [
    ("1", "RNA:INDEX (ref)", "COMPLETED", "10:00:00.100", "1m 2s", "1m", "95.1%", "1.5 GB", "10 MB", "2 MB"),
    ("2", "RNA:QUANT (s1)", "FAILED", "10:01:03.100", "10s", "8s", "-", "-", "-", "-"),
    ("3", "RNA:QUANT (s2)", "COMPLETED", "10:01:03.200", "20s", "850ms", "195.1%", "512 MB", "0", "1 KB"),
    ("4", "RNA:QUANT (s1)", "COMPLETED", "10:01:14.100", "30s", "1h 2m 3s", "50.0%", "1 GB", "5 B", "-"),
    ("5", "RNA:STATS (s1)", "COMPLETED", "10:01:50.000", "5s", "4s", "100.0%", "-", "0", "0"),
    ("6", "RNA:STATS (s2)", "COMPLETED", "10:01:24.000", "5s", "4s", "100.0%", "2 MB", "0", "0"),
    ("7", "MULTIQC", "COMPLETED", "10:01:56.000", "5s", "4s", "100.0%", "2 MB", "0", "0"),
]
MERMAID = """\
flowchart TB
    subgraph " "
    v0["Channel.fromFilePairs"]
    v9["multiqc_report"]
    end
    subgraph RNA [RNA]
    v1([INDEX])
    v3([QUANT])
    v4([STATS])
    v2(( ))
    end
    v7([MULTIQC])
    v0 --> v1
    v1 -->|index| v2
    v2 --> v3
    v3 --> v4
    v4 --> v7
    v7 --> v9
"""
DOT = """\
digraph "rna" {
rankdir=TB;
v0 [shape=point,label="",fixedsize=true,width=0.1,xlabel="Channel.fromFilePairs"];
v1 [label="RNA:INDEX"];
v0 -> v1 [label="reads"];

v1 [label="RNA:INDEX"];
v2 [shape=circle,label="",fixedsize=true,width=0.1,xlabel="combine"];
v1 -> v2;

v3 [label="RNA:QUANT"];
v2 -> v3;
v4 [label="RNA:STATS"];
v3 -> v4 [label="quants"];
v5 [label="MULTIQC"];
v4 -> v5;
}
"""


def trace() -> str:
    lines = [HEADER.replace(" ", "\t")]
    for number, name, status, at, duration, real, cpu, rss, read, written in ROWS:
        day = f"2026-01-02 {at}"
        exit_code = "0" if status == "COMPLETED" else "137"
        fields = (
            number,
            f"ab/{number}",
            "99",
            name,
            status,
            exit_code,
            day,
            duration,
            real,
            cpu,
            rss,
            "3 GB",
        )
        lines.append("\t".join([*fields, read, written]))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("dag", [MERMAID, DOT])
def test_tasks_and_what_they_read_from(dag):
    workflow = parse(trace(), "rna", dag)
    assert set(workflow.edges) == {
        ("RNA:INDEX (ref)", "RNA:QUANT (s1)"),
        ("RNA:INDEX (ref)", "RNA:QUANT (s2)"),
        ("RNA:QUANT (s1)", "RNA:STATS (s1)"),
        ("RNA:QUANT (s2)", "RNA:STATS (s2)"),
        ("RNA:STATS (s1)", "MULTIQC"),
        ("RNA:STATS (s2)", "MULTIQC"),
    }
    index, again = workflow["RNA:INDEX (ref)"], workflow["RNA:QUANT (s1)"]
    assert (index.program, index.runtime_s) == ("RNA:INDEX", 60)
    assert index.usage.memory_bytes == 1.5 * 2**30
    assert (index.usage.read_bytes, index.usage.written_bytes) == (10 * 2**20, 2 * 2**20)
    assert index.usage.cores == pytest.approx(0.951)
    assert again.runtime_s == 3723, "the attempt that succeeded, not the one that failed"
    assert workflow["RNA:QUANT (s2)"].runtime_s == 0.85
    assert "1 attempts that failed" in workflow.notes[0]
    assert "inferred" in workflow.notes[-1]


def test_no_task_reads_from_one_that_ended_later():
    late = trace().replace("RNA:STATS (s1)", "RNA:STATS (x)").replace("RNA:STATS (s2)", "RNA:STATS (y)")
    edges = set(parse(late, "rna", DOT).edges)
    assert ("RNA:QUANT (s2)", "RNA:STATS (y)") in edges
    assert ("RNA:QUANT (s1)", "RNA:STATS (y)") not in edges, "s1 ended at 10:01:44, y began at 10:01:24"
    assert {("RNA:QUANT (s1)", "RNA:STATS (x)"), ("RNA:QUANT (s2)", "RNA:STATS (x)")} <= edges


def test_a_raw_trace_with_requests(tmp_path):
    columns = "task_id process tag name status attempt cpus memory realtime %cpu peak_rss submit complete"
    rows = [
        "1 A s1 A(s1) COMPLETED 2 4 8589934592 1500 350.0 1048576 1767348000000 1767348002000",
        "2 A s1 A(s1) COMPLETED 1 4 8589934592 2500 350.0 2097152 1767348000000 1767348003000",
        "3 B - B CACHED 1 1 - 10 10.0 1024 1767348004000 1767348005000",
    ]
    (tmp_path / "trace.txt").write_text("\n".join(line.replace(" ", "\t") for line in (columns, *rows)))
    (tmp_path / "dag.dot").write_text('digraph "x" {\nv0 [label="A"];\nv1 [label="B"];\nv0 -> v1;\n}\n')
    workflow = Workflow.read(tmp_path / "trace.txt", dag=tmp_path / "dag.dot")
    first, second, last = workflow.activations
    assert (first.cores, first.memory_bytes, first.runtime_s) == (4, 2**33, 1.5)
    assert first.usage.cores == 3.5
    assert second.runtime_s == 2.5, "two that succeeded are two tasks, whatever their names"
    assert set(workflow.edges) == {(first.id, last.id), (second.id, last.id)}
    with pytest.raises(BadInput, match="what runs before what"):
        Workflow.read(tmp_path / "trace.txt")


@pytest.mark.parametrize(
    ("change", "dag", "message"),
    [
        (lambda text: text.replace("COMPLETED", "ABORTED"), DOT, "No task"),
        (lambda text: text.replace("realtime", "real"), DOT, 'no column "realtime"'),
        (lambda text: text.replace("1m\t", "soon\t"), DOT, 'Line 2 .* "soon"'),
        (lambda text: text.replace("1.5 GB", "1.5 XB"), DOT, 'Line 2 .* "1.5 XB"'),
        (lambda text: text.replace("2026-01-02 10:00:00.100", "today"), DOT, 'Line 2 .* "today"'),
        (lambda text: text, DOT.replace("RNA:STATS", "RNA:OTHER"), 'no process "RNA:STATS"'),
        (lambda text: text, "flowchart TB\n", "no arrows"),
    ],
)
def test_refused(change, dag, message):
    with pytest.raises(BadInput, match=message) as error:
        parse(change(trace()), "rna", dag)
    assert str(error.value).endswith(".")
