"""The scheduler plug-in, by the real Snakemake, on a workflow that a greedy one begins at the wrong end."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prudent.workflows import Activation, File, Workflow

SNAKEFILE = """\
rule all:
    input: "chain.2", "tail", expand("{n}.short", n=[1, 2, 3])

rule short:
    input: "large.txt"
    output: "{n}.short"
    shell: "echo {resources.machine_type} > {output}; echo short >> order.txt"

rule tail:
    input: "large.txt"
    output: "tail"
    shell: "echo {resources.machine_type} > {output}"

rule first:
    output: "chain.1"
    threads: 2
    shell: "echo {resources.machine_type} > {output}; echo first >> order.txt"

rule second:
    input: "chain.1"
    output: "chain.2"
    threads: 2
    shell: "echo {resources.machine_type} > {output}; echo second >> order.txt"
"""


def snakemake(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("snakemake", reason="needs Snakemake")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "2", "--scheduler", "prudent", *words],
        cwd=folder,
        env={**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "large.txt").write_text("x" * 10_000)
    return tmp_path


def test_the_long_path_first_and_the_rest_on_cheap_machines(folder):
    earlier = (
        Activation("a", "first", 50.0),
        Activation("b", "second", 500.0),
        Activation("c", "short", 5.0, (File("large.txt", 10_000),)),
        Activation("d", "tail", 60.0, (File("large.txt", 10_000),)),
    )
    Workflow("earlier", earlier).write(folder / "earlier.json")
    fleet = ("--scheduler-prudent-fleet", "r6i.large,c5.large")
    done = snakemake(folder, "--scheduler-prudent-runs", "earlier.json", *fleet)
    assert done.returncode == 0, done.stderr
    assert (folder / "order.txt").read_text().split() == ["first", "second", "short", "short", "short"]
    assert "the longest path takes about 9 min" in done.stderr
    assert (folder / "chain.1").read_text().strip() == "r6i.large", "on it all else waits"
    assert (folder / "chain.2").read_text().strip() == "r6i.large"
    assert (folder / "tail").read_text().strip() == "r6i.large"
    shorts = [(folder / f"{n}.short").read_text().strip() for n in (1, 2, 3)]
    assert "c5.large" in shorts, "one of them ran beside the tail, and had time"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runs": "nothing.json"}, 'Cannot read workflow "nothing.json"'),
        ({"fleet": "2*m5.lagre"}, "m5.large"),
    ],
)
def test_what_it_cannot_use_is_told_in_a_sentence(settings, message):
    pytest.importorskip("snakemake_interface_scheduler_plugins", reason="needs Snakemake")
    from snakemake_interface_common.exceptions import WorkflowError

    from snakemake_scheduler_plugin_prudent import Scheduler, SchedulerSettings

    with pytest.raises(WorkflowError, match=message):
        Scheduler(None, SchedulerSettings(**settings), logging.getLogger("snakemake"))


@pytest.mark.parametrize("fleet", [None, "m5.4xlarge"])
def test_the_contract_of_the_interface(fleet, tmp_path, monkeypatch):
    pytest.importorskip("snakemake", reason="needs Snakemake")
    from snakemake_interface_scheduler_plugins.tests import TestSchedulerBase

    from snakemake_scheduler_plugin_prudent import Scheduler, SchedulerSettings

    class Contract(TestSchedulerBase):
        def get_scheduler_cls(self):
            return Scheduler

        def get_scheduler_settings(self):
            return SchedulerSettings(fleet=fleet)

    monkeypatch.chdir(tmp_path)
    Contract().test_scheduler()
