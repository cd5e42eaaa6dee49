"""Tables of measured runs: what is read, what is refused, and how a run is played back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.jobs.table import MeasuredRun, ReplayedRun, TableJob
from prudent.tuning.trial import CUT, FINISHED, Outcome, Progress

Follow = Callable[..., tuple[list[Progress], Outcome]]

RUNS = """id,vm,workers,time_s,price_usd_per_h,accuracy,share
a,small,1,100,3.6,0.8,0.5
b,small,2,60,7.2,0.9,1
c,large,1,50,7.2,0.95,1
"""
CHECKS = """id,elapsed_s,accuracy,note
a,75,0.7,later
a,25,0.3,first
a,50,,nothing seen
b,60.004,0.9,"the end, rounded"
b,61,0.95,after the end
"""


def write(folder: Path, text: str, name: str = "runs.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str = RUNS, **more: Any) -> TableJob:
    options: dict[str, Any] = {"parameters": ["vm", "workers"], "measures": ["accuracy"], **more}
    return TableJob.read_csv(write(folder, text), **options)


def with_checks(folder: Path, checks: str = CHECKS, **more: Any) -> TableJob:
    return read(folder, progress=write(folder, checks, "checks.csv"), **more)


SMALL = {"vm": "small", "workers": 1}


# What is read


def test_rows_become_configurations(tmp_path: Path, follow: Follow) -> None:
    job = read(tmp_path)
    assert job.virtual
    assert job.name == "runs.csv"
    assert job.space.size == 3
    assert job.price(SMALL).usd_per_h == 3.6
    assert job.price(SMALL).minimum_s == 0
    assert follow(job.start(SMALL, 1), until_s=1000) == ([], Outcome(FINISHED, 100, {"accuracy": 0.8}))


def test_cost_is_price_times_time_as_it_stands(tmp_path: Path) -> None:
    job = read(tmp_path)
    run = job.recorded(SMALL)
    assert job.price(SMALL).cost_usd(run.time_s) == pytest.approx(0.1)


def test_other_columns_may_have_the_time_and_price(tmp_path: Path) -> None:
    text = RUNS.replace("time_s", "seconds").replace("price_usd_per_h", "rate")
    assert read(tmp_path, text, time="seconds", price="rate").recorded(SMALL).time_s == 100


def test_the_fraction_is_one_more_parameter(tmp_path: Path) -> None:
    job = read(tmp_path, fraction="share")
    assert job.fraction == "share"
    assert job.space.names == ("vm", "workers", "share")
    assert read(tmp_path, parameters=["share", "vm", "workers"], fraction="share").space.names[0] == "share"


def test_repeated_runs_count_by_their_mean(tmp_path: Path) -> None:
    again = RUNS + "d,small,1.0,200,3.6,,1\ne,small,1,300,3.6,0.6,1\n"
    run = read(tmp_path, again).recorded(SMALL)
    assert run.time_s == 200
    assert run.measures == {"accuracy": pytest.approx(0.7)}


def test_a_row_without_a_time_told_nothing(tmp_path: Path) -> None:
    job = read(tmp_path, RUNS + "d,huge,9,,7.2,,1\n")
    assert job.space.size == 3
    with pytest.raises(BadInput, match=r"No row .* has a time"):
        read(tmp_path, "vm,workers,time_s,price_usd_per_h,accuracy\nsmall,1,,1,0.5\n")


def test_a_measure_may_be_missing_in_a_row(tmp_path: Path) -> None:
    job = read(tmp_path, RUNS.replace(",0.8,", ",,"))
    assert job.start(SMALL, 1).next(1000) == Outcome(FINISHED, 100, {})


def test_spreadsheets_write_a_mark_first_and_blank_lines_last(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + RUNS + "\n\n").space.size == 3


def test_a_word_that_looks_like_no_finite_number_is_a_word(tmp_path: Path) -> None:
    job = read(tmp_path, RUNS.replace("large", "inf"))
    assert job.price({"vm": "inf", "workers": 1}).usd_per_h == 7.2


# What is refused


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no rows"),
        (RUNS.splitlines()[0], "has no rows"),
        (
            RUNS.replace("accuracy", "acuracy"),
            'Unknown column of runs.csv "accuracy". Did you mean "acuracy"?',
        ),
        (RUNS.replace("id,", "vm,"), 'two columns "vm"'),
        (RUNS.replace("100", "fast"), 'Line 2 of .*, column "time_s": "fast" is not a number'),
        (RUNS.replace("100", "nan"), 'column "time_s": "nan" is not a number'),
        (RUNS.replace("100", "-1"), 'Line 2 of .*time "-1"'),
        (RUNS.replace("3.6", "-3.6"), 'Line 2 of .*price "-3.6"'),
        (RUNS.replace("3.6", ""), "Line 2 of .*must be numbers of 0 or more"),
        (RUNS.replace("0.9,", "NaN,"), 'Line 3 of .*, column "accuracy": "NaN" is not a number'),
        (RUNS.replace("b,small,2", "b,,2"), 'Line 3 of .*, column "vm": the parameter has no value'),
        (RUNS.replace("b,small,2", "b,small"), "Line 3 of .*does not have 7 fields"),
        (RUNS.replace("b,small,2", "b,small,2,3"), "Line 3 of .*does not have 7 fields"),
        (RUNS.replace("a,small", '\n"a\nb",small').replace("0.9,", "x,"), "Line 5 of"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=complaint):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"parameters": []}, "at least one parameter"),
        ({"parameters": ["vm", "wokers"]}, 'Did you mean "workers"'),
        ({"parameters": ["vm", "accuracy"]}, '"accuracy" cannot be chosen and measured'),
        ({"parameters": ["vm", "time_s"]}, '"time_s" cannot be chosen and measured'),
        ({"fraction": "workers"}, r'Line 3 of .*: the fraction "2" in column "workers" is not in \(0, 1\]'),
        ({"fraction": "vm"}, "is not in"),
        ({"measures": ["accuracy", "accuracy"]}, "named twice"),
        ({"time": "tim_s"}, 'Did you mean "time_s"'),
    ],
)
def test_wrong_columns_are_refused(more: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=complaint):
        read(tmp_path, **more)


def test_a_missing_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="There is no file"):
        TableJob.read_csv(tmp_path / "none.csv", ["vm"])
    with pytest.raises(BadInput, match="Cannot read"):
        TableJob.read_csv(tmp_path, ["vm"])
    (tmp_path / "binary.csv").write_bytes(b"vm,time_s\n\xff\xfe,1\n")
    with pytest.raises(BadInput, match="UTF-8"):
        TableJob.read_csv(tmp_path / "binary.csv", ["vm"])


def test_a_configuration_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    job = read(tmp_path)
    with pytest.raises(BadInput, match="was measured"):
        job.start({"vm": "large", "workers": 2}, 1)


# Progress


def test_progress_is_sorted_and_ends_with_the_run(tmp_path: Path, follow: Follow) -> None:
    job = with_checks(tmp_path)
    shown, outcome = follow(job.start(SMALL, 1), until_s=1000)
    assert shown == [
        Progress(25, {"accuracy": 0.3}),
        Progress(50, {}),
        Progress(75, {"accuracy": 0.7}),
    ]
    assert outcome.time_s == 100
    assert [p.elapsed_s for p in job.recorded({"vm": "small", "workers": 2}).progress] == [60]
    assert job.recorded({"vm": "large", "workers": 1}).progress == ()


@pytest.mark.parametrize(
    ("at_s", "seen"), [(10, {}), (25, {"accuracy": 0.3}), (60, {"accuracy": 0.3}), (99, {"accuracy": 0.7})]
)
def test_a_cut_run_shows_what_was_last_measured(at_s: float, seen: dict[str, float], tmp_path: Path) -> None:
    assert with_checks(tmp_path).start(SMALL, 1).cut(at_s, "x") == Outcome(CUT, at_s, seen, "x")


def test_a_cut_may_lie_before_what_was_already_told(tmp_path: Path) -> None:
    run = with_checks(tmp_path).start(SMALL, 1)
    while not isinstance(run.next(float("inf")), Outcome):
        pass
    assert run.cut(60, "x").measures == {"accuracy": 0.3}


def test_the_id_is_never_a_measure_that_happens_to_differ(tmp_path: Path) -> None:
    checks = "accuracy,id,elapsed_s\n0.3,a,25\n"
    assert with_checks(tmp_path, checks).recorded(SMALL).progress == (Progress(25, {"accuracy": 0.3}),)


def test_progress_may_say_how_far_it_is(tmp_path: Path) -> None:
    checks = "id,elapsed_s,progress\na,25,0.25\na,50,50\n"
    assert [p.done for p in with_checks(tmp_path, checks).recorded(SMALL).progress] == [0.25, None]


@pytest.mark.parametrize(
    ("checks", "complaint"),
    [
        ("run,elapsed_s,accuracy\na,1,1\n", "shares no id column"),
        ("vm,elapsed_s,accuracy\nsmall,1,1\n", "shares no id column"),
        ("id,seconds,accuracy\na,1,1\n", 'Unknown column of checks.csv "elapsed_s"'),
        ("id,elapsed_s,accuracy\na,,1\n", 'Line 2 of .* has "" as elapsed_s'),
        ("id,elapsed_s,accuracy\na,-1,1\n", 'Line 2 of .* has "-1" as elapsed_s'),
        ("id,elapsed_s,accuracy\na,1,x\n", 'Line 2 of .*column "accuracy": "x" is not a number'),
        ("id,elapsed_s,accuracy\nz,1,1\n", "No run of .* by the column"),
    ],
)
def test_a_wrong_progress_table_is_refused(checks: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=complaint):
        with_checks(tmp_path, checks)


@given(
    times=st.lists(st.floats(0, 100), max_size=8).map(sorted),
    end_s=st.floats(100, 200),
    until=st.lists(st.floats(0, 250), max_size=20).map(sorted),
)
def test_asked_in_any_steps_a_run_tells_the_same(
    times: list[float], end_s: float, until: list[float]
) -> None:
    recorded = MeasuredRun(end_s, 1.0, {"x": 1.0}, tuple(Progress(t, {"x": t}) for t in times))
    run, told = ReplayedRun(recorded, Price(1.0, "", "test")), []
    for until_s in [*until, 250.0]:
        while (event := run.next(until_s)) is not None:
            told.append(event)
            if isinstance(event, Outcome):
                break
        if told and isinstance(told[-1], Outcome):
            break
    assert told == [*recorded.progress, Outcome(FINISHED, end_s, {"x": 1.0})]


# Identity


def test_the_fingerprint_tells_tables_apart(tmp_path: Path) -> None:
    told = {
        read(tmp_path).fingerprint(),
        read(tmp_path, measures=[]).fingerprint(),
        read(tmp_path, fraction="share").fingerprint(),
        with_checks(tmp_path).fingerprint(),
        read(tmp_path, RUNS.replace("100", "101")).fingerprint(),
        read(tmp_path, RUNS.replace("0.8", "0.7")).fingerprint(),
    }
    assert len(told) == 6
    assert read(tmp_path).fingerprint() == read(tmp_path, RUNS.replace(",60,", ",60.0,")).fingerprint()


def test_a_table_can_be_made_without_a_file() -> None:
    space = Space.from_points([{"n": 1}, {"n": 2}])
    runs = {space.key({"n": n}): MeasuredRun(10.0 * n, 3.6, {"x": float(n)}) for n in (1, 2)}
    job = TableJob(runs, space, ["x"], source="sketch", price_date="2025-01-01")
    assert job.start({"n": 2}, 1).next(100) == Outcome(FINISHED, 20.0, {"x": 2.0})
    assert job.price({"n": 2}).date == "2025-01-01"
    assert job.name == "sketch"


DATA = Path(os.environ.get("PRUDENT_DATA", "/nowhere")) / "tuning"


@pytest.mark.skipif(not DATA.is_dir(), reason="needs measured data")
def test_a_measured_table_with_progress_is_read_whole() -> None:
    job = TableJob.read_csv(
        DATA / "lynceus_cnn.csv",
        parameters=["vm_type", "n_workers", "learning_rate", "batch_size", "synchronous"],
        measures=["accuracy"],
        progress=DATA / "lynceus_cnn_progress.csv",
    )
    assert job.space.size == 384
    traces = [job.recorded(configuration).progress for configuration in job.space.configurations()]
    assert all(trace and set(trace[0].measures) == {"accuracy"} for trace in traces)


# What runs did to their machines

READ = """id,memory_share,note_mb
c,0.4,
a,0.9,12
b,,
other,0.1,1
"""


def with_readings(folder: Path, text: str = READ, runs: str = RUNS, **more: Any) -> TableJob:
    return read(folder, runs, readings=write(folder, text, "read.csv"), **more)


def told(job: TableJob) -> dict[str, Any]:
    """The readings of each run, by its machine and workers."""
    runs = {str((c["vm"], c["workers"])): job.recorded(c).readings for c in job.space.configurations()}
    return {name: None if found is None else found.to_dict() for name, found in runs.items()}


def test_columns_of_the_table_are_readings(tmp_path: Path) -> None:
    job = read(tmp_path, RUNS.replace("accuracy,share", "accuracy,cpu_share"), readings=["cpu_share"])
    assert told(job) == {
        "('small', 1)": {"cpu_share": 0.5},
        "('small', 2)": {"cpu_share": 1.0},
        "('large', 1)": {"cpu_share": 1.0},
    }


def test_a_second_file_has_readings_by_the_id(tmp_path: Path, follow: Follow) -> None:
    job = with_readings(tmp_path)
    assert told(job) == {
        "('small', 1)": {"memory_share": 0.9, "note_mb": 12.0},
        "('small', 2)": None,
        "('large', 1)": {"memory_share": 0.4},
    }
    _, outcome = follow(job.start(SMALL, 1), until_s=1000)
    assert outcome.readings is not None
    assert outcome.readings.memory_share == 0.9
    assert job.start(SMALL, 2).cut(50.0, "too dear").readings is None  # they are means over the whole run


def test_several_columns_may_name_a_run_together(tmp_path: Path) -> None:
    text = "vm,workers,memory_share\nsmall,1,0.3\nlarge,1,0.2\nsmall,2,0.1\nlarge,2,0.7\n"
    assert told(with_readings(tmp_path, text)) == {
        "('small', 1)": {"memory_share": 0.3},
        "('small', 2)": {"memory_share": 0.1},
        "('large', 1)": {"memory_share": 0.2},
    }


def test_readings_of_repeats_are_means(tmp_path: Path) -> None:
    runs = RUNS + "d,small,1,200,3.6,0.8,0.5\n"
    assert told(with_readings(tmp_path, READ + "d,0.5,\n", runs))["('small', 1)"] == {
        "memory_share": pytest.approx(0.7),
        "note_mb": 12.0,
    }


def test_readings_as_sar_gives_them_tell_the_share(tmp_path: Path) -> None:
    text = "id,cpu_user_mean,cpu_system_mean\na,60,5\n"
    found = told(with_readings(tmp_path, text))["('small', 1)"]
    assert found == {"cpu_share": pytest.approx(0.65), "cpu_user_mean": 60.0, "cpu_system_mean": 5.0}


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("id,memory_share\nz,0.3\n", r"No run of .* by id; give the readings of these runs"),
        ("memory_share\n0.3\n", "give both files an id column"),
        ("vm,memory_share\nsmall,0.3\nsmall,0.2\n", "give both files an id column"),
        ("id,memory_share\na,much\n", r'Line 2 .* column "memory_share": "much" is not a number'),
    ],
)
def test_readings_that_cannot_be_are_refused(tmp_path: Path, text: str, remedy: str) -> None:
    with pytest.raises(BadInput, match=remedy):
        with_readings(tmp_path, text)


def test_a_column_of_readings_must_be_there_and_not_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match='Did you mean "accuracy"'):
        read(tmp_path, readings=["acuracy"])
    with pytest.raises(BadInput, match="cannot be chosen and measured"):
        read(tmp_path, readings=["workers"])


def test_other_readings_make_another_job(tmp_path: Path) -> None:
    prints = {
        read(tmp_path).fingerprint(),
        with_readings(tmp_path).fingerprint(),
        with_readings(tmp_path, READ.replace("0.9", "0.8")).fingerprint(),
    }
    assert len(prints) == 3
