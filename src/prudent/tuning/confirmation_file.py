"""The confirming runs of a study, kept in a file: what was paid once is never paid again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput, PrudentError, RunFailed
from prudent.core.files import write_whole
from prudent.core.ledger import LedgerEntry
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.jobs.job import BilledJob, Job
from prudent.tuning.study.settlement import interrupted_charge, interrupted_outcome
from prudent.tuning.trial import FAILED, Configuration, Trial

FORMAT = 1


@dataclass(frozen=True)
class ConfirmationRun:
    """One confirming run: of which job, at which price, with how much money (None: without end), and its end.

    `trial` is None from its beginning to its end; it stays so where it was interrupted, and `charge` is then
    what it had cost. While there is neither, `lasted_s` is its last sign of life.
    """

    job: str
    configuration: Configuration
    price: Price
    most_usd: float | None = None
    trial: Trial | None = None
    charge: LedgerEntry | None = None
    lasted_s: float = 0.0

    @property
    def spent_usd(self) -> float:
        return self.charge.usd if self.charge else 0.0

    @property
    def open(self) -> bool:
        """Whether it is under way, or was when its process was killed."""
        return self.trial is None and self.charge is None

    def settles(self, most_usd: float) -> bool:
        """Whether running again with at most so much money could tell nothing more.

        A finished run has told everything. One that was cut tells more if there is more money than then; one
        that failed, or never came to its end, tells nothing yet.
        """
        if self.trial is None or self.trial.status == FAILED:
            return False
        return self.trial.finished or self.most_usd is None or most_usd <= self.most_usd

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "configuration": dict(self.configuration),
            "price": self.price.to_dict(),
            "most_usd": self.most_usd,
            "trial": self.trial.to_dict() if self.trial else None,
            "charge": self.charge.to_dict() if self.charge else None,
            "lasted_s": self.lasted_s,
        }

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> ConfirmationRun:
        trial, charge = said["trial"], said["charge"]
        return cls(
            said["job"],
            said["configuration"],
            Price.from_dict(said["price"]),
            said["most_usd"],
            None if trial is None else Trial.from_dict(trial),
            None if charge is None else LedgerEntry.from_dict(charge),
            float(said["lasted_s"]),
        )


class ConfirmationFile:
    """The file `confirmation.json` of a study: every confirming run that was begun."""

    def __init__(self, path: Path, space: Space) -> None:
        self.path, self._space = path, space

    def find(self, job: str, configuration: Configuration) -> ConfirmationRun | None:
        """The run of a configuration of this very job that tells most: a finished one, else the last."""
        key = self._space.key(configuration)
        found = [kept for kept in self._read() if self._is(kept, job, key)]
        told = [kept for kept in found if kept.trial is not None and kept.trial.finished]
        return next(reversed(told or found), None)

    @property
    def spent_usd(self) -> float:
        """What all of them have cost, those that were interrupted included."""
        return math.fsum(kept.spent_usd for kept in self._read())

    def interrupted_usd(self, job: str, configuration: Configuration) -> float:
        """What runs of a configuration of this very job have cost that were interrupted."""
        key = self._space.key(configuration)
        return math.fsum(k.spent_usd for k in self._read() if k.trial is None and self._is(k, job, key))

    def keep(self, confirming: ConfirmationRun) -> None:
        """Write down how the run under way stands, or how it ended."""
        self._write([*(kept for kept in self._read() if not kept.open), confirming])

    def charge_interrupted(self, job: Job, outlived_s: float = 0.0) -> float:
        """Charge a run that came to no end for the time it had; answers what that was.

        It lasted until its last sign of life, or `outlived_s` until what it left running was ended. One that
        cost nothing is forgotten.
        """
        runs = self._read()
        ended = [kept for kept in runs if not kept.open]
        begun = next((kept for kept in runs if kept.open), None)
        if begun is None:
            return 0.0
        outcome = interrupted_outcome(max(begun.lasted_s, outlived_s))
        if isinstance(job, BilledJob):
            known_usd = math.fsum(kept.spent_usd for kept in ended)
            outcome = replace(outcome, bill_usd=max(job.confirming_usd() - known_usd, 0.0))
        charge = interrupted_charge("confirmation", begun.price, outcome)
        self._write(ended if charge is None else [*ended, replace(begun, charge=charge)])
        return charge.usd if charge else 0.0

    def _write(self, runs: Iterable[ConfirmationRun]) -> None:
        """Whole or not at all."""
        said = {"format": FORMAT, "runs": [kept.to_dict() for kept in runs]}
        text = json.dumps(said, indent=2, ensure_ascii=False, allow_nan=False, default=float)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, text, durable=True)
        except OSError as error:
            raise RunFailed(
                f'Cannot write "{self.path}" ({error.strerror}); free some disk space, or '
                "let it be written to."
            ) from error

    def _read(self) -> list[ConfirmationRun]:
        try:
            said = json.loads(self.path.read_text(encoding="utf-8"))
            return [self._checked(ConfirmationRun.from_dict(run)) for run in said["runs"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, PrudentError) as error:
            raise BadInput(
                f'Cannot read the confirmation "{self.path}" ({error}); restore the file from a copy, or '
                "remove it to pay for another run."
            ) from error

    def _checked(self, kept: ConfirmationRun) -> ConfirmationRun:
        """Configurations as the space spells them: JSON knows no tuples."""
        if kept.configuration not in self._space:
            return kept
        configuration = self._space.check(kept.configuration)
        trial = None if kept.trial is None else replace(kept.trial, configuration=configuration)
        return replace(kept, configuration=configuration, trial=trial)

    def _is(self, kept: ConfirmationRun, job: str, key: str) -> bool:
        return (
            kept.job == job
            and kept.configuration in self._space
            and self._space.key(kept.configuration) == key
        )
