"""Commands as jobs, with real processes: what they report, how they end, how they fail, what is kept."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.processes import ProcessInfo
from prudent.core.errors import BadInput, RunFailed
from prudent.core.space import Space
from prudent.tuning.jobs.command import CommandJob, CommandRun
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress

Follow = Callable[..., tuple[list[Progress], Outcome]]

SPACE = Space.parse({"depth": [1, 2, 4], "kind": ["plain", "it's; exit 9", "$HOME `id`"]})
CHOSEN = {"depth": 2, "kind": "plain"}


def job(command: str | list[str], folder: Path, **more: Any) -> CommandJob:
    options: dict[str, Any] = {"measures": ["error"], "directory": folder, "logs": folder / "logs", **more}
    return CommandJob(command, SPACE, **options)


def start(command: str | list[str], folder: Path, **more: Any) -> CommandRun:
    return job(command, folder, **more).start(dict(CHOSEN), 3)


def python(folder: Path, code: str) -> list[str]:
    (folder / "work.py").write_text(code)
    return [sys.executable, "-S", "work.py"]


def report(**values: float) -> str:
    """A shell command that prints one report."""
    return "echo 'PRUDENT " + json.dumps(values).replace("{", "{{").replace("}", "}}") + "'"


# What it is told


@pytest.mark.parametrize("kind", SPACE["kind"].values)
@pytest.mark.parametrize(
    "command",
    [
        "printf '%s' {kind}",
        "printf '%s' '{kind}'",
        'printf %s "{kind}"',
        "# don't\nprintf %s {kind}",
        ["printf", "%s", "{kind}"],
        'printf %s "$PRUDENT_KIND"',
    ],
)
def test_values_arrive_as_they_are(command: Any, kind: str, tmp_path: Path, follow: Follow) -> None:
    run = job(command, tmp_path, measures=()).start({"depth": 1, "kind": kind}, 3)
    assert follow(run)[1].status == FINISHED
    assert (tmp_path / "logs" / "trial-0003.out").read_text() == kind


def test_it_knows_its_trial_and_its_own_variables(tmp_path: Path, follow: Follow) -> None:
    command = 'echo "$PRUDENT_TRIAL $PRUDENT_DEPTH $OWN $PYTHONUNBUFFERED"; pwd'
    follow(start(command, tmp_path, measures=(), environment={"OWN": "a b"}))
    assert (tmp_path / "logs" / "trial-0003.out").read_text() == f"3 2 a b 1\n{tmp_path.resolve()}\n"


def test_it_has_no_input_to_wait_for(tmp_path: Path, follow: Follow) -> None:
    assert follow(start(f"cat; {report(error=1)}", tmp_path))[1].status == FINISHED


# What it reports


def test_the_last_value_counts_and_other_output_is_kept(tmp_path: Path, follow: Follow) -> None:
    command = f"echo hello; {report(error=0.9, progress=0.5)}; echo oops >&2; {report(error=0.3, other=1)}"
    shown, outcome = follow(start(command, tmp_path))
    assert [(p.measures, p.done) for p in shown] == [({"error": 0.9}, 0.5), ({"error": 0.3}, None)]
    assert outcome.measures == {"error": 0.3}
    assert (tmp_path / "logs" / "trial-0003.out").read_text().startswith("hello\nPRUDENT {")
    assert (tmp_path / "logs" / "trial-0003.err").read_text() == "oops\n"


def test_ten_thousand_lines_at_once_lose_nothing(tmp_path: Path, follow: Follow) -> None:
    code = "for i in range(10000): print('PRUDENT {\"error\": %d}' % i); print('noise ' * 20)"
    shown, outcome = follow(start(python(tmp_path, code), tmp_path))
    assert [p.measures["error"] for p in shown] == list(range(10000))
    assert outcome.measures == {"error": 9999}
    assert (tmp_path / "logs" / "trial-0003.out").read_bytes().count(b"\n") == 20000


def test_binary_rubbish_is_kept_and_disturbs_nothing(tmp_path: Path, follow: Follow) -> None:
    code = (
        "import sys; out = sys.stdout.buffer\n"
        "out.write(bytes(range(256)) * 9000)\n"  # 2 MB, partly without a line end
        "out.write(b'\\n\\xff\\xfePRUDENT {\\n\\rPRUDENT {\"error\": 0.5}\\r\\n' + b'\\0' * 3000000)\n"
    )
    _, outcome = follow(start(python(tmp_path, code), tmp_path))
    assert outcome.measures == {"error": 0.5}
    assert (tmp_path / "logs" / "trial-0003.out").stat().st_size > 5_000_000


def test_a_last_line_without_an_end_counts(tmp_path: Path, follow: Follow) -> None:
    command = "printf 'PRUDENT {{\"error\": 0.5}}'"
    assert follow(start(command, tmp_path))[1].measures == {"error": 0.5}


def test_output_may_be_closed_long_before_the_end(tmp_path: Path, follow: Follow) -> None:
    _, outcome = follow(start(f"{report(error=1)}; exec >&- 2>&-; sleep 0.3", tmp_path))
    assert outcome.status == FINISHED
    assert outcome.time_s >= 0.3


def test_without_logs_nothing_is_kept_and_all_is_read(tmp_path: Path, follow: Follow) -> None:
    _, outcome = follow(start(f"{report(error=1)}; echo wrong >&2; exit 4", tmp_path, logs=None))
    assert (outcome.why, outcome.measures) == ("exit code 4: wrong", {"error": 1})
    assert list(tmp_path.iterdir()) == []


# How it fails


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo first >&2; echo no such data >&2; exit 3", "exit code 3: no such data"),
        ("echo said here; exit 3", "exit code 3: said here"),
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "killed, probably out of memory"),
        ("exit 137", "killed, probably out of memory"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("exit 139", "exit code 139 (SIGSEGV)"),
        ("echo MemoryError >&2; exit 1", "out of memory (exit code 1: MemoryError)"),
        (report(error=1) + "; exit 127", "exit code 127"),
        ("true", 'reported no error. To report it, print a line PRUDENT {"error": 0.5}.'),
        ("echo PRUDENT error=3", "it printed a PRUDENT line that is no JSON object: PRUDENT error=3"),
        ("echo 'PRUDENT [1]'", "it printed a PRUDENT line that is no JSON object"),
        (report(eror=3), 'Is it what was called "eror"?'),
        ("echo 'PRUDENT {{\"error\": null}}'", "reported no error"),
        ('echo \'PRUDENT {{"error": "low"}}\'', "it gave error as 'low', which is not a number"),
        ("echo 'PRUDENT {{\"error\": NaN}}'", "reported error as nan; make it a finite number."),
    ],
)
def test_the_reason_of_a_failure_tells_what_to_do(
    command: str, why: str, tmp_path: Path, follow: Follow
) -> None:
    _, outcome = follow(start(command, tmp_path))
    assert outcome.status == FAILED
    assert outcome.started
    assert why in outcome.why
    assert outcome.time_s > 0


def test_rubbish_is_forgiven_when_every_measure_came(tmp_path: Path, follow: Follow) -> None:
    _, outcome = follow(start(f"echo PRUDENT what; {report(error=1)}; echo 'PRUDENT {{{{'", tmp_path))
    assert (outcome.status, outcome.why) == (FINISHED, "")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            "cd . && ./missing --depth {depth}",
            "was not found (/bin/sh: 1: ./missing: not found)|was not found",
        ),
        ("true; ./plain", "chmod +x"),
    ],
)
def test_what_could_not_start_costs_nothing(command: str, why: str, tmp_path: Path, follow: Follow) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    _, outcome = follow(start(command, tmp_path, setup_s=50.0), until_s=100)
    assert (outcome.status, outcome.started, outcome.time_s) == (FAILED, False, 0.0)
    assert any(part in outcome.why for part in why.split("|"))
    assert outcome.why.startswith("could not start")


def test_a_machine_that_cannot_start_it_is_no_traceback(tmp_path: Path, follow: Follow) -> None:
    space = Space.parse({"text": {"constant": "x" * 3_000_000}})
    run = CommandJob("true {text}", space, directory=tmp_path, logs=tmp_path).start({}, 1)
    _, outcome = follow(run)
    assert not outcome.started
    assert os.strerror(errno.E2BIG) in outcome.why
    assert run.cut(1.0, "late").status == CUT
    assert not list(tmp_path.glob("*.pid"))


def test_it_fails_after_its_time_out(tmp_path: Path) -> None:
    patient = job(f"{report(error=1)}; sleep 1000", tmp_path, timeout_s=500.0, grace_s=1.0)
    run = patient.start(dict(CHOSEN), 3)
    assert isinstance(run.next(120), Progress)
    now_s = run.elapsed_s()
    patient.timeout_s = limit_s = now_s + 0.2
    assert run.next(now_s) is None
    outcome = run.next(120)
    why = f"took longer than its time-out of {limit_s:g} s"
    assert outcome == Outcome(FAILED, limit_s, {"error": 1}, why)


# Bad input, before anything runs


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("train --depth {deph}", 'Unknown place "deph". Did you mean "depth"?'),
        ("echo ${HOME}", "Write {{ and }}"),
        ("echo {depth", "Write {{ and }}"),
        ("echo {}", "Write {{ and }}"),
        ("no-such-program --depth {depth}", 'There is no command "no-such-program"'),
        ("A=1 no-such-program", 'There is no command "no-such-program"'),
        (["no such", "{depth}"], 'There is no command "no such"'),
        ("script.sh {depth}", "Did you mean ./script.sh?"),
        ("  ", "is not a command"),
        ([], "is not a command"),
        (5.0, "is not a command"),
        (True, "is not a command"),
        (["true", 3], "is not a command"),
        ("true \0", "NUL"),
    ],
)
def test_a_command_that_cannot_work_is_refused(command: Any, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "script.sh").write_text("")
    with pytest.raises(BadInput) as refused:
        job(command, tmp_path)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        "cd / && true",
        "if true; then true; fi",
        "{kind} --depth {depth}",
        "(true)",
        "sh -c '{kind}'",
        ["{kind}"],
    ],
)
def test_a_command_that_the_shell_must_judge_is_accepted(command: Any, tmp_path: Path) -> None:
    job(command, tmp_path)


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        ({"directory": "/no/such"}, 'There is no folder "/no/such"'),
        ({"environment": {"A": 3}}, "A=3 is not text"),
        ({"timeout_s": -1}, "time-out cannot be -1"),
        ({"grace_s": "x"}, "grace time cannot be 'x'"),
    ],
)
def test_wrong_options_are_refused(more: dict[str, Any], remedy: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=remedy):
        job("true", tmp_path, **more)


def test_logs_that_cannot_be_written_are_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"Cannot write .*file.*choose another"):
        start(f"touch {tmp_path}/ran", tmp_path, logs=tmp_path / "file" / "logs")
    (tmp_path / "logs" / "trial-0003.out").mkdir(parents=True)
    with pytest.raises(BadInput, match=r"trial-0003\.out \(Is a directory\)"):
        start(f"touch {tmp_path}/ran", tmp_path)
    assert not (tmp_path / "ran").exists()


# A full disk


def test_a_full_disk_loses_the_log_and_not_the_run(tmp_path: Path, follow: Follow) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "trial-0003.out").symlink_to("/dev/full")
    _, outcome = follow(start(f"echo lost; {report(error=1)}; echo lost", tmp_path))
    assert (outcome.status, outcome.measures) == (FINISHED, {"error": 1})
    assert outcome.why.startswith("its log is not whole: Cannot write")
    assert "No space left on device" in outcome.why
    assert outcome.why.endswith("free some space, then resume.")


def test_a_full_disk_before_the_run_is_said_before_it(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunFailed, match=r"trial-0003\.pid \(No space left on device\); free some space"):
        start(f"touch {tmp_path}/ran", tmp_path)
    assert not (tmp_path / "ran").exists()
    assert not list((tmp_path / "logs").glob("*.pid*"))


def test_a_disk_that_fills_while_it_starts_leaves_nothing_running(tmp_path: Path, monkeypatch: Any) -> None:
    replace, calls = os.replace, []

    def full(*paths: Any) -> None:
        calls.append(paths)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(*paths)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunFailed):
        start("sleep 1000", tmp_path, environment={"MARK": str(tmp_path)})
    assert len(calls) == 2
    assert not any(
        process.carries(f"MARK={tmp_path}")
        for entry in Path("/proc").glob("[0-9]*")
        if (process := ProcessInfo.read(int(entry.name))) is not None
    )


# Time and identity


def test_the_set_up_is_part_of_the_time(tmp_path: Path, follow: Follow) -> None:
    shown, outcome = follow(start(report(error=1), tmp_path, setup_s=100.0), until_s=199)
    assert 100 <= shown[0].elapsed_s <= outcome.time_s < 200  # once, not twice


def test_the_fingerprint_changes_with_the_job_and_not_with_the_process(tmp_path: Path) -> None:
    code = (
        "from prudent.core.space import Space; from prudent.tuning.jobs.command import CommandJob\n"
        "space = Space.parse({'depth': [1, 2]})\n"
        "print(CommandJob('true {depth}', space, ['error'], 0.5).fingerprint())\n"
        "print(CommandJob(['true', '{depth}'], space, ['error'], 0.5).fingerprint())\n"
        "print(CommandJob('true {depth}', space, ['error'], 0.6).fingerprint())"
    )
    asked = [sys.executable, "-c", code]
    one, other = (subprocess.run(asked, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert one == other
    assert len(set(one.split("\n"))) == 4


def test_the_name_is_the_programs_unless_said(tmp_path: Path) -> None:
    assert job("/bin/sh -c true", tmp_path).name == "sh"
    assert job("true", tmp_path, name="digits").name == "digits"
    assert job("{kind}", tmp_path).name == "command"


# What it does to this machine


def test_a_run_tells_what_it_did_to_this_machine(tmp_path: Path, follow: Follow) -> None:
    burn = "import time\nwhile time.process_time() < 0.5: sum(range(10_000))\n"
    _, busy = follow(start(python(tmp_path, burn), tmp_path, measures=[]))
    _, idle = follow(start("sleep 0.5", tmp_path, measures=[]))
    cores = len(os.sched_getaffinity(0))
    assert busy.readings is not None
    assert busy.readings.cpu_share is not None
    assert idle.readings is not None
    assert idle.readings.cpu_share is not None
    assert busy.readings.cpu_share * busy.time_s * cores > 0.4
    assert idle.readings.cpu_share * idle.time_s * cores < 0.2
    assert busy.readings.network_mb_s is None  # the kernel counts it for the whole machine only


def test_a_run_that_is_cut_or_fails_tells_it_too(tmp_path: Path, follow: Follow) -> None:
    run = start("echo 'PRUDENT {{\"error\": 1}}'; sleep 600", tmp_path)
    assert isinstance(run.next(60.0), Progress)
    assert run.cut(run.elapsed_s(), "too dear").readings is not None
    assert follow(start("sleep 0.2; exit 3", tmp_path))[1].readings is not None
    assert follow(start("sleep 600", tmp_path, timeout_s=0.5))[1].readings is not None
