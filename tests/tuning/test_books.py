"""The books tell the truth: what is charged is what ran, by the clocks of the processes themselves.

The processes write down the time while they live; nothing of that passes through Prudent.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.jobs.command import CommandJob
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.result import Result
from prudent.tuning.strategies.registry import strategies
from prudent.tuning.study.limits import OUT_OF_MONEY, TOO_SLOW
from prudent.tuning.study.settlement import INTERRUPTED
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, FINISHED, Outcome
from prudent.tuning.tune import Event, TrialReported, tune

from .metered import MeteredJob

USD_PER_S = 0.05
WORK = """
[ "$1" = deaf ] && trap '' TERM
echo 'PRUDENT {"progress": 0.1}'
while :; do date +%s.%N; sleep 0.05; done >> clock.$$
"""


def ticking(folder: Path, kind: str = "plain", grace_s: float = 1.0) -> CommandJob:
    """A command that works until it is ended, and notes the time as it goes."""
    (folder / "work.sh").write_text(WORK)
    space = Space.parse({"n": [1, 2], "kind": [kind]})
    price = Price(USD_PER_S * 3600, "2025-01-01", "test")
    return CommandJob(
        "sh work.sh {kind}", space, price=price, directory=folder, logs=folder / "logs", grace_s=grace_s
    )


def used_usd(folder: Path) -> float:
    """By the processes' own clocks: from the first to the last moment that each of them noted."""
    lives = [[float(line) for line in path.read_text().split()] for path in folder.glob("clock.*")]
    return USD_PER_S * sum(life[-1] - life[0] for life in lives if life)


class Rounds:
    """Sessions of one study, and how long they took by the clock on the wall."""

    def __init__(self, folder: Path) -> None:
        self.job, self.path, self.wall_s = ticking(folder), folder / "j.jsonl", 0.0

    def __call__(self, budget_usd: float, interrupt: bool) -> Result:
        def watch(event: Event, study: Study) -> None:
            if interrupt and isinstance(event, TrialReported):
                raise KeyboardInterrupt

        begun_s, resume = time.monotonic(), self.path.exists()
        result = tune(self.job, "minimise cost_usd", budget_usd, "grid", early_stop=False, watch=watch,
                      journal=self.path, resume=resume, max_trials=1)  # fmt: skip
        self.wall_s += time.monotonic() - begun_s
        return result


def test_four_rounds_of_ctrl_c_are_paid_for(tmp_path: Path) -> None:
    """Row 3 of the books: four rounds of Ctrl-C and --resume had cost $3.94, and $0.00 in them."""
    rounds, paid = Rounds(tmp_path), [0.0]
    for number in range(1, 5):
        result = rounds(2.0, interrupt=True)
        assert (result.interrupted, result.trials) == (True, ())
        assert [entry.note for entry in result.entries] == [INTERRUPTED] * number
        assert used_usd(tmp_path) <= result.spent_usd <= USD_PER_S * rounds.wall_s
        assert result.interrupted_usd == result.spent_usd > paid[-1]
        paid.append(result.spent_usd)
    # With money for two seconds more it is begun again, and ended while there is some left.
    budget_usd = paid[-1] + 2 * USD_PER_S
    last = rounds(budget_usd, interrupt=False)
    assert [(trial.status, trial.why) for trial in last.trials] == [(CUT, OUT_OF_MONEY)]
    assert used_usd(tmp_path) <= last.spent_usd <= USD_PER_S * rounds.wall_s
    assert last.spent_usd <= budget_usd or last.over_usd > 0  # a computer that stood still is no excuse
    assert last.interrupted_usd == paid[-1]


def test_a_run_that_does_not_end_when_it_is_asked_is_paid_to_its_end(tmp_path: Path) -> None:
    """Row 1 of the books: what ran for 6.5 s stood in them with 1.0 s."""
    job = ticking(tmp_path, "deaf", grace_s=1.0)
    begun_s = time.monotonic()
    result = tune(job, "minimise cost_usd subject to time_s <= 0.3", 10.0, "grid", max_trials=2, parallel=2)
    wall_s = time.monotonic() - begun_s
    assert [(trial.status, trial.why) for trial in result.trials] == [(CUT, TOO_SLOW)] * 2
    assert all(entry.seconds >= 1.3 for entry in result.entries)
    assert used_usd(tmp_path) <= result.spent_usd <= 2 * USD_PER_S * wall_s


