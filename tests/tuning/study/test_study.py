"""A study keeps its budget, its word, and its memory."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.study.limits import NOT_CHEAPER, OUT_OF_MONEY, TOO_SLOW
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Trial
from prudent.tuning.tune import summary, tune

SPACE = Space.parse({"n": [1, 2, 3, 4], "kind": ["a", "b"]})
GOAL = "minimise cost_usd subject to time_s <= 100"


def study(budget_usd: float | None = 1.0, strategy: str = "grid", **more: Any) -> Study:
    return Study(SPACE, GOAL, lambda c: 3.6 * c["n"], budget_usd, strategy, **more)


def ask(of: Study) -> int:
    asked = of.ask()
    assert asked is not None
    return asked.number


class TestAskAndTell:
    def test_a_trial_is_asked_told_and_charged_once(self) -> None:
        one = study()
        asked = one.ask()
        assert asked is not None
        assert asked.configuration == {"n": 1, "kind": "a"}
        assert (asked.at_s, one.clock_s) == (0.0, 0.0)
        trial = one.tell(asked.number, time_s=50, measures={})
        assert (trial.cost_usd, trial.spent_usd, trial.feasible) == (0.05, 0.05, True)
        assert (one.best, one.spent_usd, one.recommended) == (trial, 0.05, asked.configuration)
        with pytest.raises(BadInput, match="Trial 1 is not under way"):
            one.tell(asked.number, time_s=50)

    def test_several_may_be_under_way_and_end_in_any_order(self) -> None:
        one = study()
        first, second, third = ask(one), ask(one), ask(one)
        assert len({json.dumps(a.configuration) for a in one.pending}) == 3
        for number in (second, third, first):
            one.tell(number, time_s=10)
        assert [trial.number for trial in one.trials] == [2, 3, 1]

    def test_nothing_is_asked_twice_not_even_what_failed(self) -> None:
        one = study(budget_usd=None, strategy="random")
        seen = []
        while (asked := one.ask()) is not None:
            seen.append(json.dumps(asked.configuration))
            one.tell(asked.number, time_s=1, status=FAILED if asked.number % 2 else FINISHED, why="oh")
        assert len(seen) == len(set(seen)) == 8

    def test_what_could_not_start_costs_nothing(self) -> None:
        one = study()
        one.tell(ask(one), Outcome(FAILED, 0.0, why="no machine", started=False))
        assert (one.spent_usd, one.ledger.reserved_usd, one.ledger.entries) == (0.0, 0.0, ())
        trial = one.tell(ask(one), time_s=10, status=FAILED, why="exit code 1")
        assert trial.spent_usd == one.spent_usd > 0

    def test_a_run_without_a_measure_of_the_goal_has_failed(self) -> None:
        goal = "minimise cost_usd subject to accuracy >= 0.5"
        one = Study(SPACE, goal, lambda c: 3.6, 1.0, "grid", measures=["accuracy"])
        trial = one.tell(ask(one), time_s=10)
        assert (trial.status, trial.feasible) == (FAILED, False)
        assert "accuracy" in trial.why

    def test_rubbish_is_refused_and_changes_nothing(self) -> None:
        one = study()
        number = ask(one)
        for wrong in ({"time_s": -1}, {"time_s": math.nan}, {}, {"time_s": 1, "measures": {"x": math.nan}}):
            with pytest.raises(BadInput):
                one.tell(number, **wrong)  # type: ignore[arg-type]
        assert one.tell(number, time_s=1).finished

    def test_abandoned_trials_are_forgotten(self) -> None:
        one = study()
        one.abandon(ask(one))
        assert (one.pending, one.ledger.reserved_usd, one.spent_usd) == ((), 0.0, 0.0)

    def test_the_end_of_a_cut_run_is_paid_and_no_part_of_its_time(self) -> None:
        one = study()
        trial = one.tell(ask(one), Outcome(CUT, 50.0, why="slow", ending_s=5.0))
        assert (trial.time_s, trial.cost_usd, trial.spent_usd) == (50.0, 0.05, pytest.approx(0.055))


class TestMoney:
    def test_what_was_paid_is_charged_though_the_budget_is_passed(self, tmp_path: Path) -> None:
        """Row 2 of the books: a run of $5 told to a study with $1 stood in them as $1."""
        one = study(budget_usd=1.0, journal=tmp_path / "j")
        trial = one.tell(ask(one), time_s=5000)
        assert (trial.spent_usd, one.spent_usd, one.ledger.over_usd) == (5.0, 5.0, 4.0)
        assert one.ask() is None
        one.close()
        again = study(budget_usd=1.0, journal=tmp_path / "j", resume=True)
        again.close()
        result = summary(again, "job")
        assert (result.spent_usd, result.over_usd, result.to_dict()["over_usd"]) == (5.0, 4.0, 4.0)

    def test_first_trials_leave_room_for_others_beside_them(self) -> None:
        one = study(budget_usd=1.0, early_stop=False)
        assert one.limit(ask(one)).why == OUT_OF_MONEY
        for _ in range(3):
            ask(one)
        assert one.ledger.reserved_usd <= 1.0
        assert len(one.pending) == 4

    def test_a_run_gets_more_while_there_is_some(self) -> None:
        one = study(budget_usd=1.0, early_stop=False)
        number = ask(one)
        limits = [one.limit(number).seconds]
        while one.extend(number):
            limits.append(one.limit(number).seconds)
        assert limits == sorted(set(limits))
        assert limits[-1] == pytest.approx(1000.0)
        assert one.limit(number).why == OUT_OF_MONEY
        assert one.ledger.left_usd == 0

    @pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf])
    def test_budgets_that_are_none(self, budget: float) -> None:
        with pytest.raises(BadInput, match="budget"):
            study(budget_usd=budget)

    def test_a_budget_that_pays_for_no_run_is_refused_before_a_journal_is_begun(self, tmp_path: Path) -> None:
        def price(configuration: dict[str, Any]) -> Price:
            return Price(3.6 * configuration["n"], "2025-01-01", "list", minimum_s=60)

        path = tmp_path / "j.jsonl"
        with pytest.raises(BadInput, match=r"\$0.05 pays for no run.*at least \$0.06"):
            Study(SPACE, GOAL, price, 0.05, journal=path)
        assert not path.exists()
        enough = Study(SPACE, GOAL, price, 0.06, "grid", journal=path)
        assert enough.ask() is not None
        enough.close()

    def test_a_negative_price_is_refused(self) -> None:
        with pytest.raises(BadInput, match=r"price -3\.6"):
            Study(SPACE, GOAL, lambda c: -3.6, 1.0, "grid")


class TestLimits:
    def test_the_time_of_the_goal(self) -> None:
        one = study(budget_usd=1.0)
        number = ask(one)
        one.extend(number)
        limit = one.limit(number)
        assert (limit.seconds, limit.why) == (100.0, TOO_SLOW)

    def test_the_bill_of_the_best(self) -> None:
        one = study(budget_usd=None)
        one.tell(ask(one), time_s=50)
        second, third = ask(one), ask(one)
        assert (one.limit(third).seconds, one.limit(third).why) == (pytest.approx(25.0), NOT_CHEAPER)
        one.tell(second, time_s=20)
        assert one.limit(third).seconds == pytest.approx(10.0)

    def test_without_early_stop_only_money_cuts(self) -> None:
        one = study(budget_usd=1.0, early_stop=False)
        one.tell(ask(one), time_s=5)
        assert one.limit(ask(one)).why == OUT_OF_MONEY


def decisions(facts: list[dict[str, Any]]) -> list[Any]:
    """What a study did: everything but how long it took to think."""
    shown = []
    for fact in facts:
        told = dict(fact.get("trial", {}))
        told.pop("decision_s", None)
        shown.append([{k: v for k, v in fact.items() if k not in ("trial", "decision_s")}, told])
    return shown


def facts_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestResume:
    @pytest.mark.parametrize(
        ("strategy", "parallel"), [("random", 1), ("random", 3), ("lynceus", 1), ("lynceus", 3)]
    )
    def test_killed_after_any_fact_it_goes_on_as_if_nothing_had_happened(
        self, tmp_path: Path, table: Callable[[], TableJob], strategy: str, parallel: int
    ) -> None:
        path = tmp_path / "j.jsonl"

        def run(resume: bool) -> float:
            goal = "minimise cost_usd subject to time_s <= 300 and accuracy >= 0.8"
            return tune(
                table(),
                goal,
                0.3,
                strategy,
                parallel=parallel,
                seed=5,
                journal=path,
                resume=resume,
                max_trials=12,
            ).spent_usd

        spent = run(resume=False)
        whole = path.read_bytes()
        expected = decisions(facts_of(path))
        lines = whole.splitlines(keepends=True)
        cuts = range(1, len(lines)) if strategy == "random" else range(1, len(lines), 5)
        for count in cuts:
            torn = b'{"fact": "told", "tri' if count % 2 else b""
            path.write_bytes(b"".join(lines[:count]) + torn)
            assert run(resume=True) == spent
            assert decisions(facts_of(path)) == expected, f"killed after {count} facts"

    def test_what_was_under_way_keeps_its_number_and_money(self, tmp_path: Path) -> None:
        path = tmp_path / "j.jsonl"
        one = study(journal=path, early_stop=False)
        one.tell(ask(one), time_s=10)
        number = ask(one)
        one.extend(number)
        reserved = one.ledger.reserved_usd
        one.close()
        again = study(journal=path, resume=True, early_stop=False)
        assert (again.spent_usd, len(again.trials)) == (one.spent_usd, 1)
        assert ask(again) == number
        assert again.ledger.reserved_usd == reserved
        again.close()

    def test_a_larger_budget_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "j.jsonl"
        one = study(budget_usd=0.1, journal=path)
        one.tell(ask(one), time_s=100)
        assert one.ask() is None
        one.close()
        again = study(budget_usd=1.0, journal=path, resume=True)
        assert ask(again) == 2
        again.close()

    def test_another_goal_is_another_study(self, tmp_path: Path) -> None:
        study(journal=tmp_path / "j.jsonl").close()
        with pytest.raises(BadInput, match="another study: its seed is 0, here it is 1"):
            study(journal=tmp_path / "j.jsonl", resume=True, seed=1)
        with pytest.raises(BadInput, match="the job has changed"):
            study(journal=tmp_path / "j.jsonl", resume=True, fingerprint="other")
        study(journal=tmp_path / "j.jsonl", resume=True).close()

    def test_lists_in_configurations_survive(self, tmp_path: Path) -> None:
        space = Space.parse({"layers": {"values": [[64, 8], [32]]}, "n": [1, 2]})
        path = tmp_path / "j.jsonl"
        one = Study(space, "minimise cost_usd", lambda c: 3.6, 1.0, "grid", journal=path)
        one.tell(ask(one), time_s=1)
        one.close()
        again = Study(space, "minimise cost_usd", lambda c: 3.6, 1.0, "grid", journal=path, resume=True)
        assert again.trials == one.trials
        again.close()

    def test_facts_that_lack_something_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "j.jsonl"
        one = study(journal=path)
        ask(one)
        one.close()
        facts = facts_of(path)
        del facts[1]["configuration"]
        path.write_text("".join(json.dumps(fact) + "\n" for fact in facts))
        with pytest.raises(BadInput, match="The journal lacks 'configuration'"):
            study(journal=path, resume=True)

    def test_a_trial_can_be_told_again_when_the_disk_was_full(self, tmp_path: Path) -> None:
        one = study(journal=tmp_path / "j.jsonl")
        number = ask(one)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = (tmp_path / "j.jsonl").stat().st_size
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
            with pytest.raises(RunFailed, match="free some disk space"):
                one.tell(number, time_s=10)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert one.spent_usd == 0
        assert one.tell(number, time_s=10).spent_usd == one.spent_usd > 0
        one.close()
        assert [fact["fact"] for fact in facts_of(tmp_path / "j.jsonl")] == ["study", "asked", "told"]


class TestWarmStart:
    def earlier(self) -> tuple[Trial, ...]:
        one = study(budget_usd=None)
        for time_s in (90, 30, 60):
            one.tell(ask(one), time_s=time_s)
        one.tell(ask(one), time_s=10, status=CUT, why="x")
        return one.trials

    def test_knowledge_is_free_and_not_tried_again(self) -> None:
        one = study(warm_start=self.earlier())
        assert (one.spent_usd, one.trials, len(one.known)) == (0.0, (), 4)
        assert one.best is not None
        assert one.best.known
        tried = [trial.configuration for trial in one.known]
        while (asked := one.ask()) is not None:
            assert asked.configuration not in tried
            one.tell(asked.number, time_s=1)

    def test_it_is_judged_by_the_new_goal(self) -> None:
        one = Study(SPACE, "minimise cost_usd subject to time_s <= 40", lambda c: 3.6, 1.0, "grid",
                    warm_start=self.earlier())  # fmt: skip
        assert [trial.feasible for trial in one.known] == [False, True, False, False]

    def test_trials_of_another_space_are_refused(self) -> None:
        stranger = Trial(1, {"m": 1}, FINISHED, 1, 1, 1, {}, True)
        with pytest.raises(BadInput, match='Unknown parameter "m"'):
            study(warm_start=[stranger])

    def test_a_resumed_study_remembers_what_it_was_handed(self, tmp_path: Path) -> None:
        path = tmp_path / "j.jsonl"
        first = study(warm_start=self.earlier(), journal=path)
        first.close()
        again = study(journal=path, resume=True)
        assert again.known == first.known
        again.close()
        with pytest.raises(BadInput, match="other earlier trials"):
            study(warm_start=self.earlier()[:1], journal=path, resume=True)


def test_a_goal_about_nothing_measured_is_refused() -> None:
    with pytest.raises(BadInput, match='"acuracy"'):
        Study(SPACE, Goal.parse("minimise cost_usd subject to acuracy >= 0.5"), lambda c: 1.0, 1.0)


def test_unknown_strategies_and_options_are_refused() -> None:
    with pytest.raises(BadInput, match='Did you mean "lynceus"'):
        study(strategy="lynceos")
    with pytest.raises(BadInput, match='Did you mean "lookahead"'):
        study(strategy="lynceus", options={"look_ahead": 1})
