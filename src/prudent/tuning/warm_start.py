"""Trials of earlier studies, as knowledge for a new one."""

from __future__ import annotations

from pathlib import Path

from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput
from prudent.core.space import Space
from prudent.tuning.journal import read_facts
from prudent.tuning.trial import FAILED, Trial


def earlier_trials(path: str | Path, space: Space) -> list[Trial]:
    """What the study with this journal found out; refused if its configurations are not of this space.

    Runs that could not start tell nothing about the job and are left out.
    """
    path = Path(path)
    with KeyPath(str(path)):
        try:
            told = [Trial.from_dict(fact["trial"]) for fact in read_facts(path) if fact.get("fact") == "told"]
        except (KeyError, TypeError) as error:
            raise BadInput(f"A trial lacks {error}; restore the file from a copy.") from error
        trials = [trial for trial in told if trial.status != FAILED or trial.time_s > 0]
        for trial in trials:
            space.check(trial.configuration)
        if not trials:
            raise BadInput("This study has no trial that ended; there is nothing to learn from it.")
        return trials
