"""Recommendations that were never run: how they are told, confirmed by one paid run, and refused."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from prudent.cli.main import run
from prudent.core.errors import BadInput
from prudent.tuning.journal import study_lock

PROGRAM = [sys.executable, "-m", "prudent.cli.main"]
GOAL = "maximise accuracy at full data subject to cost_usd <= 0.05 at full data"
Prudent = Callable[..., Any]
Write = Callable[..., Path]


def outcome(vm: str, workers: int, rate: float, share: float) -> tuple[float, float, float]:
    """Seconds, dollars per hour, accuracy: more workers are dearer, a middling rate is best."""
    speed, usd = {"small": (1.0, 0.1), "large": (3.0, 0.35)}[vm]
    time_s = 4 + 900 * share / (speed * workers**0.8)
    error = (0.02 + 0.1 * abs(math.log10(rate) + 2) + 0.004 * workers) * share**-0.4
    return time_s, usd * workers, 1 - min(error, 0.9)


def write_shares(folder: Path, fractions: tuple[float, ...] = (0.02, 0.1, 0.3, 1.0), **changes: Any) -> Path:
    """A job file that replays runs on several shares of the data."""
    lines = ["vm,workers,rate,share,time_s,price_usd_per_h,accuracy"]
    for vm in ("small", "large"):
        for workers in (1, 2, 4, 8):
            for rate in (1e-4, 1e-3, 1e-2, 1e-1):
                for share in fractions:
                    values = outcome(vm, workers, rate, abs(share) or 1.0)
                    lines.append(",".join(map(str, (vm, workers, rate, share, *values))))
    (folder / "shares.csv").write_text("\n".join(lines))
    said = {
        "table": "shares.csv",
        "parameters": ["vm", "workers", "rate"],
        "fraction": "share",
        "measures": ["accuracy"],
        "goal": GOAL,
        "budget": "$0.5",
        "strategy": "fabulinus",
        "options": {"start_configurations": 4},
        "max_trials": 8,
        "seed": 1,
        **changes,
    }
    path = folder / "job.yaml"
    kept = {key: value for key, value in said.items() if value is not None}
    path.write_text(yaml.safe_dump(kept, sort_keys=False))
    return path


@pytest.fixture
def shares(tmp_path: Path) -> Write:
    """Writes such a job file; the shares may be others."""
    return partial(write_shares, tmp_path)


@pytest.fixture(scope="module")
def studied_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with a recommendation, for all tests that begin with one."""
    folder = tmp_path_factory.mktemp("studied")
    assert run(["tune", str(write_shares(folder)), "--json"]) == 0
    return folder / "job.prudent"


