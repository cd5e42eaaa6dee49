"""Snakemake: a real run of it is read: jobs, run times, sizes, and what its benchmarks measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import File, Workflow
from prudent.workflows.sizing.needs import needs_of_runs
from prudent.workflows.sizing.settings import write_settings

SNAKEFILE = """\
rule all:
    input: "report.txt"

rule count:
    input: "{s}.txt"
    output: "{s}.count", "{s}.side"
    threads: 2
    resources: mem_mb=100
    benchmark: "benchmarks/{s}.tsv"
    shell: "python -c 'import time; time.sleep(.2)'; wc -w < {input} > {output[0]}; touch {output[1]}"

rule report:
    input: "a.count", "b.count"
    output: "report.txt"
    shell: "cat {input} > {output}"
"""


def snakemake(folder: Path, *words: str) -> str:
    """What the real Snakemake prints for these words."""
    pytest.importorskip("snakemake", reason="needs Snakemake")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "2", *words],
        cwd=folder,
        env={**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where Snakemake ran."""
    folder = tmp_path_factory.mktemp("snakemake")
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "a.txt").write_text("one two three")
    (folder / "b.txt").write_text("four")
    snakemake(folder, "--benchmark-extended", "--quiet", "all")
    return folder


def test_a_real_run(ran):
    workflow = Workflow.read(ran)
    assert set(workflow.edges) == {
        ("count:a.count", "report:report.txt"),
        ("count:b.count", "report:report.txt"),
    }
    count, report = workflow["count:a.count"], workflow["report:report.txt"]
    assert count.program == "count"
    assert count.inputs == (File("a.txt", 13),)
    assert [file.name for file in count.outputs] == ["a.count", "a.side"], "one job, two files"
    assert count.runtime_s >= 0.2
    assert (count.cores, count.memory_bytes) == (2, 100e6)
    assert count.usage.memory_bytes > 1e6
    assert 0 < report.runtime_s < 60
    assert report.command[-1] == "cat a.count b.count > report.txt"
    assert workflow.notes == ()


def test_the_summary_lists_what_counts_and_a_profile_of_ours_is_understood(ran):
    whole = Workflow.read(ran)
    profile = write_settings(needs_of_runs([ran]), ran / "profile")
    told = snakemake(ran, "--detailed-summary", "--profile", str(profile.parent))
    (ran / "summary.tsv").write_text(told)
    assert Workflow.read(ran / "summary.tsv") == whole
    rows = (ran / "summary.tsv").read_text().splitlines()
    (ran / "part.tsv").write_text("\n".join(row for row in rows if not row.startswith("report.txt")))
    assert [each.program for each in Workflow.read(ran / "part.tsv").activations] == ["count", "count"]


def test_a_benchmark_that_does_not_say_whose_it_is(ran, tmp_path):
    import shutil

    shutil.copytree(ran, tmp_path / "copy")
    for path in (tmp_path / "copy" / "benchmarks").iterdir():
        rows = [line.split("\t")[:10] for line in path.read_text().splitlines()]
        path.write_text("\n".join("\t".join(row) for row in rows))
    workflow = Workflow.read(tmp_path / "copy")
    assert workflow["count:a.count"].usage.memory_bytes == 0
    assert "2 benchmark files do not say" in workflow.notes[0]


def test_refused(tmp_path):
    with pytest.raises(BadInput, match=r"no \.snakemake/metadata"):
        Workflow.read(tmp_path)
    (tmp_path / "summary.tsv").write_text("output_file\tdate\trule\n")
    with pytest.raises(BadInput, match="has no run times"):
        Workflow.read(tmp_path / "summary.tsv")
    metadata = tmp_path / ".snakemake" / "metadata"
    metadata.mkdir(parents=True)
    with pytest.raises(BadInput, match="finished no job"):
        Workflow.read(tmp_path)
    (metadata / "YQ==").write_text("{")
    with pytest.raises(BadInput, match="not a record of Snakemake"):
        Workflow.read(tmp_path)
