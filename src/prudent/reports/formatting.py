"""Numbers and values as people read them: a measure's name tells its unit."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prudent.core.units import format_duration, format_money, format_size

if TYPE_CHECKING:
    from prudent.training.leaderboard import Leaderboard
    from prudent.tuning.result import Result

COST, TIME = "cost_usd", "time_s"
UNKNOWN = "–"
"""In the place of a value that is not known."""
_LABELS = {COST: "cost", TIME: "time"}


def label(measure: str) -> str:
    """A measure in words: its name without the unit, which the number shows.

    >>> label("cost_usd"), label("accuracy"), label("warm_up_s"), label("network_mb_s")
    ('cost', 'accuracy', 'warm up', 'network')
    """
    for suffix in ("_usd", "_mb", "_mb_s", *(() if _is_rate(measure) else ("_s",))):
        if measure.endswith(suffix):
            measure = measure.removesuffix(suffix)
            break
    return _LABELS.get(measure, measure.replace("_", " "))


def amount(measure: str, value: float | None) -> str:
    """A measured number with its unit.

    >>> amount("cost_usd", 0.00234), amount("time_s", 90), amount("accuracy", 0.97123), amount("loss", None)
    ('$0.00234', '1 min 30 s', '0.9712', '–')
    >>> amount("network_mb_s", 1500), amount("sent_kb_s", 1500)
    ('1.5 GB/s', '1500')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if measure.endswith("_usd"):
        return format_money(value)
    if _is_rate(measure):
        return f"{format_size(value)}/s" if measure.endswith("_mb_s") else f"{value:.4g}"
    if measure.endswith("_s"):
        return format_duration(value)
    return format_size(value) if measure.endswith("_mb") else f"{value:.4g}"


def _is_rate(measure: str) -> bool:
    """Whether a name that ends in `_s` means so much in a second, and not seconds."""
    return measure.lower().endswith(("b_s", "_per_s"))


def between(measure: str, low: float, high: float) -> str:
    """The ends of an interval.

    >>> between("cost_usd", 0.02, 0.085)
    '$0.02 to $0.085'
    """
    return f"{amount(measure, low)} to {amount(measure, high)}"


def off(measure: str, error: float, predicted: float) -> str:
    """How far off a prediction was: money, times and sizes in parts of it, others in their own unit.

    >>> off("cost_usd", 0.01, 0.05), off("accuracy", -0.02, 0.9), off("accuracy", 0.0, 0.9)
    ('20 % above', '0.02 below', 'exactly that')
    """
    if error == 0:
        return "exactly that"
    where = "above" if error > 0 else "below"
    if measure.endswith(("_usd", "_s", "_mb")) and predicted > 0:
        part = abs(error) / predicted
        return f"{part:.2g} times {where}" if part > 1 else f"{100 * part:.2g} % {where}"
    return f"{abs(error):.2g} {where}"


def value(said: Any) -> str:
    """A parameter's value: text as it is, numbers short, yes and no and nothing as JSON writes them.

    >>> value("m5.large"), value(0.30000000000000004), value(True), value((64, 0.123456, "relu"))
    ('m5.large', '0.3', 'true', '[64, 0.1235, relu]')
    """
    if isinstance(said, str):
        return said
    if isinstance(said, float):
        return f"{said:.4g}"
    if isinstance(said, (list, tuple)):
        return "[" + ", ".join(value(part) for part in said) + "]"
    if said is None or isinstance(said, (bool, Mapping)):
        return json.dumps(said, ensure_ascii=False, default=str)
    return str(said)


def settings(configuration: Mapping[str, Any]) -> str:
    """A configuration as a command line would have it.

    >>> settings({"workers": 4, "rate": 0.01})
    'workers=4 rate=0.01'
    """
    return " ".join(f"{name}={value(said)}" for name, said in configuration.items())


def share(part: float) -> str:
    """A part of a whole, as precise as it is worth.

    >>> share(0.4321), share(0.0004), share(0.99999), share(0)
    ('43 %', 'under 0.1 %', 'over 99.9 %', '0 %')
    """
    if 0 < part < 0.001:
        return "under 0.1 %"
    if 0.999 < part < 1:
        return "over 99.9 %"
    digits = 1 if 0 < part < 0.1 or 0.9 < part < 1 else 0
    return f"{100 * part:.{digits}f} %"


def times(factor: float) -> str:
    """How many times as much.

    >>> times(3.456), times(12.3), times(150.4)
    ('3.5 times', '12 times', '150 times')
    """
    return f"{factor:.1f} times" if factor < 9.95 else f"{factor:.0f} times"


def sentence(configuration: Mapping[str, Any]) -> str:
    """A configuration in one line.

    >>> sentence({"vm": "m5.large", "workers": 4})
    'vm m5.large, workers 4'
    """
    return ", ".join(f"{name} {value(said)}" for name, said in configuration.items())


def counts(numbers: Iterable[int]) -> dict[int, int]:
    """The count of each trial, from 1 without holes, by its number in the journal.

    A number is used up by a run that could not start or was interrupted; people count what there is.

    >>> counts([7, 2, 3])
    {2: 1, 3: 2, 7: 3}
    """
    return {number: count for count, number in enumerate(sorted(set(numbers)), start=1)}


def counted_trials(result: Result) -> Result:
    """A result as people read it: its trials are numbered by their count."""
    count = counts(trial.number for trial in result.trials)
    trials = {trial.number: replace(trial, number=count[trial.number]) for trial in result.trials}
    best, nearest = (
        trial if trial is None else trials.get(trial.number, trial) for trial in (result.best, result.nearest)
    )
    return replace(result, trials=tuple(trials[t.number] for t in result.trials), best=best, nearest=nearest)


def counted_models(board: Leaderboard) -> Leaderboard:
    """A leaderboard as people read it: its trials are numbered by their count."""
    numbers = [*(entry.trial for entry in board.entries), *(failure.trial for failure in board.failures)]
    count = counts(numbers)
    return replace(
        board,
        entries=tuple(replace(entry, trial=count[entry.trial]) for entry in board.entries),
        failures=tuple(replace(failure, trial=count[failure.trial]) for failure in board.failures),
    )