@pytest.fixture(scope="module")
def confirmed_once(studied_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after its recommendation has been confirmed."""
    folder = tmp_path_factory.mktemp("confirmed")
    shutil.copytree(studied_once, folder / "job.prudent")
    assert run(["tune", str(write_shares(folder)), "--resume", "--confirm", "--json"]) == 0
    return folder / "job.prudent"


@pytest.fixture
def studied(studied_once: Path, shares: Write, tmp_path: Path) -> Path:
    """The job file of a study that has its recommendation; it is the test's own."""
    shutil.copytree(studied_once, tmp_path / "job.prudent")
    return shares()


@pytest.fixture
def confirmed(confirmed_once: Path, shares: Write, tmp_path: Path) -> Path:
    """The job file of a study that has been confirmed before; it is the test's own."""
    shutil.copytree(confirmed_once, tmp_path / "job.prudent")
    return shares()


@pytest.fixture
def learner(tmp_path: Path) -> Write:
    """A command that learns on a share of the data, by arithmetic; `full` is what it does on all of it."""

    def write(full: str = "true", **changes: Any) -> Path:
        (tmp_path / "learn.sh").write_text(
            f'if [ "$2" = 1 ] || [ "$2" = 1.0 ]; then {full}; fi\n'
            "awk -v k=$1 -v s=$2 "
            '\'BEGIN { printf "PRUDENT {\\"accuracy\\": %f}\\n", 1 - 0.02 * k / s^0.3 }\'\n'
        )
        said = {
            "command": "sh learn.sh {k} {share}",
            "parameters": {"k": [1, 2, 3, 4], "share": [0.1, 0.3, 1.0]},
            "fraction": "share",
            "measures": ["accuracy"],
            "price": 0.5,
            "goal": "maximise accuracy at full data subject to cost_usd <= $1 at full data",
            "budget": "$0.1",
            "options": {"start_configurations": 2},
            "max_trials": 4,
            **changes,
        }
        path = tmp_path / "learn.yaml"
        path.write_text(yaml.safe_dump(said, sort_keys=False))
        return path

    return write


def kept(folder: Path, name: str = "job") -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads((folder / f"{name}.prudent" / "confirmation.json").read_text())[
        "runs"
    ]
    return runs


class TestAnswer:
    def test_the_recommendation_comes_first_with_its_ranges(self, prudent: Prudent, shares: Write) -> None:
        done = prudent("tune", shares())
        assert done.code == 0, done
        told = prudent("report", shares(), "--json").json["prediction"]
        lines = [line for line in done.out.splitlines() if not line.startswith("#")]
        first = next(line for line in lines if line)
        assert first.startswith("Recommended")
        assert f"accuracy {told['accuracy']:.4g} predicted on the full data" in first
        assert f"{told['accuracy_low']:.4g} to {told['accuracy_high']:.4g} (95 % sure)" in first
        assert any(line.strip().startswith("cost_usd $") and "predicted" in line for line in lines)
        assert "keeps every constraint with a chance of" in done.out
        assert "It has not been run; --resume --confirm runs it once for about $" in done.out

    def test_a_strategy_that_runs_what_it_recommends_is_as_ever(
        self, prudent: Prudent, shares: Write
    ) -> None:
        done = prudent("tune", shares(strategy="gp-eic", options={}, max_trials=6), "--confirm")
        assert done.code == 0
        assert "Recommended" not in done.out
        assert "Best" in done.out
        assert "The study had run it already: nothing was paid for this." in done.out


class TestConfirm:
    def test_measured_beside_predicted_in_a_line_each(
        self, prudent: Prudent, shares: Write, tmp_path: Path
    ) -> None:
        done = prudent("tune", shares(), "--confirm")
        assert done.code == 0, done
        (run,) = kept(tmp_path)
        said = run["configuration"]
        time_s, usd_per_h, accuracy = outcome(said["vm"], said["workers"], said["rate"], said["share"])
        assert said["share"] == 1.0
        assert run["charge"]["usd"] == pytest.approx(time_s * usd_per_h / 3600)
        text = done.out
        order = ["Recommended", "Spent", "Confirming", "Confirmed", "Report"]
        assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)
        assert "has not been run" not in text
        for measure in ("accuracy", "cost_usd", "time_s"):
            (line,) = [
                part for part in text.splitlines() if part.strip().startswith(measure) and "measured" in part
            ]
            assert "predicted (" in line
            assert line.endswith((", in range", ", out of range"))
        assert f"accuracy {accuracy:.4g} measured" in text

    def test_the_price_is_said_and_is_twice_the_upper_end(
        self, prudent: Prudent, studied: Path, tmp_path: Path
    ) -> None:
        done = prudent("tune", studied, "--resume", "--confirm", "--json")
        told, confirmation = done.json["prediction"], done.json["confirmation"]
        assert kept(tmp_path)[0]["most_usd"] == pytest.approx(2 * told["cost_high_usd"])
        assert confirmation["errors"]["accuracy"] == pytest.approx(
            confirmation["trial"]["measures"]["accuracy"] - told["accuracy"]
        )
        assert confirmation["earlier"] is False
        assert done.json["spent_usd"] == pytest.approx(sum(t["spent_usd"] for t in done.json["trials"]))

    def test_it_is_never_paid_twice(self, prudent: Prudent, confirmed: Path, tmp_path: Path) -> None:
        path = confirmed
        file = tmp_path / "job.prudent" / "confirmation.json"
        before = file.read_bytes()
        again = prudent("tune", path, "--resume", "--confirm", "--json").json["confirmation"]
        assert again["trial"] == kept(tmp_path)[0]["trial"]
        assert again["earlier"] is True
        assert file.read_bytes() == before
        said = prudent("tune", path, "--resume", "--confirm").out
        assert "was paid for it earlier, nothing now." in said
        assert "Confirming" not in said
        # Known without asking again, for the report too.
        assert prudent("report", path, "--json").json["confirmation"] == again
        assert "was paid for it earlier" in prudent("report", path).out
        assert prudent("tune", path, "--resume", "--json").json["confirmation"] == again

    def test_one_that_passed_its_money_ends_with_3(
        self, prudent: Prudent, confirmed: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "job.prudent" / "confirmation.json"
        said = json.loads(path.read_text())
        [one] = said["runs"]
        one["most_usd"] = one["charge"]["usd"] - 0.001
        path.write_text(json.dumps(said))
        done = prudent("tune", confirmed, "--resume", "--confirm")
        assert done.code == 3
        assert "$0.001 more than it was allowed to cost" in " ".join(done.out.split())
        told = prudent("tune", confirmed, "--resume", "--confirm", "--json").json["confirmation"]
        assert told["over_usd"] == pytest.approx(0.001)

    def test_one_that_was_begun_and_never_ended_is_charged_and_starts_again(
        self, prudent: Prudent, confirmed: Path, tmp_path: Path
    ) -> None:
        path = confirmed
        file = tmp_path / "job.prudent" / "confirmation.json"
        said = json.loads(file.read_text())
        ended = dict(said["runs"][0])
        said["runs"][0].update(trial=None, charge=None, lasted_s=18.0)
        file.write_text(json.dumps(said))
        assert prudent("report", path, "--json").json["confirmation"] is None
        done = prudent("tune", path, "--resume", "--confirm")
        lost_usd = 18.0 * ended["price"]["usd_per_h"] / 3600
        assert "was killed while it confirmed" in done.err
        assert f"${lost_usd:.3g} beside the study's budget" in " ".join(done.err.split())
        assert "It was interrupted before" in done.out
        lost, again = kept(tmp_path)
        assert (lost["trial"], lost["charge"]["usd"]) == (None, pytest.approx(lost_usd))
        assert again == ended

    def test_the_confirmation_of_another_configuration_does_not_count(
        self, prudent: Prudent, confirmed: Path, tmp_path: Path
    ) -> None:
        path = confirmed
        file = tmp_path / "job.prudent" / "confirmation.json"
        said = json.loads(file.read_text())
        other = {**said["runs"][0]["configuration"], "rate": 0.1, "workers": 8}
        said["runs"][0]["configuration"] = said["runs"][0]["trial"]["configuration"] = other
        file.write_text(json.dumps(said))
        done = prudent("tune", path, "--resume", "--confirm", "--json").json
        assert done["confirmation"]["earlier"] is False
        assert [run["configuration"] for run in kept(tmp_path)] == [other, done["recommended"]]

    def test_too_little_money_leaves_the_answer_and_says_so(
        self, prudent: Prudent, studied: Path, tmp_path: Path
    ) -> None:
        done = prudent("tune", studied, "--resume", "--confirm", "--confirm-budget", "$0.0001")
        assert done.code == 1
        assert "Recommended" in done.out
        assert "Not confirmed: Confirming the recommendation takes about" in done.out
        assert (tmp_path / "job.prudent" / "report.html").exists()
        again = prudent("tune", studied, "--resume", "--confirm", "--confirm-budget", "$0.5")
        assert again.code == 0
        assert "at most $0.50, beside the study's budget" in again.out

    def test_another_goal_judges_the_same_run(
        self, prudent: Prudent, confirmed: Path, tmp_path: Path
    ) -> None:
        """A prediction of a bound just missed: the run ends, breaks the goal, and that is no answer."""
        path = confirmed
        first = prudent("report", path, "--json").json
        measured = first["confirmation"]["trial"]["cost_usd"]
        file = tmp_path / "job.prudent" / "confirmation.json"
        said = json.loads(file.read_text())
        said["runs"][0]["trial"].update(
            cost_usd=0.06, time_s=first["confirmation"]["trial"]["time_s"] * 0.06 / measured
        )
        file.write_text(json.dumps(said))
        done = prudent("tune", path, "--resume", "--confirm")
        assert done.code == 1
        assert "It breaks cost_usd <= $0.05 at full data" in done.out
        assert "out of range" in done.out or "in range" in done.out

    @pytest.mark.parametrize(
        ("more", "says"),
        [
            (["--confirm-budget", "$1"], "--confirm-budget: It is for a run that confirms"),
            (["--confirm", "--confirm-budget", "0"], "The budget is 0; give an amount above 0"),
            (["--confirm", "--confirm-budget", "5 min"], "--confirm-budget"),
        ],
    )  # fmt: skip
    def test_wrong_requests(
        self, prudent: Prudent, shares: Write, tmp_path: Path, more: list[str], says: str
    ) -> None:
        done = prudent("tune", shares(), *more)
        assert (done.code, done.out) == (2, "")
        assert done.err.count("\n") == 1
        assert says in done.err
        assert not list(tmp_path.glob("*.prudent"))

    def test_a_damaged_file_is_told(self, prudent: Prudent, confirmed: Path, tmp_path: Path) -> None:
        path = confirmed
        (tmp_path / "job.prudent" / "confirmation.json").write_text('{"runs": [')
        done = prudent("tune", path, "--resume", "--confirm")
        assert (done.code, done.out) == (2, "")
        assert "restore the file from a copy, or remove it" in " ".join(done.err.split())


class TestLiveRuns:
    def test_a_failing_confirmation_ends_with_1_and_is_tried_again(
        self, prudent: Prudent, learner: Write, tmp_path: Path
    ) -> None:
        path = learner(full="echo no room >&2; exit 3")
        done = prudent("tune", path, "--confirm", "--json")
        assert done.code == 1
        assert done.json["recommended"] is not None
        assert done.json["confirmation"]["trial"]["status"] == "failed"
        logs = tmp_path / "learn.prudent" / "logs"
        assert "no room" in (logs / "trial-0000.err").read_text()
        again = prudent("tune", path, "--resume", "--confirm")
        assert again.code == 1
        assert "Recommended" in again.out
        assert "The confirming run failed: exit code 3: no room" in " ".join(again.out.split())
        assert len(kept(tmp_path, "learn")) == 2, "both were paid"
        # The job is the same, its program was mended.
        learner()
        mended = prudent("tune", path, "--resume", "--confirm")
        assert mended.code == 0
        assert "It keeps every constraint." in mended.out

    def test_one_cut_by_money_needs_more_to_go_on(
        self, prudent: Prudent, learner: Write, tmp_path: Path
    ) -> None:
        path = learner(full="test -e go || sleep 600")
        most = "$0.001"  # 7.2 s: more than a share of the data takes on a busy computer
        done = prudent("tune", path, "--confirm", "--confirm-budget", most, "--json")
        assert done.code == 1
        confirmation = done.json["confirmation"]
        assert confirmation["trial"]["status"] == "cut"
        assert confirmation["spent_usd"] <= 0.001
        again = prudent("tune", path, "--resume", "--confirm", "--confirm-budget", most)
        assert again.code == 1
        assert "was cut after" in again.out
        assert "--confirm-budget" in again.out
        assert len(kept(tmp_path, "learn")) == 1, "the same money tells nothing more"
        (tmp_path / "go").touch()
        more = prudent("tune", path, "--resume", "--confirm", "--confirm-budget", "$0.1", "--json")
        assert more.code == 0
        assert more.json["confirmation"]["trial"]["status"] == "finished"

    def test_what_was_interrupted_is_paid_by_its_own_clock_and_starts_again(
        self, prudent: Prudent, learner: Write, tmp_path: Path
    ) -> None:
        """Killed, then asked to end, then left alone: the command's own clock is the meter."""
        tick = "date +%s.%N >> ticks.$$; sleep 0.05"
        path = learner(full=f"while ! test -e go; do {tick}; done")
        logs = tmp_path / "learn.prudent" / "logs"
        killed = Interrupted(path, signal.SIGKILL)
        _wait_for((logs / "trial-0000.ended").exists)
        killed_most_s = time.time() - killed.before_s
        stopped = Interrupted(path, signal.SIGTERM, "--resume")
        stopped_most_s = time.time() - stopped.before_s
        assert (killed.code, stopped.code) == (-signal.SIGKILL, 130)
        assert "an earlier call was killed while it confirmed the recommendation" in stopped.err
        assert "the time it had is charged" in stopped.out
        assert not list(logs.glob("trial-*.pid")) + list(logs.glob("trial-*.ended"))

        runs = kept(tmp_path, "learn")
        assert [(run["trial"], run["charge"]["note"]) for run in runs] == [(None, "interrupted")] * 2
        charges = [run["charge"] for run in runs]
        assert killed.metered_s() <= charges[0]["seconds"] <= killed_most_s
        assert stopped.metered_s() <= charges[1]["seconds"] <= stopped_most_s
        lost_usd = sum(charge["usd"] for charge in charges)
        assert lost_usd == pytest.approx(sum(charge["seconds"] for charge in charges) * 0.5 / 3600)
        (tmp_path / "go").touch()
        less = ("--confirm-budget", f"${lost_usd:.6f}", "--json")
        short = prudent("tune", path, "--resume", "--confirm", *less)
        assert "is left" in short.json["confirmation"]["why_not"]
        resumed = prudent("tune", path, "--resume", "--confirm", "--confirm-budget", "$0.1")
        assert resumed.code == 0
        assert "more went to runs of it that were interrupted" in " ".join(resumed.out.split())
        *lost, last = kept(tmp_path, "learn")
        assert (lost, last["trial"]["status"]) == (runs, "finished")
        [spent] = prudent("money", "--json").json["days"]
        in_all_usd = short.json["spent_usd"] + lost_usd + last["charge"]["usd"]
        assert spent["usd"] == pytest.approx(in_all_usd)


def _wait_for(happened: Callable[[], object]) -> None:
    until_s = time.monotonic() + 240
    while not happened():
        assert time.monotonic() < until_s, "it never happened"
        time.sleep(0.05)


class Interrupted:
    """A call that gets a signal while it confirms, not before the run's own clock shows some time."""

    def __init__(self, job: Path, number: signal.Signals, *more: str) -> None:
        words = [*PROGRAM, "tune", str(job), "--confirm", "--confirm-budget", "$0.1", *more]
        known = set(job.parent.glob("ticks.*"))
        note = job.parent / "learn.prudent" / "logs" / "trial-0000.pid"
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.before_s = time.time()
            while not note.exists():
                assert process.poll() is None
                self.before_s = time.time() - 1.0  # it is written a moment after its run begins
                time.sleep(0.02)
            _wait_for(lambda: set(job.parent.glob("ticks.*")) - known)
            (self._ticks,) = set(job.parent.glob("ticks.*")) - known
            _wait_for(lambda: self.metered_s() > 1.5)
            journal = job.parent / "learn.prudent" / "journal.jsonl"
            with pytest.raises(BadInput, match="Another process is running the study"), study_lock(journal):
                pass
            process.send_signal(number)
            out, err = process.communicate(timeout=240)
        finally:
            process.kill()
        self.code, self.out, self.err = process.returncode, " ".join(out.split()), " ".join(err.split())

    def metered_s(self) -> float:
        """From the first to the last tick that the command wrote itself."""
        shown = [
            float(line) for line in self._ticks.read_text().splitlines(keepends=True) if line[-1] == "\n"
        ]
        return shown[-1] - shown[0] if shown else 0.0


class TestNothingKeepsTheGoal:
    GOAL = "maximise accuracy at full data subject to cost_usd <= 0.0001 at full data"

    def test_what_comes_nearest_the_remedy_and_exit_code_1(
        self, prudent: Prudent, shares: Write, tmp_path: Path
    ) -> None:
        done = prudent("tune", shares(goal=self.GOAL))
        text = " ".join(done.out.split())
        assert done.code == 1
        assert "No configuration is expected to keep every constraint on the full data." in text
        assert "but cost_usd <= $0.0001 at full data is wanted" in text
        assert "Loosen that constraint with another goal" in text
        assert "workers" in done.out
        page = (tmp_path / "job.prudent" / "report.html").read_text()
        assert "Nothing is expected to keep the goal" in page
        # And no money is spent to confirm it.
        done = prudent("tune", shares(goal=self.GOAL), "--resume", "--confirm")
        assert done.code == 1
        assert "Not confirmed: nothing is expected to keep every constraint" in done.out
        assert not (tmp_path / "job.prudent" / "confirmation.json").exists()

    def test_on_full_data_runs_the_measured_one_is_the_nearest(self, prudent: Prudent, shares: Write) -> None:
        path = shares(goal=self.GOAL, strategy="hyperband", options={}, max_trials=40, budget="$5")
        done = prudent("tune", path, "--no-early-stop", "--json")
        assert done.code == 1
        assert done.json["nearest"]["configuration"]["share"] == 1.0
        said = " ".join(prudent("report", path).out.split())
        assert "but cost_usd <= $0.0001 at full data is wanted" in said
        assert "Loosen that constraint with another goal" in said

    def test_money_that_never_reached_the_full_data_has_its_own_words(
        self, prudent: Prudent, shares: Write
    ) -> None:
        path = shares(strategy="hyperband", options={}, max_trials=3)
        done = prudent("tune", path)
        assert done.code == 1
        assert "No run on the full data came to its end" in done.out
        assert "such as fabulinus" in done.out


@pytest.mark.parametrize(
    ("fractions", "changes", "says"),
    [
        ((0.1, 1.5), {}, 'the fraction "1.5" in column "share" is not in (0, 1]'),
        ((0.0, 1.0), {}, 'the fraction "0.0" in column "share" is not in (0, 1]'),
        ((-0.5, 1.0), {}, 'the fraction "-0.5" in column "share" is not in (0, 1]'),
        ((0.1, 0.3), {}, "never reaches 1, the full data; add"),
        ((1.0,), {}, "has no value below 1; add smaller ones"),
        ((0.1, 1.0), {"fraction": None, "strategy": None, "options": None},
         'the job names no fraction; add "fraction: PARAMETER"'),
        ((0.1, 1.0), {"fraction": "vm"}, 'the fraction "small" in column "vm" is not in (0, 1]'),
    ],
)  # fmt: skip
def test_fractions_that_are_none(
    prudent: Prudent,
    shares: Write,
    tmp_path: Path,
    fractions: tuple[float, ...],
    changes: dict[str, Any],
    says: str,
) -> None:
    done = prudent("tune", shares(fractions, **changes))
    assert (done.code, done.out) == (2, ""), done
    assert done.err.count("\n") == 1
    assert says in done.err
    assert done.err.rstrip().endswith(".")
    assert not list(tmp_path.glob("*.prudent"))
