"""What each program needs, told, and written in the words of Nextflow and Snakemake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from prudent.core.errors import BadInput
from prudent.workflows import Activation, File, Usage, Workflow
from prudent.workflows.sizing.needs import needs_of_runs, program_needs
from prudent.workflows.sizing.runs import RunSample
from prudent.workflows.sizing.settings import nextflow_config, snakemake_profile, write_settings


def sample(program="align", size=1e9, memory=2e9, run_s=600.0, cores=3.6, asked=8):
    return RunSample(program, size, memory, run_s, size / 2, cores, asked, 16e9)


def test_cores_are_those_that_were_busy():
    assert program_needs([[sample(cores=3.6)] * 5])[0].cores == 4
    assert program_needs([[sample(cores=4.05)] * 5])[0].cores == 4
    assert program_needs([[sample(cores=9.0)] * 5])[0].cores == 8, "no more than were asked for"
    assert program_needs([[sample(cores=0.0, asked=3)]])[0].cores == 3
    assert program_needs([[sample(cores=0.02, asked=0)]])[0].cores == 1


def test_memory_is_for_the_largest_input_of_the_latest_run():
    grown = [sample(size=n * 1e8, memory=1e9 + n * 1e8) for n in range(1, 40)]
    small = [sample(size=n * 1e8, memory=1e9 + n * 1e8) for n in range(1, 6)]
    [large], [little] = program_needs([small, grown]), program_needs([grown, small])
    assert large.memory.expected == pytest.approx(4.9e9, rel=0.1)
    assert little.memory.expected == pytest.approx(1.5e9, rel=0.1)


def test_what_was_not_measured_is_not_told():
    [needs] = program_needs([[sample(memory=0.0, run_s=0.0)]])
    assert needs.memory is None
    assert needs.runtime is None
    assert needs.time_limit_s == 0
    assert needs.to_dict()["memory_mb"] is None
    assert "memory" not in nextflow_config([needs])
    with pytest.raises(BadInput, match="no program that was measured"):
        program_needs([[]])


def test_nextflow_is_told_by_process():
    needs = program_needs([[sample("RNA:ALIGN")] * 20, [sample("it's", memory=0.0)]])
    text = nextflow_config(needs)
    assert "withName: 'RNA:ALIGN' {" in text
    assert "withName: 'it\\'s' {" in text
    assert "cpus = 4" in text
    given, retry = needs[0].memory.given / 2**20, needs[0].memory.retry / 2**20
    assert (
        f"task.attempt == 1 ? {int(given) + 1}.MB : {int(retry) + 1}.MB * (2 ** (task.attempt - 2))" in text
    )
    assert text.count("{") == text.count("}")


def test_snakemake_is_told_by_rule():
    needs = program_needs([[sample("align")] * 20, [sample("tiny", memory=3e6, run_s=1.0, cores=0, asked=0)]])
    profile = yaml.safe_load(snakemake_profile(needs))
    assert profile["set-threads"] == {"align": 4}
    own = profile["set-resources"]["align"]
    attempts = [eval(own["mem_mb"], {"attempt": attempt}) for attempt in (1, 2, 3)]
    assert attempts[0] >= needs[0].memory.given / 1e6 > 2000
    assert attempts[0] < attempts[1] < attempts[2]
    assert eval(own["runtime"], {"attempt": 2}) >= 2 * 20
    assert profile["set-resources"]["tiny"]["mem_mb"].startswith("64 ")


def test_where_it_is_written(tmp_path):
    needs = program_needs([[sample()]])
    assert write_settings(needs, tmp_path / "a.config").read_text().startswith("//")
    assert write_settings(needs, tmp_path / "profile") == tmp_path / "profile" / "config.yaml"
    with pytest.raises(BadInput, match="names no engine"):
        write_settings(needs, tmp_path / "a.json")


def test_traces_of_any_engine_are_read_together(tmp_path: Path):
    activations = [
        Activation(
            f"a{at}",
            "align",
            60.0 + at,
            (File(f"in{at}", at * 1e6),),
            (File(f"out{at}", at * 1e5),),
            usage=Usage(1.9, 1e9 + at * 1e7),
        )
        for at in range(1, 20)
    ]
    Workflow("w", tuple(activations)).write(tmp_path / "run.json")
    trace = "task_id\tname\tstatus\trealtime\tpeak_rss\n1\tINDEX (x)\tCOMPLETED\t1m\t512 MB\n"
    (tmp_path / "trace.txt").write_text(trace)
    align, index = needs_of_runs([tmp_path / "run.json", tmp_path / "trace.txt"])
    assert (align.program, align.runs, align.cores) == ("align", 19, 2)
    assert (index.program, index.runs) == ("INDEX", 1)
    assert index.memory.expected == pytest.approx(512 * 2**20)
    assert json.dumps(align.to_dict())
