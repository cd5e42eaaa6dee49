"""Run what was recommended once, and see how far the prediction was off.

A strategy that learns on parts of the data recommends what it never ran. One paid run turns the prediction
into a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.ledger import LedgerEntry
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.units import format_money
from prudent.tuning.goal import COST
from prudent.tuning.jobs.job import BilledJob, GracefulRun, Job, RentingJob
from prudent.tuning.result import Result
from prudent.tuning.strategies.strategy import prediction_key
from prudent.tuning.study.active_trials import (
    ActiveTrial,
    ActiveTrials,
    LimitReached,
    LiveTrials,
    ReplayedTrials,
)
from prudent.tuning.study.limits import OUT_OF_MONEY, Limit, ShutdownMargin
from prudent.tuning.study.runner import interrupt_later
from prudent.tuning.study.settlement import INTERRUPTED, charge_of, completed, heartbeat_after_s
from prudent.tuning.trial import FINISHED, Configuration, Outcome, Trial

AROUND_S = 30.0
CONFIRMING = 0
"""The number of a confirming run, for its logs: a study numbers its own from 1, and may yet go on."""

HeartbeatCallback = Callable[[float], None]
"""Told how long a confirming run has lasted: before it begins, while it runs, and when it was interrupted."""


@dataclass(frozen=True)
class Confirmation:
    """What the recommended configuration did, beside what was predicted.

    `errors` are measured minus predicted, by measure; `within` says whether the measured value lies between
    the prediction's low and high. `charge` is None where the configuration had been run already and nothing
    was paid. `over_usd` is what it cost beyond the money it had: something did not end in time.
    """

    trial: Trial
    prediction: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    within: dict[str, bool] = field(default_factory=dict)
    charge: LedgerEntry | None = None
    over_usd: float = 0.0

    @property
    def spent_usd(self) -> float:
        return self.charge.usd if self.charge else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        return {
            "trial": self.trial.to_dict(),
            "prediction": self.prediction,
            "errors": self.errors,
            "within": self.within,
            "spent_usd": self.spent_usd,
            "over_usd": self.over_usd,
        }


def confirm(
    job: Job, result: Result, budget_usd: float | None = None, sign: HeartbeatCallback | None = None
) -> Confirmation:
    """Run the recommendation of a result once, with at most `budget_usd` (else `allowance_usd`).

    The money is beside the study's own budget. Refuses where it cannot pay for the run as predicted. A run
    that turns out dearer is cut when the money is gone. A recommendation that the study ran in full itself
    costs nothing more. Whoever keeps the books learns by `sign` what a run has cost that is interrupted.
    """
    if result.recommended is None:
        raise BadInput("There is no recommendation to confirm; tune with a larger budget first.")
    configuration = job.space.check(result.recommended)
    ran = earlier_run(job, result)
    if ran is not None:
        return confirmation_of(ran, result)
    left = allowance_usd(job, result) if budget_usd is None else budget_usd
    _check_money(job, result, configuration, left)
    price = job.price(configuration)
    outcome = completed(result.goal, _billed(job, configuration, left, sign or _unheard))
    outcome = replace(outcome, time_s=max(0.0, outcome.time_s - outcome.overhead_s))
    cost_usd = price.cost_usd(outcome.time_s) if outcome.started else 0.0
    charge = charge_of("confirmation", price, outcome, left) or LedgerEntry("confirmation", 0.0, 0.0, price)
    values = {**outcome.measures, "time_s": outcome.time_s, "cost_usd": cost_usd}
    feasible = outcome.status == FINISHED and result.goal.feasible(values)
    trial = Trial(
        CONFIRMING,
        configuration,
        outcome.status,
        outcome.time_s,
        cost_usd,
        charge.usd,
        dict(outcome.measures),
        feasible,
        why=outcome.why,
        chosen="confirms the recommendation",
        readings=outcome.readings,
    )
    return replace(confirmation_of(trial, result, charge), over_usd=beyond_usd(charge.usd, left))


def beyond_usd(spent_usd: float, allowed_usd: float | None) -> float:
    """By how much more was paid than allowed (None: without end)."""
    over_usd = spent_usd - (math.inf if allowed_usd is None else allowed_usd)
    return over_usd if over_usd > ROUNDING_USD else 0.0


def earlier_run(job: Job, result: Result) -> Trial | None:
    """The finished run of the recommendation within the study itself, or before it."""
    if result.recommended is None:
        return None
    key = job.space.key(result.recommended)
    ran = (trial for trial in (*result.trials, *result.known) if trial.finished)
    return next((trial for trial in ran if job.space.key(trial.configuration) == key), None)


def allowance_usd(job: Job, result: Result) -> float:
    """The most that a confirming run may cost where nobody said: twice the upper end of its predicted cost.

    Half a minute comes on top, for its start and end: a short run on a busy computer is not cut for those.
    Without a prediction it is what the study left over.
    """
    upper = result.prediction.get(prediction_key(COST, "high"))
    if upper is not None and result.recommended is not None:
        around_s = 0.0 if job.virtual else AROUND_S
        price = job.price(job.space.check(result.recommended))
        return 2.0 * float(upper) + price.usd_per_h * around_s / 3600.0
    return math.inf if result.budget_usd is None else max(result.budget_usd - result.spent_usd, 0.0)


def _check_money(job: Job, result: Result, configuration: Configuration, left: float) -> None:
    price = job.price(configuration)
    expected = max(float(result.prediction.get(COST, 0.0)), price.least_usd)
    if left <= 0 or expected > left:
        wanted = format_money(expected) if expected > 0 else "money"
        raise BadInput(
            f"Confirming the recommendation takes about {wanted}, but {format_money(left)} is left; "
            "raise the budget of the confirmation, or tune with less."
        )


def _billed(job: Job, configuration: Configuration, left_usd: float, sign: HeartbeatCallback) -> Outcome:
    """Run it; machines are given back, and their bill is known to the last second."""
    if not isinstance(job, BilledJob):
        return _run(job, configuration, left_usd, sign)
    earlier_usd = job.confirming_usd()
    outcome = _run(job, configuration, left_usd, sign)
    return replace(outcome, bill_usd=job.confirming_usd() - earlier_usd)


def _run(job: Job, configuration: Configuration, left_usd: float, sign: HeartbeatCallback) -> Outcome:
    """Run it while the money lasts, with room for its end."""
    crew: ActiveTrials = ReplayedTrials() if job.virtual else LiveTrials()
    price = job.price(configuration)
    sign(0.0)
    try:
        with interrupt_later():  # a run that is begun is one that will be ended
            crew.add(CONFIRMING, job.start(dict(configuration), CONFIRMING), 0.0, price)
        return _followed(job, crew, price, left_usd, sign)
    except BaseException:
        if CONFIRMING in crew.members:
            _interrupt(crew.members[CONFIRMING], sign)
        raise
    finally:
        if isinstance(job, RentingJob):
            job.release()


def _followed(
    job: Job, crew: ActiveTrials, price: Price, left_usd: float, sign: HeartbeatCallback
) -> Outcome:
    """Wait for its end, or cut it when what it is paid for is over but for the time its end takes."""
    endings, member, paid_s = ShutdownMargin(), crew.members[CONFIRMING], price.lasts_s(left_usd)
    room_s = 0.0
    if not job.virtual:
        room_s = endings.noticing_s if member.rented else endings.room_s(member.run, paid_s)

    def limit_of(_: int) -> Limit:
        # Rented machines know how long money lasts, boot and give-back included.
        lasts_s = member.rented.lasts_s(left_usd) if member.rented else paid_s
        return Limit(max(lasts_s - room_s, 0.0), OUT_OF_MONEY)

    sign_s = math.inf if job.virtual else heartbeat_after_s(0.0)
    while True:
        happened = crew.wait(limit_of, sign_s)
        if crew.now_s >= sign_s:
            sign(member.lasted_s)
            sign_s = crew.now_s + heartbeat_after_s(member.lasted_s)
        event = None if happened is None else happened[1]
        if isinstance(event, Outcome):
            return event
        if isinstance(event, LimitReached):
            if isinstance(member.run, GracefulRun):
                member.run.grace_s = endings.grace_s(member.run, paid_s)
            return member.run.cut(event.limit.seconds, event.limit.why)


def _interrupt(member: ActiveTrial, sign: HeartbeatCallback) -> None:
    """End it, and tell how long it lasted; that much is told also where it would not end."""
    lasted_s = member.lasted_s
    try:
        outcome = member.run.cut(lasted_s, INTERRUPTED)
        lasted_s = outcome.time_s + outcome.ending_s
    finally:
        sign(lasted_s)


def _unheard(lasted_s: float) -> None:
    del lasted_s


def confirmation_of(trial: Trial, result: Result, charge: LedgerEntry | None = None) -> Confirmation:
    """Set a finished run beside its prediction; a cut one is compared by nothing, it has no final values."""
    foretold = result.prediction
    measured = trial.values if trial.finished else {}
    errors = {name: value - float(foretold[name]) for name, value in measured.items() if name in foretold}
    within = {}
    for name in errors:
        low, high = (foretold.get(prediction_key(name, word)) for word in ("low", "high"))
        if low is not None and high is not None:
            within[name] = float(low) <= measured[name] <= float(high)
    return Confirmation(trial, dict(foretold), errors, within, charge)
