"""A job file says everything that the Python calls can say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.tuning.job_file import JobFile
from prudent.tuning.jobs.command import CommandJob
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.trial import Outcome

COMMAND = """
name: digits
command: echo --lr {learning_rate} --on {cluster.type} --batch {batch}
parameters:
  learning_rate: {log: [1e-4, 1]}
  cluster: {machine: {types: [m5.large, c5.*], count: [1, 2, 4]}}
  batch: [16, 256]
rule: cluster.count * batch <= 512
measures: [accuracy]
goal: minimise cost_usd subject to time_s <= 5 min and accuracy >= 0.85
budget: $2
strategy: lynceus
options: {lookahead: 1}
setup: 30 s
parallel: 3
seed: 7
early_stop: false
max_trials: 40
timeout: 1 h
environment: {THREADS: 4}
"""


def read(folder: Path, text: str, name: str = "job.yaml") -> JobFile:
    path = folder / name
    path.write_text(text)
    return JobFile.read(path)


def price_of(folder: Path, price: str, configuration: dict[str, Any]) -> float:
    text = (
        "command: echo {workers}\nparameters: {workers: [1, 2, 4], vm: [m5.large, c5.large]}\n"
        f"goal: minimise cost_usd\nprice: {price}\n"
    )
    return read(folder, text).build().price(configuration).usd_per_h


def test_everything_a_command_can_say(tmp_path: Path) -> None:
    said = read(tmp_path, COMMAND)
    assert (said.name, said.budget_usd, said.strategy, said.seed) == ("digits", 2.0, "lynceus", 7)
    assert (said.parallel, said.early_stop, said.max_trials) == (3, False, 40)
    assert said.options == {"lookahead": 1}
    assert said.goal.max_time_s == 300
    job = said.build(tmp_path / "logs")
    assert isinstance(job, CommandJob)
    assert (job.name, job.setup_s, job.timeout_s, job.measures) == ("digits", 30.0, 3600.0, ("accuracy",))
    assert job.logs == tmp_path / "logs"
    assert job.directory == tmp_path
    chosen = {"learning_rate": 0.1, "cluster": "2*m5.large", "batch": 256}
    assert job.price(chosen).usd_per_h == pytest.approx(0.192)
    with pytest.raises(BadInput, match="The rule"):
        job.space.check({**chosen, "cluster": "4*m5.large"})


def test_what_is_left_out_has_sensible_values(tmp_path: Path) -> None:
    said = read(
        tmp_path, "command: echo {x}\nparameters: {x: [1, 2]}\ngoal: minimise cost_usd\n", "small.yaml"
    )
    assert (said.name, said.budget_usd, said.strategy, said.parallel) == ("small", None, None, 1)
    assert (said.seed, said.early_stop, said.max_trials, dict(said.options)) == (0, True, None, {})


def test_a_table_beside_the_file_is_found_from_anywhere(
    tmp_path: Path, write_runs: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_runs(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = "table: runs.csv\nparameters: [vm, workers, rate]\nmeasures: accuracy\nprogress: progress.csv\n"
    (tmp_path / "job.yaml").write_text(text + "goal: maximise accuracy\n")
    job = JobFile.read("../job.yaml").build()
    assert isinstance(job, TableJob)
    assert (job.space.size, job.measures) == (72, ("accuracy",))


@pytest.mark.parametrize("said", ["read.csv", "[cpu_share]"])
def test_a_table_has_readings_in_columns_or_beside_it(tmp_path: Path, said: str) -> None:
    column = [",cpu_share", ",0.5", ",0.25"] if said != "read.csv" else ["", "", ""]
    rows = ["id,n,time_s,price_usd_per_h", "a,1,9,1", "b,2,5,2"]
    (tmp_path / "runs.csv").write_text("\n".join(map("".join, zip(rows, column, strict=True))))
    (tmp_path / "read.csv").write_text("id,cpu_share\na,0.5\nb,0.25\n")
    text = f"table: runs.csv\nparameters: [n]\nreadings: {said}\ngoal: minimise cost_usd\n"
    (tmp_path / "job.yaml").write_text(text)
    job = JobFile.read(tmp_path / "job.yaml").build()
    assert isinstance(job, TableJob)
    found = [job.recorded({"n": n}).readings for n in (1, 2)]
    assert [None if one is None else one.cpu_share for one in found] == [0.5, 0.25]


class TestPrices:
    @pytest.mark.parametrize(
        ("said", "usd_per_h"),
        [
            ("0.5", 0.5),
            ("$0.096/h", 0.096),
            ("$ 0.096 / hour", 0.096),
            ("9.6 cents per hour", 0.096),
            ("$0.001/s", 3.6),
            ("$24 per day", 1.0),
            ("$2", 2.0),
            ("0.05 * workers", 0.2),
            ("workers / 4", 1.0),
            ("0.5 / workers", 0.125),
            ("{machine: vm, count: workers + 1}", 0.48),
            ("{machine: m5.large}", 0.096),
        ],
    )
    def test_forms(self, tmp_path: Path, said: str, usd_per_h: float) -> None:
        assert price_of(tmp_path, said, {"workers": 4, "vm": "m5.large"}) == pytest.approx(usd_per_h)

    def test_a_price_list_of_ones_own(self, tmp_path: Path) -> None:
        (tmp_path / "mine.csv").write_text("name,price_usd_per_h,vcpus\nlab.big,1.5,8\nm5.large,0.01,2\n")
        said = "{machine: lab.big, count: workers, catalog: mine.csv}"
        assert price_of(tmp_path, said, {"workers": 2, "vm": "m5.large"}) == 3.0
        text = (
            "command: echo {cluster}\n"
            "parameters: {cluster: {machine: {types: [lab.big, m5.large], count: 1..3}}}\n"
            "goal: minimise cost_usd\nprice: {catalog: mine.csv}\n"
        )
        job = read(tmp_path, text).build()
        assert job.space.size == 6
        assert job.price({"cluster": "3*m5.large"}).usd_per_h == pytest.approx(0.03)
        inside = text.replace("count: 1..3", "count: 1, catalog: mine.csv").replace(
            "price: {catalog: mine.csv}\n", ""
        )
        assert read(tmp_path, inside).build().price({"cluster": "1*lab.big"}).usd_per_h == 1.5


class TestFunctions:
    @pytest.fixture(autouse=True)
    def clean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def said(self, folder: Path, function: str, module: str = "") -> JobFile:
        if module:
            (folder / "my_training.py").write_text(module)
        text = f"function: {function}\nparameters: {{x: [1, 2]}}\nmeasures: [error]\nvirtual: true\n"
        return read(folder, text + "goal: minimise error\nprice: 3.6\n")

    def forget(self) -> None:
        sys.modules.pop("my_training", None)

    def test_a_function_beside_the_file(self, tmp_path: Path) -> None:
        self.forget()
        module = "def train(x):\n    return {'error': 1 / x, 'time_s': 10 * x}\n"
        job = self.said(tmp_path, "my_training:train", module).build()
        assert isinstance(job, FunctionJob)
        assert job.virtual
        outcome = job.start({"x": 2}, 1).next(100)
        assert isinstance(outcome, Outcome)
        assert (outcome.measures, outcome.time_s) == ({"error": 0.5}, 20.0)
        self.forget()

    @pytest.mark.parametrize(
        ("function", "module", "says"),
        [
            ("my_training", "x = 1\n", "names no function; write it like package.module:function"),
            ("../my_training:train", "x = 1\n", "names no function"),
            ("my_trainin:train", "x = 1\n", 'Did you mean "my_training"'),
            ("my_training:trian", "def train(x): ...\n", 'Did you mean "train"'),
            ("my_training:train", "import no_such_thing\n", "install what it needs"),
            ("my_training:train", "1 / 0\n", "ZeroDivisionError"),
            ("my_training:train", "train = 3\n", "cannot be called"),
            ("my_training:train", "def train(y, z): ...\n", "cannot be called with a configuration"),
        ],
    )
    def test_functions_that_are_none(self, tmp_path: Path, function: str, module: str, says: str) -> None:
        self.forget()
        with pytest.raises(BadInput, match=r"job\.yaml, function: ") as caught:
            self.said(tmp_path, function, module).build()
        assert says in str(caught.value)
        self.forget()


class TestComplaints:
    def test_every_rule_of_a_list_holds_and_the_wrong_one_is_quoted(self, tmp_path: Path) -> None:
        text = "command: echo {x}\nparameters: {x: [1, 2, 3, 4]}\ngoal: minimise cost_usd\n"
        text += "rule: [x > 1, x < 4]\n"
        assert read(tmp_path, text).build().space.count() == 2
        with pytest.raises(BadInput, match=r'job\.yaml, rule: The rule "x <" cannot'):
            read(tmp_path, text.replace("x < 4", "x <")).build()

    @pytest.mark.parametrize("key", ["time", "progress"])
    def test_keys_of_another_kind_of_job(self, tmp_path: Path, key: str) -> None:
        with pytest.raises(BadInput, match=rf"job\.yaml, {key}: This key is for a table"):
            read(tmp_path, COMMAND + f"{key}: x\n")

    def test_changes_from_the_command_line(self, tmp_path: Path) -> None:
        said = read(tmp_path, COMMAND)
        assert said.changed() == said
        changed = said.changed("maximise accuracy", "$5", None, {"nodes": 3}, seed=9, parallel=None)
        assert (str(changed.goal), changed.budget_usd, changed.seed) == ("maximise accuracy", 5.0, 9)
        assert (changed.parallel, changed.options) == (3, {"lookahead": 1, "nodes": 3})
        assert said.changed(strategy="random").options == {}
        for wrong, says in (({"goal": "best"}, "--goal: "), ({"budget": "1 h"}, "--budget: "),
                            ({"strategy": "x"}, "--strategy: ")):  # fmt: skip
            with pytest.raises(BadInput, match=says):
                said.changed(**wrong)  # type: ignore[arg-type]


def test_a_job_file_made_by_hand_has_the_same_defaults(tmp_path: Path) -> None:
    said = read(tmp_path, "command: echo {x}\nparameters: {x: [1, 2]}\ngoal: minimise cost_usd\n", "job.yaml")
    assert JobFile("job", said.folder, said.kind, said.said, said.where, said.goal) == said


def test_what_is_left_out_of_a_job_has_sensible_values(tmp_path: Path) -> None:
    text = "parameters: {x: [1, 2]}\ngoal: minimise cost_usd\n"
    command = read(tmp_path, f"command: echo {{x}}\n{text}").build()
    assert isinstance(command, CommandJob)
    assert (command.setup_s, command.grace_s, command.timeout_s) == (0.0, 5.0, None)
    assert read(tmp_path, f"command: echo {{x}}\n{text}timeout: 0 s\n").build().timeout_s == 0.0  # type: ignore[attr-defined]


def test_numbers_larger_than_any_float_are_refused(tmp_path: Path) -> None:
    for key in ("price", "setup", "budget"):
        said = {"command": "true", "parameters": {"a": [1, 2]}, "goal": "minimise cost_usd", key: 10**400}
        with pytest.raises(BadInput, match=r"The price|is not a quantity"):
            JobFile.parse(said, tmp_path).build()


@pytest.mark.parametrize("price", ["{}", "{minimum: 60}"])
def test_a_price_that_says_nothing_is_refused(price: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="price"):
        price_of(tmp_path, price, {"workers": 4, "vm": "m5.large"})


@pytest.mark.parametrize("budget", ["$0", "0", "-1"])
def test_a_budget_is_more_than_nothing(budget: str, tmp_path: Path) -> None:
    text = f"command: echo {{x}}\nparameters: {{x: [1, 2]}}\ngoal: minimise cost_usd\nbudget: {budget}\n"
    with pytest.raises(BadInput, match="budget"):
        read(tmp_path, text)


@pytest.mark.parametrize("key", ["worker", "fetch", "exclude", "keep", "lease", "spot"])
def test_keys_of_machines_need_machines(key: str, tmp_path: Path) -> None:
    text = f"command: echo {{x}}\nparameters: {{x: [1, 2]}}\ngoal: minimise cost_usd\n{key}: 1\n"
    with pytest.raises(BadInput, match="machines that are rented"):
        read(tmp_path, text).build()