def test_the_budget_holds_while_the_study_is_busy(tmp_path: Path) -> None:
    """Whoever watches keeps the study from looking at its limits, until the command is gone by itself."""
    job, budget_usd = ticking(tmp_path), 10 * USD_PER_S
    lasted_s: list[float] = []

    def watch(event: Event, study: Study) -> None:
        if isinstance(event, TrialReported):
            begun_s = time.monotonic()
            while _ticks(tmp_path):
                assert time.monotonic() < begun_s + 120, "nobody has ended the command"
            lasted_s.append(time.monotonic() - begun_s)

    result = tune(job, "minimise cost_usd", budget_usd, "grid", watch=watch, max_trials=1)
    assert [(trial.status, trial.why) for trial in result.trials] == [(CUT, OUT_OF_MONEY)]
    assert lasted_s
    assert used_usd(tmp_path) <= result.spent_usd <= budget_usd


def _ticks(folder: Path) -> bool:
    """Whether a command writes down the time, looked at for a while."""
    before = used_usd(folder)
    time.sleep(0.5)
    return used_usd(folder) > before or before == 0


@pytest.mark.parametrize(("budget_usd", "together"), [(50.0, 2), (0.05, 1)])
def test_nobody_chooses_the_next_run_while_the_money_of_others_may_end(
    budget_usd: float, together: int
) -> None:
    """To choose takes time in which nobody looks at the limits: a second of these costs $0.05."""
    meets, now = threading.Barrier(together), []
    most = 0

    def work(n: int) -> dict[str, float]:
        nonlocal most
        now.append(n)
        most = max(most, len(now))
        with contextlib.suppress(threading.BrokenBarrierError):
            meets.wait(60)
        now.remove(n)
        return {"error": n}

    price = Price(USD_PER_S * 3600, "2025-01-01", "test")
    job = FunctionJob(work, Space.parse({"n": [1, 2, 3, 4]}), ["error"], price=price)
    result = tune(job, "minimise error", budget_usd, "grid", parallel=2)
    assert most == together
    assert result.best is not None


class TestSignsOfLife:
    SPACE = Space.parse({"n": [1, 2, 3]})

    def study(self, path: Path, minimum_s: float = 0.0, **more: Any) -> Study:
        price = Price(3.6, "", "test", minimum_s)  # 0.001 $ a second
        goal = "minimise cost_usd"
        return Study(
            self.SPACE, goal, lambda _: price, 1.0, "grid", journal=path, resume=path.exists(), **more
        )

    def killed(self, path: Path, *lasted_s: float, **more: Any) -> Study:
        """A session that notes how long its trial has lasted, and is gone."""
        study = self.study(path, **more)
        asked = study.ask()
        assert asked is not None
        assert asked.number == 1
        for seconds in lasted_s:
            study.alive({asked.number: seconds})
        study.close()
        return study

    def test_what_ran_before_a_crash_is_charged_once_up_to_the_last_sign(self, tmp_path: Path) -> None:
        path = tmp_path / "j"
        assert self.killed(path, 0.1, 5.0, 12.5).spent_usd == 0.0
        assert self.killed(path).spent_usd == pytest.approx(0.0125)
        assert self.killed(path, 3.0).spent_usd == pytest.approx(0.0125)
        study = self.study(path)
        assert study.spent_usd == pytest.approx(0.0155)
        assert [(entry.label, entry.note) for entry in study.ledger.entries] == [
            ("trial 1, interrupted", INTERRUPTED)
        ] * 2
        study.close()

    def test_a_run_that_hardly_began_has_cost_the_minimum(self, tmp_path: Path) -> None:
        self.killed(tmp_path / "j", 0.01, minimum_s=60.0)
        study = self.study(tmp_path / "j", minimum_s=60.0)
        assert study.spent_usd == pytest.approx(0.06)
        study.close()

    def test_one_that_outlived_its_session_is_charged_to_its_end(self, tmp_path: Path) -> None:
        self.killed(tmp_path / "j", 10.0)
        study = self.study(tmp_path / "j", outlived_s={1: 40.0, 7: 1.0})
        assert study.spent_usd == pytest.approx(0.04)
        study.close()

    def test_what_ended_is_not_charged_again(self, tmp_path: Path) -> None:
        study = self.study(tmp_path / "j")
        assert study.ask() is not None
        study.alive({1: 20.0})
        study.tell(1, time_s=30.0)
        study.close()
        again = self.study(tmp_path / "j")
        assert again.spent_usd == pytest.approx(0.03)
        again.close()

    def test_interrupted_again_and_again_it_ends_when_the_money_does(self, tmp_path: Path) -> None:
        sessions = 0
        while (study := self.study(tmp_path / "j")).ask() is not None:
            study.interrupt(1, Outcome(CUT, 300.0, why=INTERRUPTED))
            study.close()
            sessions += 1
        study.close()
        assert sessions == 4  # of $0.30 each; the last has passed the $1, and says so
        assert [study.spent_usd, study.ledger.over_usd] == pytest.approx([1.2, 0.2])

    def test_a_live_study_notes_its_runs_as_soon_as_they_are_there(self, tmp_path: Path) -> None:
        noted: list[dict[str, float]] = []

        def watch(event: Event, study: Study) -> None:
            if isinstance(event, TrialReported):
                facts = map(json.loads, (tmp_path / "j.jsonl").read_text().splitlines())
                noted.extend(fact["lasted_s"] for fact in facts if fact["fact"] == "alive")
                raise KeyboardInterrupt

        tune(ticking(tmp_path), "minimise cost_usd", 2.0, "grid", watch=watch, journal=tmp_path / "j.jsonl")
        assert [list(one) for one in noted[:1]] == [["1"]]
        assert all(lasted_s > 0 for one in noted for lasted_s in one.values())

    def test_replays_need_none(self, tmp_path: Path, table: Callable[[], TableJob]) -> None:
        tune(table(), "minimise cost_usd", 0.01, "random", journal=tmp_path / "j")
        facts = {json.loads(line)["fact"] for line in (tmp_path / "j").read_text().splitlines()}
        assert "alive" not in facts


