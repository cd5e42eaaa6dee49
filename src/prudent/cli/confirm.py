"""`prudent tune --confirm`: run the recommendation once, and say how far its prediction was off."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from prudent.cli.answer import row
from prudent.cli.console import measure_text, out, say
from prudent.cli.interrupt import ended_by_signals
from prudent.cli.places import Places
from prudent.core.errors import BadInput, PrudentError
from prudent.core.key_path import KeyPath
from prudent.core.units import USD, format_money, parse_in
from prudent.reports.words import off
from prudent.tuning.confirm import Confirmation, allowance_usd, compared, confirm, known
from prudent.tuning.confirmations import Confirmations, Confirming
from prudent.tuning.goal import COST, TIME
from prudent.tuning.jobs.job import Job
from prudent.tuning.journal import held
from prudent.tuning.recommendation import untested
from prudent.tuning.result import Result
from prudent.tuning.strategies.strategy import with_word
from prudent.tuning.trial import CUT

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Confirmed:
    """What became of a confirmation.

    `earlier` says that an earlier call paid for it; `why_not` is a sentence where nothing was confirmed.
    """

    confirmation: Confirmation | None = None
    earlier: bool = False
    why_not: str = ""
    interrupted: bool = False

    @property
    def ended(self) -> bool:
        """Whether there is a run of the recommendation that came to its end."""
        return self.confirmation is not None and self.confirmation.trial.finished

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        told = self.confirmation.to_dict() if self.confirmation else {"trial": None, "spent_usd": 0.0}
        return {**told, "earlier": self.earlier, "why_not": self.why_not}


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


def confirmed(job: Job, result: Result, places: Places, budget_usd: float | None, quiet: bool) -> Confirmed:
    """Confirm the recommendation of a study that just ended; what an earlier call paid for is not paid again.

    A run that failed is tried again, and one that was cut if there is more money now. Ctrl-C ends the run
    without a charge, as it does in a study.
    """
    if result.interrupted:
        return Confirmed(why_not="Not confirmed: the study was interrupted; go on with --resume --confirm.")
    recommended = untested(result)
    if recommended is not None and not recommended.likely:
        return Confirmed(
            why_not="Not confirmed: nothing is expected to keep every constraint, so a run would only cost "
            "money; loosen the goal first."
        )
    try:
        if result.recommended is None or known(job, result) is not None:
            return Confirmed(confirm(job, result))
        with ended_by_signals(), held(places.journal):
            return _settled(job, result, places.confirmation, budget_usd, quiet)
    except KeyboardInterrupt:
        return Confirmed(
            why_not="Interrupted. The confirming run has been stopped: it is not charged, and starts again "
            "from its beginning with --resume --confirm.",
            interrupted=True,
        )
    except PrudentError as error:
        return Confirmed(why_not=f"Not confirmed: {error}")


def kept(job: Job, result: Result, path: Path) -> Confirmed | None:
    """The confirmation that an earlier call paid for, if it is of what is recommended now."""
    if result.recommended is None or known(job, result) is not None:
        return None
    found = Confirmations(path, job.space).find(job.fingerprint(), result.recommended)
    if found is None or found.trial is None or not found.trial.finished:
        return None
    return _again(found, result)


def _settled(job: Job, result: Result, path: Path, budget_usd: float | None, quiet: bool) -> Confirmed:
    """The confirmation in the file, else a new one, which is in the file from its first second."""
    assert result.recommended is not None
    most_usd = allowance_usd(job, result) if budget_usd is None else budget_usd
    file = Confirmations(path, job.space)
    found = file.find(job.fingerprint(), result.recommended)
    if found is not None and found.settles(most_usd):
        return _again(found, result)
    begun = Confirming(job.fingerprint(), result.recommended, most_usd if math.isfinite(most_usd) else None)
    if not quiet:
        say(out(), "", *_announced(result, most_usd, unfinished=found is not None and found.trial is None))
    file.keep(begun)
    confirmation = confirm(job, result, most_usd)
    file.keep(replace(begun, trial=confirmation.trial, charge=confirmation.charge))
    return Confirmed(confirmation)


def _again(found: Confirming, result: Result) -> Confirmed:
    """An earlier run beside what is predicted now; another goal may judge it otherwise."""
    assert found.trial is not None
    feasible = found.trial.finished and result.goal.feasible(found.trial.values)
    return Confirmed(compared(replace(found.trial, feasible=feasible), result, found.charge), earlier=True)


def _announced(result: Result, most_usd: float, unfinished: bool) -> Iterator[RenderableType]:
    predicted = result.prediction.get(COST)
    about = f"for about {format_money(float(predicted))}, " if predicted is not None else ""
    most = f"at most {format_money(most_usd)}" if math.isfinite(most_usd) else "whatever it costs"
    again = "It was begun before and never ended; it starts again. " if unfinished else ""
    yield row("Confirming", f"{again}Runs the recommendation once, {about}{most}, beside the study's budget.")


def told(done: Confirmed, result: Result) -> Iterator[RenderableType]:
    """What was measured beside what was predicted, a line for each measure; or why nothing was."""
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
    line = Text(f"{measure} {measure_text(measure, value)} measured")
    if measure not in confirmation.errors:
        return line
    line.append(f", {measure_text(measure, float(foretold[measure]))} predicted")
    if measure in confirmation.within:
        low, high = (float(foretold[with_word(measure, word)]) for word in ("low", "high"))
        line.append(f" ({measure_text(measure, low)} to {measure_text(measure, high)})")
    line.append(f": {off(measure, confirmation.errors[measure], float(foretold[measure]))}")
    if measure in confirmation.within:
        inside = confirmation.within[measure]
        line.append(", in range" if inside else ", out of range", "" if inside else "yellow")
    return line


def _paid(done: Confirmed) -> str:
    assert done.confirmation is not None
    if done.confirmation.charge is None:
        return "The study had run it already: nothing was paid for this."
    spent = format_money(done.confirmation.spent_usd)
    return f"{spent} was paid for it earlier, nothing now." if done.earlier else f"{spent} paid for it."


def _failure(done: Confirmed) -> str:
    assert done.confirmation is not None
    trial, spent = done.confirmation.trial, format_money(done.confirmation.spent_usd)
    when = ", in an earlier call" if done.earlier else ""
    if trial.status == CUT:
        return (
            f"The confirming run was cut after {spent}{when}: {trial.why}; allow it more with "
            "--resume --confirm --confirm-budget."
        )
    return (
        f"The confirming run failed: {trial.why.rstrip('.')}; {spent} was paid{when}. Mend the job, then try "
        "again with --resume --confirm."
    )
