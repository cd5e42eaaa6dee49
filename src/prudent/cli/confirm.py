"""`prudent tune --confirm`: run the recommendation once, and say how far its prediction was off."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from prudent.cli.console import out, say
from prudent.cli.display.study import row
from prudent.cli.exits import ended_by_signals
from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput, PrudentError
from prudent.core.units import USD, format_money, parse_in
from prudent.reports import formatting
from prudent.tuning.confirm import (
    CONFIRMING,
    Confirmation,
    allowance_usd,
    beyond_usd,
    confirm,
    confirmation_of,
    earlier_run,
)
from prudent.tuning.confirmation_file import ConfirmationFile, ConfirmationRun
from prudent.tuning.goal import COST, TIME
from prudent.tuning.jobs.job import Job, ReapableJob
from prudent.tuning.journal import study_lock
from prudent.tuning.result import Result, untested_recommendation
from prudent.tuning.strategies.strategy import prediction_key
from prudent.tuning.trial import CUT

if TYPE_CHECKING:
    from rich.console import RenderableType

    from prudent.cli.report import StudyFiles


@dataclass(frozen=True)
class ConfirmationOutcome:
    """What became of a confirmation.

    `earlier` says that an earlier call paid for it; `why_not` is a sentence where nothing was confirmed.
    `interrupted_usd` was paid for runs of the recommendation that were interrupted; `over_usd` was paid for
    all of them beyond the money there was for it.
    """

    confirmation: Confirmation | None = None
    earlier: bool = False
    why_not: str = ""
    interrupted: bool = False
    interrupted_usd: float = 0.0
    over_usd: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether there is a run of the recommendation that came to its end."""
        return self.confirmation is not None and self.confirmation.trial.finished

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        told = self.confirmation.to_dict() if self.confirmation else {"trial": None, "spent_usd": 0.0}
        more = {"earlier": self.earlier, "why_not": self.why_not, "interrupted_usd": self.interrupted_usd}
        return {**told, **more, "over_usd": self.over_usd}


def confirm_budget(said: str | None, confirming: bool) -> float | None:
    """The money that `--confirm-budget` allows; it is checked before a study is paid for."""
    if said is None:
        return None
    with KeyPath("--confirm-budget"):
        if not confirming:
            raise BadInput("It is for a run that confirms the recommendation; add --confirm.")
        usd = parse_in(said, USD)
        if usd <= 0:
            raise BadInput(f"The budget is {said}; give an amount above 0, such as $0.2.")
        return usd


def run_confirmation(
    job: Job, result: Result, places: StudyFiles, budget_usd: float | None, quiet: bool
) -> ConfirmationOutcome:
    """Confirm the recommendation of a study that just ended; what an earlier call paid for is not paid again.

    A run that failed is tried again, and one that was cut if there is more money now. Ctrl-C ends the run;
    the time it had is charged, as in a study.
    """
    if result.interrupted:
        return ConfirmationOutcome(
            why_not="Not confirmed: the study was interrupted; continue with --resume --confirm."
        )
    recommended = untested_recommendation(result)
    if recommended is not None and not recommended.likely:
        return ConfirmationOutcome(
            why_not="Not confirmed: nothing is expected to keep every constraint, so a run would only cost "
            "money; loosen the goal first."
        )
    try:
        if result.recommended is None or earlier_run(job, result) is not None:
            return ConfirmationOutcome(confirm(job, result))
        with ended_by_signals(), study_lock(places.journal):
            return _settled(job, result, places.confirmation, budget_usd, quiet)
    except KeyboardInterrupt:
        return _interrupted(job, result, places.confirmation)
    except PrudentError as error:
        return ConfirmationOutcome(why_not=f"Not confirmed: {error}")