class TestBilledAsCloudsBill:
    @pytest.mark.parametrize("name", [name for name in strategies() if name not in ("hyperband", "bohb")])
    def test_first_runs_are_those_that_can_be_paid(self, name: str) -> None:
        """Row 4 of the books: a minimum bill of $0.06 and a budget of $0.20, and nothing ran."""
        shares = {"s": [0.5, 1.0]} if name in ("fabolas", "fabulinus") else {}
        job = MeteredJob(
            Space.parse({"n": [1, 2, 3, 4, 50], "kind": ["a", "b"], **shares}),
            lambda chosen: Outcome(
                FINISHED, 20.0 / chosen["n"] * chosen.get("s", 1.0), {"error": chosen["n"]}
            ),
            lambda chosen: 3.6 * max(chosen["n"] - 1, 1),  # a minute of 50 would cost $2.94
            ["error"],
            "s" if shares else None,
            minimum_s=60.0,
        )
        goal = "minimise error subject to time_s <= 60" + (" at full data" if shares else "")
        options = {"start": "random", "lookahead": 0} if name == "obol" else {}
        result = tune(job, goal, 0.2, name, options, seed=3)
        assert job.runs, "nothing ran"
        assert {trial.status for trial in result.trials} == {FINISHED}
        assert result.spent_usd == pytest.approx(job.used_usd)
        assert 0.06 <= job.used_usd <= 0.2 + 1e-9

    def test_a_replay_is_billed_by_minimum_and_boot(
        self, table: Callable[[], TableJob], tmp_path: Path
    ) -> None:
        plain = table()
        billed = TableJob.read_csv(
            tmp_path / "runs.csv", ["vm", "workers", "rate"], measures=["accuracy"], minimum_s=60, boot_s=45
        )
        assert billed.fingerprint() != plain.fingerprint()
        result = tune(billed, "minimise cost_usd subject to time_s <= 300", 1.0, "random", seed=2, parallel=3)
        assert any(trial.finished for trial in result.trials)
        assert any(trial.status == CUT for trial in result.trials)
        begun = [trial for trial in result.trials if trial.time_s > 0]
        for trial, entry in zip(begun, result.entries, strict=True):
            at = plain.recorded(trial.configuration)
            if trial.finished:
                assert trial.time_s == pytest.approx(at.time_s)
            # As whoever owns the machines would: from the order on, a minute at least.
            own_usd = max(60.0, trial.time_s + 45.0) * at.usd_per_h / 3600
            assert trial.spent_usd == entry.usd == pytest.approx(own_usd)
        assert result.spent_usd <= 1.0 + 1e-9

    def test_booting_takes_time_on_the_clock_of_the_study(self, table: Callable[[], TableJob]) -> None:
        plain = table()
        booted = TableJob(plain._runs, plain.space, plain.measures, boot_s=100.0)
        ended_s = []
        for job in (plain, booted):
            seen: list[float] = []

            def watch(event: Event, study: Study, seen: list[float] = seen) -> None:
                seen.append(study.clock_s)

            tune(job, "minimise cost_usd", None, "grid", early_stop=False, max_trials=3, watch=watch)
            ended_s.append(seen[-1])
        assert ended_s[1] == pytest.approx(ended_s[0] + 3 * 100.0)
