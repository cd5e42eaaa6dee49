"""What a person sees of a test run: progress by part while it runs, then one line per part.

A part is a layer of the package (`tests/tuning` and the doctests of `src/prudent/tuning` are "tuning"), or
the documentation. At the end: what each part took, the ten slowest tests, and what was skipped with the
command that gets the missing piece.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

REMEDIES = {
    "needs Chromium": "apt-get install chromium",
    "needs PostgreSQL": "apt-get install postgresql",
    "needs Slurm": "apt-get install slurm-wlm munge",
    "needs Snakemake": 'pip install "snakemake>=9.14,<10"',
    "needs Java": "apt-get install default-jre-headless",
    "needs bubblewrap": "apt-get install bubblewrap",
    "needs root": "run the tests as root",
    "needs an account that can run this Python": "put Python where other accounts can read it",
    "needs measured data": "set PRUDENT_DATA to the folder of the tables",
}
"""The words of a skip, and how to get what is missing."""
_SLOWEST = 10
_EVERY_S = 20.0
"""How often a log file hears of progress; a terminal sees every change."""


def part_of(nodeid: str) -> str:
    """The part of the product a test speaks of.

    >>> part_of("tests/tuning/jobs/test_table.py::test_it"), part_of("src/prudent/tuning/goal.py::goal")
    ('tuning', 'tuning')
    >>> part_of("tests/test_docs.py::test_page[README.md]"), part_of("src/prudent/__init__.py::prudent")
    ('docs', 'prudent')
    """
    file = nodeid.split("::", 1)[0]
    words = file.removeprefix("tests/").removeprefix("src/prudent/").split("/")
    if len(words) > 1:
        return words[0]
    return {"test_docs.py": "docs", "test_repository.py": "repository"}.get(words[0], "prudent")


@dataclass
class Part:
    """What has happened in one part so far."""

    expected: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def done(self) -> int:
        return sum(self.outcomes.values())

    def words(self) -> str:
        kinds = ("passed", "failed", "skipped")
        return ", ".join(f"{self.outcomes[kind]:,} {kind}" for kind in kinds if self.outcomes[kind])


class Summary:
    """The terminal's words, instead of a dot for each test."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.parts: dict[str, Part] = defaultdict(Part)
        self.seconds: Counter[str] = Counter()
        self.skips: Counter[str] = Counter()
        self._worst: dict[str, str] = {}
        self._begun = self._told = time.monotonic()

    @property
    def _terminal(self) -> pytest.TerminalReporter:
        found = self.config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(found, pytest.TerminalReporter)
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No dots: a failure gets a line of its own, the rest is counted."""
        if hasattr(report, "wasxfail"):
            return None
        if report.when != "call" and report.passed:
            return "", "", ""
        if report.failed:  # the words stand in the list of failures at the end
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        return report.outcome, "", ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not any(part.expected for part in self.parts.values()):
            self._expect(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expect([item.nodeid for item in session.items])

    def _expect(self, ids: list[str]) -> None:
        for nodeid in ids:
            self.parts[part_of(nodeid)].expected += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        part = self.parts[part_of(report.nodeid)]
        part.seconds += report.duration
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self._worst[report.nodeid] = "failed"
            where = "" if report.when == "call" else f" (in its {report.when})"
            self._say(f"  ✗ {report.nodeid}{where}", red=True)
        elif report.skipped:
            self._worst.setdefault(report.nodeid, "skipped")
            if isinstance(report.longrepr, tuple):
                self.skips[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if report.when != "teardown":
            return
        part.outcomes[self._worst.pop(report.nodeid, "passed")] += 1
        if part.expected and part.done == part.expected:
            self._say(f"  ✓ {_line(part_of(report.nodeid), part)}" if not part.outcomes["failed"] else "")
        self._progress()

    def _progress(self) -> None:
        now = time.monotonic()
        screen = self._terminal.isatty
        if now - self._told < (0.2 if screen else _EVERY_S):
            return
        self._told = now
        done, expected = (sum(getattr(p, what) for p in self.parts.values()) for what in ("done", "expected"))
        busy = [name for name, p in sorted(self.parts.items()) if 0 < p.done < p.expected]
        words = f"  {done:,} of {expected:,} · {_clock(now - self._begun)} · {', '.join(busy)}"
        if screen:
            width = self._terminal._tw.fullwidth - 1
            self._terminal.rewrite(words[:width].ljust(width))
        else:
            self._terminal.write_line(words)

    def _say(self, words: str, red: bool = False) -> None:
        if not words:
            return
        if self._terminal.isatty:
            self._terminal.rewrite(" " * (self._terminal._tw.fullwidth - 1))
            self._terminal.rewrite("")
        self._terminal.write_line(words, red=red)

    def pytest_terminal_summary(self) -> None:
        tell = self._terminal
        tell.section("parts (seconds of all processes together)")
        for name, part in sorted(self.parts.items()):
            tell.write_line("  " + _line(name, part), red=bool(part.outcomes["failed"]))
        tell.section(f"the {_SLOWEST} slowest tests")
        for nodeid, seconds in self.seconds.most_common(_SLOWEST):
            tell.write_line(f"  {seconds:6.1f} s  {nodeid}")
        if self.skips:
            tell.section("skipped")
            for reason, count in self.skips.most_common():
                remedy = next((get for need, get in REMEDIES.items() if reason.startswith(need)), "")
                tell.write_line(f"  {count:4}  {reason}" + (f"; get it: {remedy}" if remedy else ""))


def _line(name: str, part: Part) -> str:
    return f"{name:<12} {part.seconds:6.1f} s   {part.words()}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