def charge_killed(job: Job, places: StudyFiles) -> float:
    """Charge the confirming run of a call that was killed, before anything else is paid; answers how much."""
    if not places.confirmation.exists():
        return 0.0
    outlived_s = job.outlived_s.get(CONFIRMING, 0.0) if isinstance(job, ReapableJob) else 0.0
    with study_lock(places.journal):
        return ConfirmationFile(places.confirmation, job.space).charge_interrupted(job, outlived_s)


def earlier_confirmation(job: Job, result: Result, path: Path) -> ConfirmationOutcome | None:
    """The confirmation that an earlier call paid for, if it is of what is recommended now."""
    if result.recommended is None or earlier_run(job, result) is not None:
        return None
    file = ConfirmationFile(path, job.space)
    found = file.find(job.fingerprint(), result.recommended)
    if found is None or found.trial is None or not found.trial.finished:
        return None
    return _again(found, result, file.interrupted_usd(job.fingerprint(), result.recommended))


def _settled(
    job: Job, result: Result, path: Path, budget_usd: float | None, quiet: bool
) -> ConfirmationOutcome:
    """The confirmation in the file, else a new one, which is in the file from its first second.

    What runs of it have cost that were interrupted comes off its money: however often it begins, it costs no
    more than was allowed.
    """
    assert result.recommended is not None
    most_usd = allowance_usd(job, result) if budget_usd is None else budget_usd
    file, name, configuration = ConfirmationFile(path, job.space), job.fingerprint(), result.recommended
    found, lost_usd = file.find(name, configuration), file.interrupted_usd(name, configuration)
    if found is not None and found.settles(most_usd):
        return _again(found, result, lost_usd)
    if not quiet:
        say(out(), "", *_announced(result, most_usd, lost_usd))
    price = job.price(job.space.check(configuration))
    begun = ConfirmationRun(name, configuration, price, most_usd if math.isfinite(most_usd) else None)

    def sign(lasted_s: float) -> None:
        file.keep(replace(begun, lasted_s=lasted_s))

    try:
        confirmation = confirm(job, result, most_usd - lost_usd, sign)
        file.keep(replace(begun, trial=confirmation.trial, charge=confirmation.charge))
    except BadInput as error:
        over_usd = beyond_usd(lost_usd, most_usd)
        return ConfirmationOutcome(
            why_not=f"Not confirmed: {error}", interrupted_usd=lost_usd, over_usd=over_usd
        )
    finally:
        file.charge_interrupted(job)
    return ConfirmationOutcome(confirmation, interrupted_usd=lost_usd, over_usd=confirmation.over_usd)


def _interrupted(job: Job, result: Result, path: Path) -> ConfirmationOutcome:
    assert result.recommended is not None
    paid_usd = ConfirmationFile(path, job.space).interrupted_usd(job.fingerprint(), result.recommended)
    why_not = (
        f"Interrupted. The confirming run has been stopped, and the time it had is charged "
        f"({format_money(paid_usd)} so far). It starts again from its beginning with --resume --confirm."
    )
    return ConfirmationOutcome(why_not=why_not, interrupted=True, interrupted_usd=paid_usd)


def _again(found: ConfirmationRun, result: Result, lost_usd: float) -> ConfirmationOutcome:
    """An earlier run beside what is predicted now; another goal may judge it otherwise."""
    assert found.trial is not None
    feasible = found.trial.finished and result.goal.feasible(found.trial.values)
    again = confirmation_of(replace(found.trial, feasible=feasible), result, found.charge)
    over_usd = beyond_usd(found.spent_usd + lost_usd, found.most_usd)
    return ConfirmationOutcome(again, earlier=True, interrupted_usd=lost_usd, over_usd=over_usd)


def _announced(result: Result, most_usd: float, lost_usd: float) -> Iterator[RenderableType]:
    predicted = result.prediction.get(COST)
    about = f"for about {format_money(float(predicted))}, " if predicted is not None else ""
    most = f"at most {format_money(most_usd)}" if math.isfinite(most_usd) else "whatever it costs"
    yield row("Confirming", f"Runs the recommendation once, {about}{most}, beside the study's budget.")
    if lost_usd:
        yield row(
            "", f"It was interrupted before: {format_money(lost_usd)} of that is spent; it starts again."
        )


