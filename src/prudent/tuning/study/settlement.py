"""What becomes of a run that ended: a trial with its estimate, and a charge for all that was paid for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prudent.core.ledger import LedgerEntry
from prudent.core.money import ROUNDING_USD, Price
from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.problem import Problem
from prudent.tuning.study import censoring
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, PendingTrial, Progress, Trial

INTERRUPTED = "interrupted"
"""The note of a charge for a run that Ctrl-C, a kill or a crash ended: it was paid and taught nothing."""

HEARTBEAT_S, HEARTBEAT_SHARE = 1.0, 0.01
"""How often it is noted that a run is alive: what a crash leaves unpaid is no more than this."""


def heartbeat_after_s(lasted_s: float) -> float:
    """When to note again that a run is alive that has lasted so long: in a second, or a hundredth of that."""
    return max(HEARTBEAT_S, HEARTBEAT_SHARE * lasted_s)


def charge_of(label: str, price: Price, outcome: Outcome, reserved_usd: float) -> LedgerEntry | None:
    """The charge for a run; None if it could not start and no machine was rented for it.

    Without a bill of somebody else it is by the price: the run, the boot before it and the end after it, as
    long as they took, or as the price says where nobody measured them.
    """
    boot_s, ending_s = outcome.overhead_s or price.boot_s, outcome.ending_s or price.release_s
    lasted_s = outcome.time_s + outcome.overhead_s
    usd = outcome.bill_usd
    if usd is None:
        if not outcome.started or lasted_s == 0:
            return None
        lasted_s = outcome.time_s + boot_s + ending_s
        usd = price.cost_usd(lasted_s)
    if usd == 0 and outcome.time_s == 0:
        return None
    if usd <= reserved_usd + ROUNDING_USD:
        usd = min(usd, reserved_usd)
    return LedgerEntry(label, usd, lasted_s, price, note=outcome.status)


def interrupted_charge(label: str, price: Price, outcome: Outcome) -> LedgerEntry | None:
    """The charge for a run that was ended before its time, by nobody's decision."""
    charge = charge_of(f"{label}, {INTERRUPTED}", price, outcome, 0.0)
    return (
        None
        if charge is None
        else LedgerEntry(charge.label, charge.usd, charge.seconds, price, note=INTERRUPTED)
    )


def interrupted_outcome(seconds: float) -> Outcome:
    """What is known of a run of which nothing is left but its last sign of life."""
    return Outcome(CUT, seconds, why=INTERRUPTED)


def completed(goal: Goal, outcome: Outcome) -> Outcome:
    """The outcome, or a failure where a finished run lacks a measure of the goal."""
    measured = (COST, TIME, *outcome.measures)
    missing = [measure for measure in goal.measures if measure not in measured]
    if outcome.status != FINISHED or not missing:
        return outcome
    return replace(outcome, status=FAILED, why=f"it ended without reporting {missing[0]}")


def progress_after(overhead_s: float, progress: Sequence[Progress]) -> Sequence[Progress]:
    """Progress counted from the end of the set-up; reports of machines that were lost are left out."""
    if overhead_s == 0:
        return progress
    later = (report for report in progress if report.elapsed_s >= overhead_s)
    return [replace(report, elapsed_s=report.elapsed_s - overhead_s) for report in later]


def trial_of(
    problem: Problem, pending: PendingTrial, outcome: Outcome, spent_usd: float, progress: Sequence[Progress]
) -> Trial:
    """The record of a trial that ended."""
    cost_usd = pending.price.cost_usd(outcome.time_s)
    values = {**outcome.measures, TIME: outcome.time_s, COST: cost_usd}
    finished = outcome.status == FINISHED
    feasible = finished and problem.answers(pending.configuration) and problem.goal.feasible(values)
    return Trial(
        pending.number,
        pending.configuration,
        outcome.status,
        outcome.time_s,
        cost_usd,
        spent_usd,
        dict(outcome.measures),
        feasible,
        pending.decision_s,
        outcome.why,
        pending.why,
        _estimate(problem.goal, outcome, progress),
        readings=outcome.readings,
    )


def known_trial(problem: Problem, trial: Trial, number: int) -> Trial:
    """A trial of an earlier study as knowledge for this one: it costs nothing here."""
    configuration = problem.space.check(trial.configuration)
    feasible = trial.finished and problem.answers(configuration) and problem.goal.feasible(trial.values)
    return replace(
        trial, configuration=configuration, number=number, spent_usd=0.0, feasible=feasible, known=True
    )


def _estimate(goal: Goal, outcome: Outcome, progress: Sequence[Progress]) -> dict[str, float]:
    """What progress tells: the likely full time of a cut run; of a finished one, how far off."""
    if not progress:
        return {}
    if outcome.status == CUT:
        time_s = censoring.estimate_time_s(goal, progress, outcome.time_s)
        return {} if time_s is None else {"time_s": time_s}
    if outcome.status == FINISHED:
        error = censoring.hindsight(goal, progress, outcome.time_s)
        return {} if error is None else {"log_error": error}
    return {}
