"""The data of the papers: converters of the authors' files, on small repositories of the same layout."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import prudent

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "benchmarks" / "papers" / "data.py"
LYNCEUS = (
    "_id/$oid,n_workers,timestamp,learning_rate,batch_size,synchronism,training_time,n_ps,acc,vm_flavor,"
    "total_iterations,intermediate_acc_values"
)
TRIMTUNER = (
    "_id/$oid,n_workers,timestamp,learning_rate,batch_size,iterations_counted,synchronism,training_time,"
    "standard deviation time,intermediate_acc_values,n_ps,acc,standard deviation accuarcy,vm_flavor,"
    "intermediate_test_durations,training_set_size,intermediate_no_interations,total_iterations,"
    "standard deviation iteration"
)


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    """Repositories as the authors have them, with a few rows each."""
    folder = tmp_path / "clones"
    lynceus, trimtuner = folder / "Lynceus-ICDCS" / "files", folder / "TrimTuner" / "dataset_NN_Tensorflow"
    report = folder / "scout" / "dataset" / "osr_multiple_nodes" / "4_m4.xlarge_sort_hadoop_huge_1"
    dax = folder / "WorkflowSim-1.0" / "config" / "dax"
    for place in (lynceus, trimtuner, report, dax):
        place.mkdir(parents=True)
    (lynceus / "t2_cnn_intermediate_values.csv").write_text(
        f"{LYNCEUS}\n"
        "a,2,2018-09-24,0.0001,256,async,90.0,1,0.9,t2.2xlarge,46,0.2 0.6 0.9\n"
        "b,8,2018-09-24,0.00001,16,sync,610.0,1,0.425,t2.small,94,0.1 0.425\n"
    )
    (trimtuner / "cnn.csv").write_text(
        f"{TRIMTUNER}\n"
        "a,4,2019-05-13,0.001,16,9,sync,720.0,1.5,0.2 0.9,1,0.9,0.01,t2.medium,1.5 2.5,60000,3 9,10,0.5\n"
        "b,4,2019-05-13,0.001,16,9,sync,36.0,1.5,0.2 0.4,1,0.4,0.01,t2.medium,1.5 2.5,6000,3 9,10,0.5\n"
    )
    said = {"completed": False, "datasize": "huge", "elapsed_time": "7300", "framework": "hadoop"}
    (report / "report.json").write_text(json.dumps({**said, "workload": "sort", "input_size": "12"}))
    (dax / "Montage_25.xml").write_text("<adag/>")
    return folder


def convert(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_tables_checksums_and_a_comparison(clones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = convert("--from", clones, out)
    assert done.returncode == 0, done.stderr
    small, large = rows(out / "tuning" / "lynceus_cnn.csv")
    assert (small["vm_type"], small["synchronous"], small["total_worker_cores"]) == ("t2.small", "1", "8")
    # Eight workers, a parameter server and a bookkeeper; half of the target in 610 s is 1220 s to it.
    assert float(small["price_usd_per_h"]) == pytest.approx(10 * 0.023)
    assert float(small["time_to_target_s"]) == pytest.approx(1220)
    assert float(large["cost_to_target_usd"]) == pytest.approx(4 * 0.3712 * 90 / 3600)
    seen = rows(out / "tuning" / "lynceus_cnn_progress.csv")
    assert [(row["config_id"], row["elapsed_s"]) for row in seen] == [
        ("0", "305.0"), ("0", "610.0"), ("1", "30.0"), ("1", "60.0"), ("1", "90.0"),
    ]  # fmt: skip
    part, whole = rows(out / "tuning" / "trimtuner_cnn.csv")
    assert (part["data_fraction"], whole["data_fraction"]) == ("0.1", "1.0")
    assert part["config_id"] == whole["config_id"] == "0"
    assert float(whole["cost_usd"]) == pytest.approx((5 * 0.0464 + 0.3712) * 720 / 3600)
    assert whole["timed_out"] == "1"
    (job,) = rows(out / "tuning" / "scout_multi_node.csv")
    assert (job["completed"], job["timed_out"], job["n_vms"]) == ("0", "1", "4")
    assert float(job["cost_usd"]) == pytest.approx(0.8 * 7300 / 3600, rel=1e-5)
    for line in (out / "checksums.txt").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert (out / "workflows" / "Montage_25.xml").read_text() == "<adag/>"
    table = prudent.TableJob.read_csv(
        out / "tuning" / "lynceus_cnn.csv",
        ["vm_type", "n_workers"],
        time="time_to_target_s",
        measures=["accuracy"],
        progress=out / "tuning" / "lynceus_cnn_progress.csv",
    )
    assert len(list(table.space.configurations())) == 2

    again = convert("--from", clones, "--check", out, tmp_path / "again")
    assert again.returncode == 0
    assert again.stdout.count("agrees") == 6
    changed = out / "tuning" / "lynceus_cnn.csv"
    changed.write_text(changed.read_text().replace("0.425", "0.5"))
    other = convert("--from", clones, "--check", out, tmp_path / "third")
    assert other.returncode == 1
    assert "lynceus_cnn.csv: differs, row 1, accuracy: 0.425 against 0.5" in other.stdout


def test_what_is_missing_is_named(clones: Path, tmp_path: Path) -> None:
    (clones / "TrimTuner").rename(tmp_path / "elsewhere")
    done = convert("--from", clones, tmp_path / "out")
    assert done.returncode == 0
    assert "TrimTuner is missing: clone https://github.com/" in done.stdout
    nothing = convert("--from", tmp_path, tmp_path / "out")
    assert nothing.returncode != 0
    assert "--from" in nothing.stderr


def test_a_benchmark_without_data_says_so_in_one_line_and_is_skipped(tmp_path: Path) -> None:
    environment = {**os.environ, "PRUDENT_DATA": str(tmp_path)}
    command = [sys.executable, str(ROOT / "benchmarks" / "workflows_makespan.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 77
    assert done.stdout.count("\n") == 1
    assert "PRUDENT_DATA" in done.stdout
    assert "-eq 77" in (ROOT / "Makefile").read_text(), "make bench goes on"


def repeat(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.papers", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment}
    )


def test_an_experiment_writes_its_page_from_converted_data(clones: Path, tmp_path: Path) -> None:
    """OBOL's experiment, whole, on a small repository: 24 configurations from 32 cores on."""
    lines = [LYNCEUS]
    for size, cores in (("t2.small", 1), ("t2.medium", 2), ("t2.xlarge", 4), ("t2.2xlarge", 8)):
        for total in (32, 64):
            for rate, factor in (("0.001", 1.0), ("0.0001", 2.0), ("0.00001", 5.0)):
                seconds = 60 * factor * (1 + total / 64)
                checks = " ".join(str(round(0.9 * check / 4, 3)) for check in range(1, 5))
                lines.append(f"x,{total // cores},2018,{rate},16,sync,{seconds},1,0.9,{size},9,{checks}")
    (clones / "Lynceus-ICDCS" / "files" / "t2_cnn_intermediate_values.csv").write_text("\n".join(lines))
    data, out = tmp_path / "data", tmp_path / "pages"
    assert convert("--from", clones, data).returncode == 0
    done = repeat("obol", "--seeds", 2, "--depths", 0, "--processes", 1, "--out", out, PRUDENT_DATA=str(data))
    assert done.returncode == 0, done.stderr
    told = (out / "obol.md").read_text()
    for line in done.stdout.splitlines()[1:]:
        verdict, claim = line.strip().split("  ", 1)
        assert verdict in ("reproduced", "better", "not reproduced")
        assert claim.strip().split(":")[0] in told
    assert "Figure 2" in told
    assert ElementTree.parse(out / "obol-dopt.svg").getroot().tag.endswith("svg")
    assert "CherryPick" in (out / "obol.html").read_text()


def test_an_experiment_without_data_or_that_nobody_knows(tmp_path: Path) -> None:
    assert repeat("obol", PRUDENT_DATA=str(tmp_path)).returncode == 77
    wrong = repeat("obool")
    assert wrong.returncode == 2
    assert "lynceus" in wrong.stderr
