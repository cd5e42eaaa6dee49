"""The report says what the result says, to the last digit, and stands alone."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.readings import Readings
from prudent.core.errors import BadInput
from prudent.core.units import format_money
from prudent.reports.tuning import tuning_report, write_tuning_report
from prudent.tuning.problem import Problem
from prudent.tuning.result import Result
from prudent.tuning.trial import Trial
from prudent.tuning.tune import tune

Study = tuple[Result, Problem]


@pytest.fixture(scope="module")
def page(study: Study) -> str:
    return tuning_report(*study, options={"lookahead": 1})


@pytest.fixture(scope="module")
def document(page: str, kit: Any) -> Any:
    return kit.read(page)


FEW_RUNS = """
import sys
from prudent.reports.tuning import tuning_report
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.problem import Problem
from prudent.tuning.tune import tune
job = TableJob.read_csv(sys.argv[1], parameters=["n"])
result = tune(job, "minimise cost_usd", 1.0, "random", max_trials=2)
assert len(result.trials) == 2
problem = Problem(job.space, result.goal, job.price, tuple(job.measures), job.fraction)
print("<html" in tuning_report(result, problem)[:200])
print([name for name in ("numba", "scipy") if name in sys.modules])
"""


def test_a_report_of_a_few_runs_needs_no_compiler(tmp_path: Path) -> None:
    """A model learns from three runs on; to load what it needs takes longer than to write the report."""
    (tmp_path / "runs.csv").write_text("n,time_s,price_usd_per_h\n1,9,0.1\n2,5,0.2\n4,3,0.4\n")
    command = [sys.executable, "-c", FEW_RUNS, str(tmp_path / "runs.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True", "[]"]


def test_the_answer_is_the_best_trial(study: Study, document: Any) -> None:
    best = study[0].best
    assert best is not None
    answer = document.named("answer")
    assert format_money(best.cost_usd) in answer.text
    assert f"trial {best.number} of {len(study[0].trials)}" in answer.text
    pairs = zip(answer.all("dt"), answer.all("dd"), strict=True)
    assert {dt.text: dd.text for dt, dd in pairs} == {
        name: str(value) for name, value in best.configuration.items()
    }


def test_each_constraint_is_shown_with_what_was_measured(study: Study, document: Any, kit: Any) -> None:
    best = study[0].best
    assert best is not None
    rows = document.named("answer").all("tbody")[0].all("tr")
    assert [kit.values(row) for row in rows] == [[best.time_s], [best.measures["accuracy"]]]
    assert all("kept" in row.text for row in rows)


def test_the_money_adds_up(study: Study, document: Any) -> None:
    result, money = study[0], document.named("money")
    for status in ("finished", "cut", "failed"):
        found = [trial for trial in result.trials if trial.status == status]
        spent = math.fsum(trial.spent_usd for trial in found)
        assert f"{len(found)} {status}: {format_money(spent)}" in money.text
    tiles = {dt.text: dd.text for dt, dd in zip(money.all("dt"), money.all("dd"), strict=True)}
    assert tiles["spent"] == format_money(result.spent_usd)
    assert tiles["budget"] == "$1.00"
    widths = [float(i.attributes["style"][6:-1]) for i in money.all("i") if "style" in i.attributes]
    assert sum(widths) == pytest.approx(100, abs=0.01)


def test_the_study_ends_runs_in_all_three_ways(study: Study) -> None:
    assert {trial.status for trial in study[0].trials} == {"finished", "cut", "failed"}


def test_every_trial_is_a_row_with_exact_numbers(study: Study, document: Any, kit: Any) -> None:
    rows = document.named("trials").all("tbody")[0].all("tr")
    assert len(rows) == len(study[0].trials)
    for row, trial in zip(rows, study[0].trials, strict=True):
        assert kit.values(row) == [
            trial.number,
            trial.configuration["workers"],
            trial.configuration["rate"],
            trial.cost_usd,
            trial.time_s,
            trial.measures.get("accuracy"),
            trial.spent_usd,
        ]
        assert trial.status in row.text
        assert trial.configuration["machine"] in row.text


def test_readings_are_shown_per_trial(study: Study, document: Any, kit: Any) -> None:
    result, problem = study
    assert all(section.attributes.get("id") != "readings" for section in document.all("section"))
    readings = Readings(cpu_share=0.5, network_mb_s=2.0, others={"<b>_kb_s": 1.0})
    first = replace(result.trials[0], readings=readings)
    second = replace(result.trials[1], readings=Readings(cpu_share=0.25, network_mb_s=1.0))
    read = replace(result, trials=(first, second, *result.trials[2:]))
    section = kit.read(tuning_report(read, problem)).named("readings")
    rows = section.all("tbody")[0].all("tr")
    assert [kit.values(row)[-3:] for row in rows] == [[0.5, 2.0, 1.0], [0.25, 1.0, None]]
    assert "50 %" in rows[0].text
    assert "2 MB/s" in rows[0].text
    widths = [[i.attributes["style"] for i in row.all("i")] for row in rows]
    assert widths == [["width:50.0%", "width:100.0%", "width:100.0%"], ["width:25.0%", "width:50.0%"]]


def test_the_figure_of_the_best_so_far_holds_every_trial(study: Study, document: Any, kit: Any) -> None:
    result = study[0]
    traces = {trace["name"]: trace for trace in kit.figures(document)["progress"]["data"]}
    best = traces["best so far"]
    assert best["y"] == sorted(best["y"], reverse=True)
    assert best["y"][-1] == result.best.cost_usd if result.best else False
    assert best["x"][-1] == pytest.approx(result.spent_usd)
    dots = [name for name in traces if name not in ("best so far", "the answer")]
    paid = [trial for trial in result.trials if trial.spent_usd > 0]
    assert sum(len(traces[name]["x"]) for name in dots) == len(paid) < len(result.trials)
    # told apart without colour
    assert len({traces[name]["marker"]["symbol"] for name in dots}) == len(dots)


def test_reasons_and_endings_are_told(study: Study, document: Any) -> None:
    rows = document.named("reasons").all("tbody")[0].all("tr")
    for row, trial in zip(rows, study[0].trials, strict=True):
        assert trial.chosen in row.text
        assert " ".join(trial.why.split()) in row.text


def test_the_ledger_shows_price_and_date_of_every_charge(study: Study, document: Any, kit: Any) -> None:
    result, ledger = study[0], document.named("ledger")
    rows = ledger.all("tbody")[0].all("tr")
    for row, entry in zip(rows, result.entries, strict=True):
        assert kit.values(row) == [entry.seconds, entry.price.usd_per_h, entry.usd]
        assert "2025-01-31" in row.text
        assert "list of tests" in row.text
    assert kit.values(ledger.all("tfoot")[0]) == [result.spent_usd]


def test_how_to_repeat_it_is_a_call_that_python_reads(study: Study, document: Any) -> None:
    code = "".join(document.named("again").all("code")[0].texts)
    said: dict[str, Any] = {}

    class Prudent:
        @staticmethod
        def tune(job: str, goal: str, **rest: Any) -> None:
            said.update(rest, goal=goal)

    exec(code, {"prudent": Prudent, "job": "job"})
    assert said == {
        "goal": str(study[0].goal),
        "budget_usd": 1.0,
        "strategy": "random",
        "options": {"lookahead": 1},
        "early_stop": True,
        "seed": 5,
    }


def test_parameters_effects_cover_all_that_vary(document: Any, kit: Any) -> None:
    section = document.named("effects")
    assert sorted(heading.text.split()[0] for heading in section.all("h3")) == ["machine", "rate", "workers"]
    assert len([name for name in kit.figures(document) if name.startswith("effect-")]) == 9


def test_the_page_says_how_sure_the_model_is(document: Any, kit: Any) -> None:
    text = document.named("sure").text
    assert "chance that an untested configuration is better" in text
    assert "runs came out within the bounds" in text
    assert "forecast-0" in kit.figures(document)


def test_other_strategies_stand_beside(study: Study, kit: Any) -> None:
    other = tune(kit.job(), kit.GOAL, budget_usd=2.0, strategy="grid", seed=5)
    document = kit.read(tuning_report(*study, beside=[other]))
    rows = document.named("beside").all("tbody")[0].all("tr")
    assert ["random" in rows[0].text, "grid" in rows[1].text] == [True, True]
    assert other.best is not None
    assert kit.values(rows[1])[0] == other.best.cost_usd
    names = [trace["name"] for trace in kit.figures(document)["progress"]["data"]]
    assert "best so far, grid" in names


# What can go wrong with a study


def outcome(page: str, kit: Any) -> str:
    return str(kit.read(page).named("answer").text)


def test_no_trials(study: Study, kit: Any) -> None:
    result, problem = study
    nothing = replace(result, best=None, recommended=None, trials=(), entries=(), spent_usd=0.0)
    page = tuning_report(nothing, problem)
    assert "No trial was run" in outcome(page, kit)
    assert "Nothing was charged" in page
    assert "plotly" not in page.lower()


def test_all_failed(kit: Any) -> None:
    def broken(machine: str, workers: int, rate: float) -> dict[str, float]:
        raise OSError("the disk is full")

    job = kit.job(broken)
    result = tune(job, kit.GOAL, budget_usd=2.0, strategy="random", max_trials=5)
    assert {trial.status for trial in result.trials} == {"failed"}
    page = tuning_report(result, kit.problem_of(job))
    assert "No run finished" in outcome(page, kit)
    assert "the disk is full" in outcome(page, kit)
    assert not kit.figures(kit.read(page))  # nothing was paid for, nothing to draw


def test_nothing_feasible_says_what_came_nearest_and_by_how_much(kit: Any) -> None:
    goal = "minimise cost_usd subject to accuracy >= 1.9"
    job = kit.job()
    result = tune(job, goal, budget_usd=1.0, strategy="random", seed=1)
    assert result.best is None
    assert result.nearest is not None
    text = outcome(tuning_report(result, kit.problem_of(job, goal)), kit)
    assert "Nothing feasible" in text
    assert f"Trial {result.nearest.number} came nearest" in text
    assert f"missed by {1 - result.nearest.measures['accuracy'] / 1.9:.0%}".replace("%", " %") in text


def test_one_trial(kit: Any) -> None:
    job = kit.job()
    result = tune(job, "minimise cost_usd", budget_usd=5.0, seed=1, max_trials=1)
    document = kit.read(tuning_report(result, kit.problem_of(job, "minimise cost_usd")))
    assert "trial 1 of 1" in document.named("answer").text
    assert "a model needs three" in document.named("effects").text


def test_every_configuration_tried(kit: Any) -> None:
    job = kit.job()
    result = tune(job, "minimise cost_usd", budget_usd=500.0, strategy="grid", early_stop=False)
    assert len(result.trials) == 32
    document = kit.read(tuning_report(result, kit.problem_of(job, "minimise cost_usd")))
    assert "Every configuration was tried" in document.named("sure").text


@pytest.mark.parametrize("goal", ["maximise accuracy subject to cost_usd <= $0.1", "minimise time_s"])
def test_other_goals(goal: str, kit: Any) -> None:
    job = kit.job()
    result = tune(job, goal, budget_usd=1.0, strategy="random", seed=1)
    assert result.best is not None
    document = kit.read(tuning_report(result, kit.problem_of(job, goal)))
    assert format_money(result.best.cost_usd) in document.named("answer").text
    best = next(t for t in kit.figures(document)["progress"]["data"] if t["name"] == "best so far")
    assert best["y"][-1] == result.best.values[result.goal.measure]


def test_without_a_budget_and_interrupted(study: Study, kit: Any) -> None:
    result, problem = study
    document = kit.read(tuning_report(replace(result, budget_usd=None, interrupted=True), problem))
    assert "none set" in document.named("money").text
    assert "interrupted" in document.all("header")[0].text


def test_what_was_known_before_is_told_apart(study: Study, kit: Any) -> None:
    result, problem = study
    known = tuple(replace(t, known=True, number=-n) for n, t in enumerate(result.trials[:4], start=1))
    later = replace(result, known=known, trials=result.trials[4:])
    assert "4 trials known from earlier" in kit.read(tuning_report(later, problem)).named("trials").text


# Alone and safe


def test_nothing_is_loaded(document: Any, page: str) -> None:
    for element in document.everything():
        assert element.tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not {"src", "href", "srcset", "action", "data"} & set(element.attributes)
        assert not [name for name in element.attributes if name.startswith("on")]
    style = "".join(document.all("style")[0].texts)
    assert "url(" not in style
    assert "@import" not in style
    policy = document.all("meta")[1].attributes["content"]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


HOSTILE = "</script><img src=x onerror=alert(1)><b>&amp;"


def hostile_result(result: Result) -> Result:
    def poisoned(trial: Trial) -> Trial:
        return replace(trial, chosen=HOSTILE, why=HOSTILE)

    trials = tuple(poisoned(trial) for trial in result.trials)
    entries = tuple(replace(entry, label=HOSTILE, note=HOSTILE) for entry in result.entries)
    best = poisoned(result.best) if result.best else None
    return replace(result, trials=trials, entries=entries, job=HOSTILE, best=best)


def test_hostile_strings_stay_text(study: Study, document: Any, kit: Any) -> None:
    from prudent.core.space import Space
    from prudent.tuning.jobs.function import FunctionJob

    space = Space.parse({HOSTILE: [HOSTILE, "tame"], "n": [1, 2, 3, 4]})
    job = FunctionJob(lambda c: {"time_s": 10.0 * c["n"]}, space, price=3.6, virtual=True)
    result = tune(job, "minimise cost_usd", budget_usd=1.0, strategy="random")
    problem = Problem(space, result.goal, job.price)
    page = tuning_report(hostile_result(result), problem, options={HOSTILE: HOSTILE}, note=HOSTILE)
    read = kit.read(page)
    assert not [element.tag for element in read.everything() if element.tag in ("img", "b")]
    assert len(read.named("trials").all("tr")) == len(result.trials) + 1
    assert HOSTILE in read.all("h1")[0].text
    programs = [script for script in read.all("script") if "type" not in script.attributes]
    assert len(programs) == 3
    shown = kit.figures(read)
    assert "<img" not in str(shown)  # Plotly reads tags in labels
    assert "&lt;img" in str(shown)


def test_only_the_page_s_own_scripts_may_run(page: str) -> None:
    import base64
    import hashlib
    import re

    scripts = re.findall(r'<script(?: id="plotly")?>(.*?)</script>', page, flags=re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    sources = re.search(r"script-src ([^;]*);", page.replace("&#39;", "'"))
    assert sources is not None
    assert sources[1].split() == [f"'sha256-{digest}'" for digest in digests]


def test_the_same_result_gives_the_same_page(study: Study, page: str) -> None:
    assert tuning_report(*study, options={"lookahead": 1}) == page


def test_a_report_is_written_where_it_is_wanted(study: Study, tmp_path: Path) -> None:
    path = write_tuning_report(*study, tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_a_folder_that_cannot_be_is_bad_input(study: Study, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="choose a folder"):
        write_tuning_report(*study, tmp_path / "file" / "report.html")


def test_a_browser_draws_the_figures_and_complains_of_nothing(
    study: Study, tmp_path: Path, chrome: Any
) -> None:
    path = write_tuning_report(*study, tmp_path / "report.html")
    chrome.complaints.clear()
    chrome.expected.clear()
    chrome.size(1280, 9000)
    chrome.open(path.resolve().as_uri())
    chrome.until("document.querySelectorAll('.main-svg').length >= 2 * 11")  # at least two layers each
    chrome.leave()
    assert chrome.unexpected() == []
