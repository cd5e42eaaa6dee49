"""Where a study keeps its files: one visible folder beside the job file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prudent.tuning.job_file import JobFile


@dataclass(frozen=True)
class Places:
    """The journal, the report, the logs of every trial, and the run that confirmed the recommendation."""

    journal: Path
    report: Path
    logs: Path
    confirmation: Path

    @classmethod
    def of(cls, job_file: JobFile, journal: Path | None = None, report: Path | None = None) -> Places:
        """`NAME.prudent/` beside the job file; with a journal of one's own, beside that.

        >>> from prudent.tuning.job_file import JobFile
        >>> said = {"table": "runs.csv", "parameters": ["vm"], "goal": "minimise cost_usd"}
        >>> Places.of(JobFile.parse(said, Path("/data"), "digits")).journal.as_posix()
        '/data/digits.prudent/journal.jsonl'
        """
        if journal is None:
            folder = job_file.folder / f"{job_file.name}.prudent"
            page = report or folder / "report.html"
            return cls(folder / "journal.jsonl", page, folder / "logs", folder / "confirmation.json")
        beside = journal.with_suffix("")
        page = report or beside.with_suffix(".html")
        return cls(journal, page, beside.with_suffix(".logs"), beside.with_suffix(".confirmation.json"))