def confirmation_lines(done: ConfirmationOutcome, result: Result) -> Iterator[RenderableType]:
    """What was measured beside what was predicted, a line for each measure; or why nothing was."""
    yield from _told(done, result)
    if done.over_usd:
        over = f"{format_money(done.over_usd)} more than it was allowed to cost"
        yield row("", Text(f"{over}: something did not end in time.", style="yellow"))


def _told(done: ConfirmationOutcome, result: Result) -> Iterator[RenderableType]:
    if done.confirmation is None:
        yield row("Confirmation", Text(done.why_not, style="yellow"))
        return
    confirmation, trial = done.confirmation, done.confirmation.trial
    if not trial.finished:
        yield row("Confirmation", Text(_failure(done), style="yellow"))
        return
    yield row("Confirmed", _verdict(confirmation, result))
    for measure in _shown(confirmation, result):
        yield row("", _line(confirmation, measure))
    yield row("", Text(_paid(done), style="dim"))


def _shown(confirmation: Confirmation, result: Result) -> list[str]:
    """The measures of the goal first, then cost and time, then what else was reported."""
    values = confirmation.trial.values
    return [name for name in dict.fromkeys([*result.goal.measures, COST, TIME, *values]) if name in values]


def _verdict(confirmation: Confirmation, result: Result) -> Text:
    broken = [
        str(c) for c in result.goal.constraints if not c.holds(confirmation.trial.values.get(c.measure))
    ]
    if broken:
        return Text(
            f"It breaks {' and '.join(broken)}: go on with a larger --budget, or loosen the goal.",
            style="yellow",
        )
    return Text("It keeps every constraint." if result.goal.constraints else "It ran to its end.", "green")


def _line(confirmation: Confirmation, measure: str) -> Text:
    """`accuracy 0.96 measured, 0.95 predicted (0.94 to 0.97): 0.01 above, in range`."""
    value, foretold = confirmation.trial.values[measure], confirmation.prediction
    line = Text(f"{measure} {formatting.amount(measure, value)} measured")
    if measure not in confirmation.errors:
        return line
    line.append(f", {formatting.amount(measure, float(foretold[measure]))} predicted")
    if measure in confirmation.within:
        low, high = (float(foretold[prediction_key(measure, word)]) for word in ("low", "high"))
        line.append(f" ({formatting.amount(measure, low)} to {formatting.amount(measure, high)})")
    line.append(f": {formatting.off(measure, confirmation.errors[measure], float(foretold[measure]))}")
    if measure in confirmation.within:
        inside = confirmation.within[measure]
        line.append(", in range" if inside else ", out of range", "" if inside else "yellow")
    return line


def _paid(done: ConfirmationOutcome) -> str:
    assert done.confirmation is not None
    if done.confirmation.charge is None:
        return "The study had run it already: nothing was paid for this."
    spent = format_money(done.confirmation.spent_usd)
    lost = format_money(done.interrupted_usd)
    more = f" {lost} more went to runs of it that were interrupted." if done.interrupted_usd else ""
    return (
        f"{spent} was paid for it earlier, nothing now.{more}"
        if done.earlier
        else f"{spent} paid for it.{more}"
    )


def _failure(done: ConfirmationOutcome) -> str:
    assert done.confirmation is not None
    trial, spent = done.confirmation.trial, format_money(done.confirmation.spent_usd)
    when = ", in an earlier call" if done.earlier else ""
    if trial.status == CUT:
        return (
            f"The confirming run was cut after {spent}{when}: {trial.why}; allow it more with "
            "--resume --confirm --confirm-budget."
        )
    return (
        f"The confirming run failed: {trial.why.rstrip('.')}; {spent} was paid{when}. Fix the job, then try "
        "again with --resume --confirm."
    )
