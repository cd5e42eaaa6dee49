"""A shell command as a job, run on this machine; it reports by lines like `PRUDENT {"accuracy": 0.81}`."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from prudent.cloud.process_guard import process_guard
from prudent.cloud.process_sampler import ProcessSampler
from prudent.cloud.processes import ProcessIdentity, ProcessTree, new_cookie
from prudent.cloud.readings import Readings
from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.jobs.job import (
    declared_fraction,
    declared_measures,
    declared_seconds,
    fingerprint_of,
)
from prudent.tuning.jobs.pid_files import PidFile, ended_path, reap_processes
from prudent.tuning.jobs.pricing import PriceSpec, pricing
from prudent.tuning.jobs.run_output import (
    ReportedMeasures,
    TrialLog,
    keep_output,
    outcome_of_exit,
)
from prudent.tuning.jobs.template import CommandTemplate, texts_of
from prudent.tuning.jobs.timeline import Timeline
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, Configuration, Outcome, Progress

_DRAIN_S = 2.0  # how long the last output may take to arrive after the command has ended
_FIRST_WORD = re.compile(r"\s*(?:\w+=[\w./:,-]*\s+)*(?P<word>[\w./+-]+)(?=\s|;|&|\||$)")
_ODD = re.compile(r"\W")


class CommandJob:
    """A shell command with `{parameter}` places as a job.

    The command runs in `directory`, in a session of its own. It finds its parameters in its places
    (quoted for the shell) and in the environment (`PRUDENT_LEARNING_RATE`, and `PRUDENT_TRIAL`), and
    reports by printing lines `PRUDENT {"accuracy": 0.81, "progress": 0.4}`; of each measure the last
    value counts, and other output is its own affair. `PYTHONUNBUFFERED` is set, so that a Python
    program's lines arrive when they are printed.

    What it prints is kept in `logs` as `trial-0003.out` and `.err`, with a `.pid` beside them while it
    runs. A study that is killed takes its commands with it, and `reap` ends what escaped. Without `logs`
    neither is kept.
    A cut asks the command and everything it started to end (SIGTERM), and kills it after `grace_s`.
    `setup_s` is billed before every run; a run that lasts `timeout_s` fails.

    >>> space = Space.parse({"rate": [0.1, 0.01]})
    >>> job = CommandJob("echo 'PRUDENT {{\\"error\\": '{rate}'}}'", space, ["error"], price=3.6)
    >>> run = job.start({"rate": 0.1}, number=1)
    >>> run.next(until_s=60).measures
    {'error': 0.1}
    >>> run.next(until_s=60).status
    'finished'
    """

    virtual = False

    def __init__(
        self,
        command: str | Sequence[str],
        space: Space,
        measures: Sequence[str] = (),
        price: PriceSpec = None,
        fraction: str | None = None,
        setup_s: float = 0.0,
        directory: Path | str = Path("."),
        logs: Path | str | None = None,
        grace_s: float = 5.0,
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        name: str | None = None,
    ) -> None:
        self.space = space
        self.measures = declared_measures(measures)
        self.fraction = declared_fraction(fraction, space)
        self.setup_s = declared_seconds("The set-up time", setup_s)
        self.grace_s = declared_seconds("The grace time", grace_s)
        self.timeout_s = None if timeout_s is None else declared_seconds("The time-out", timeout_s)
        self.directory = folder_of(Path(directory))
        self.logs = None if logs is None else Path(logs).resolve()
        self._template = CommandTemplate.parse(command, space)
        self._said = command if isinstance(command, str) else list(command)
        self._pricing = pricing(price, space)
        self._environment = texts(environment or {})
        first = self._first_word()
        _check_exists(first, self.directory, {**os.environ, **self._environment}.get("PATH", os.defpath))
        self.name = name or Path(first or "command").name
        self.outlived_s: dict[int, float] = {}

    def price(self, configuration: Configuration) -> Price:
        return self._pricing.price(self.space.check(configuration))

    def start(self, configuration: Configuration, number: int) -> CommandRun:
        """Begin a run; BadInput or RunFailed if its files cannot be written, before anything runs."""
        chosen = self.space.check(configuration)
        out, err = TrialLog.both(self.logs, number)
        cookie = new_cookie()
        owner, began_s = ProcessIdentity.of(os.getpid()), time.time() - self.setup_s
        note = PidFile(number, cookie, owner, began_s=began_s, guard=process_guard().identity)
        tree = None
        try:
            self._note(note)
            process_guard().watch_cookie(cookie, None if self.logs is None else ended_path(self.logs, number))
            command = self._template.fill(chosen)
            timeline = Timeline(self.setup_s)  # from here on it is paid for, the start of the process too
            tree = ProcessTree(command, self.directory, self._variables(chosen, number), cookie)
            self._note(replace(note, process=tree.identity))
        except BaseException as error:
            _abandon(tree, out, err)
            self._forget(number)
            process_guard().forget_cookie(cookie)
            if isinstance(error, OSError):
                why = f"could not start: {error.strerror or error}; fix the command or the machine."
                return CommandRun.unstarted(Outcome(FAILED, 0.0, {}, why, started=False))
            raise
        return CommandRun(tree, (out, err), timeline, self, number)

    def reap(self) -> tuple[int, ...]:
        """End what an interrupted study left running; answers the numbers of those trials."""
        self.outlived_s = {} if self.logs is None else reap_processes(self.logs, self.grace_s)
        return tuple(self.outlived_s)

    def fingerprint(self) -> str:
        return fingerprint_of(
            "command",
            self._said,
            self.space.fingerprint(),
            self.measures,
            self._pricing.fingerprint(),
            self.fraction,
            self.setup_s,
        )

    def _forget(self, number: int) -> None:
        if self.logs is not None:
            with contextlib.suppress(OSError):
                PidFile.path(self.logs, number).unlink(missing_ok=True)

    def _note(self, note: PidFile) -> None:
        if self.logs is not None:
            note.write(self.logs)

    def _variables(self, configuration: Configuration, number: int) -> dict[str, str]:
        values = {variable(name): text for name, text in texts_of(self.space, configuration).items()}
        ours = {"PRUDENT_TRIAL": str(number), **values}
        return {"PYTHONUNBUFFERED": "1", **os.environ, **ours, **self._environment}

    def _first_word(self) -> str | None:
        """The program, where it stands in the command as it is."""
        head = self._template.words[0][0]
        if not isinstance(head, str):
            return None
        if self._template.is_list:
            return head if len(self._template.words[0]) == 1 else None
        found = _FIRST_WORD.match(head)
        whole = found is not None and (found.end() < len(head) or len(self._template.words[0]) == 1)
        return found["word"] if found is not None and whole else None


class CommandRun:
    """One command under way: two threads keep what it prints, one looks at its processes, one waits."""

    def __init__(
        self,
        tree: ProcessTree,
        logs: tuple[TrialLog, TrialLog],
        timeline: Timeline,
        job: CommandJob,
        number: int,
    ) -> None:
        self._tree: ProcessTree | None = tree
        self._job = job
        self._number = number
        self.grace_s = job.grace_s
        self._exit_s: float | None = None
        self._stop_s = math.inf
        self._reports = ReportedMeasures(job.measures)
        self._timeline = timeline
        self._logs = logs
        self._readings: Readings | None = None
        self._sampler = ProcessSampler(tree.pid, tree.members)
        readers = [
            threading.Thread(target=keep_output, args=(tree.stdout, logs[0], self._take, True), daemon=True),
            threading.Thread(target=keep_output, args=(tree.stderr, logs[1], None, True), daemon=True),
        ]
        self._watcher = threading.Thread(target=self._watch, args=(tree, readers), daemon=True)
        for thread in (*readers, self._watcher):
            thread.start()

    @classmethod
    def unstarted(cls, outcome: Outcome) -> CommandRun:
        """The run of a command that could not begin."""
        run = cls.__new__(cls)
        run._tree, run._timeline, run.grace_s, run._stop_s = None, Timeline(), 0.0, math.inf
        run._readings = None
        run._timeline.add(outcome)
        return run

    def next(self, until_s: float) -> Progress | Outcome | None:
        if self._tree is None or self._job.timeout_s is None or self._job.timeout_s > until_s:
            return self._timeline.next(until_s)
        limit_s = self._job.timeout_s
        event = self._timeline.next(limit_s)
        if event is not None:
            return event
        why = f"took longer than its time-out of {limit_s:g} s"
        seen, ended_s = self._end()
        ending_s = max(ended_s - limit_s, 0.0)
        return Outcome(FAILED, limit_s, seen, why, ending_s=ending_s, readings=self._readings)

    def cut(self, at_s: float, why: str) -> Outcome:
        seen, ended_s = self._end()
        time_s, ending_s = min(at_s, ended_s), max(ended_s - at_s, 0.0)
        return Outcome(CUT, time_s, seen, why, ending_s=ending_s, readings=self._readings)

    def elapsed_s(self) -> float:
        """How long the run has lasted, set-up included."""
        return self._timeline.now_s()

    def due_s(self) -> float:
        return math.inf if self._tree is None or self._job.timeout_s is None else self._job.timeout_s

    def notify(self, wake: Callable[[], None]) -> None:
        self._timeline.notify(wake)

    def stop_by(self, at_s: float) -> None:
        if self._tree is not None and self._exit_s is None and math.isfinite(at_s) and at_s != self._stop_s:
            self._stop_s = at_s
            process_guard().kill_at(self._tree.cookie, time.monotonic() - self._timeline.now_s() + at_s)

    def _end(self) -> tuple[dict[str, float], float]:
        """End everything; answers the measures seen before, and when it was over."""
        if self._tree is None:
            return {}, 0.0
        seen = self._reports.measures
        zero_s = time.monotonic() - self._timeline.now_s()
        seen_s, gone_s = (moment_s - zero_s for moment_s in self._tree.end(self.grace_s))
        self._watcher.join(2 * _DRAIN_S)
        # Of the first process the moment of its end is known; of what outlived it, when it was found gone.
        first_s = self._exit_s
        return seen, gone_s if first_s is None or seen_s > first_s else first_s

    def _take(self, lines: list[str]) -> None:
        # What is read after the end was printed before it.
        now_s = self._timeline.now_s() if self._exit_s is None else self._exit_s
        for line in lines:
            progress = self._reports.line(line, now_s)
            if progress is not None:
                self._timeline.add(progress)

    def _watch(self, tree: ProcessTree, readers: list[threading.Thread]) -> None:
        tree.wait()
        self._exit_s = ended_s = self._timeline.now_s()
        self._readings = self._sampler.end()  # before `close`, as long as its first process can be read
        code = tree.close()
        process_guard().forget_cookie(tree.cookie)
        give_up_s = time.monotonic() + _DRAIN_S
        for reader in readers:
            reader.join(max(0.0, give_up_s - time.monotonic()))
        out, err = self._logs
        # The last lines are read after the end, yet were printed before it.
        time_s = max(ended_s, self._timeline.latest_s())
        last_line = err.last_line or (out.last_line if code else "")
        if code == -signal.SIGKILL and ended_s >= self._stop_s:
            result = Outcome(CUT, ended_s, self._reports.measures, OUT_OF_MONEY)
        else:
            result = outcome_of_exit(code, ended_s - self._job.setup_s, time_s, self._reports, last_line)
        problem = out.problem or err.problem
        if problem:
            why = f"{result.why}; {problem}" if result.why else problem
            result = replace(result, why=why)
        self._job._forget(self._number)
        self._timeline.add(replace(result, readings=self._readings))


def _abandon(tree: ProcessTree | None, out: TrialLog, err: TrialLog) -> None:
    """Leave nothing behind of a run that could not begin."""
    out.close()
    err.close()
    if tree is not None:
        tree.end(0.0)
        tree.wait()
        tree.close()
        tree.stdout.close()
        tree.stderr.close()


def folder_of(path: Path) -> Path:
    if not path.is_dir():
        raise BadInput(f'There is no folder "{path}" to run the command in; create it, or name another one.')
    return path.resolve()


def texts(environment: Mapping[str, str]) -> dict[str, str]:
    for name, value in environment.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name:
            raise BadInput(f"The environment variable {name}={value!r} is not text; put it in quotes.")
    return dict(environment)


def variable(name: str) -> str:
    """
    >>> variable("learning-rate")
    'PRUDENT_LEARNING_RATE'
    """
    return f"PRUDENT_{_ODD.sub('_', name).upper()}"


def _check_exists(word: str | None, directory: Path, path: str) -> None:
    """Refuse a program that is not there, before a trial fails by it; the shell knows best.

    It gets no variable but PATH: others, such as LD_PRELOAD, could make it run what a stranger wants.
    """
    if word is None:
        return
    asked = ["/bin/sh", "-c", 'command -v -- "$1"', "sh", word]
    found = subprocess.run(asked, cwd=directory, env={"PATH": path}, capture_output=True, check=False)
    if found.returncode:
        beside = f" Did you mean ./{word}?" if (directory / word).is_file() else ""
        raise BadInput(f'There is no command "{word}".{beside} Check its spelling, the PATH and the folder.')
