"""Commands of requests see no secrets of the service, cannot write to its home, and stay within limits."""

from __future__ import annotations

import os
import pickle
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.cli.main import run
from prudent.core.errors import BadInput
from prudent.core.memory import process_tree
from prudent.core.processes import WORK_NICE
from prudent.service.intake.admission import policy_for
from prudent.service.security.tokens import make_token
from prudent.service.settings import Settings, load
from prudent.service.store import runs, users
from prudent.service.store.runs import NewRun
from prudent.service.store.store import Store
from prudent.service.worker import artifacts, sandbox
from prudent.service.worker.child import ProcessOptions
from prudent.service.worker.claimed_run import runs_programs
from prudent.service.worker.messages import (
    DoneMessage,
    ExportedModel,
    FailedMessage,
    InterruptedMessage,
    MalformedMessage,
    NoteMessage,
    PostponedMessage,
    ProcessMessage,
    ProgressMessage,
    RunTask,
    TrialEndMessage,
    decode_message,
    encode_message,
)
from prudent.service.worker.sandbox import (
    ACCOUNT,
    BUBBLEWRAP,
    ProcessLimits,
    Sandbox,
    has_bubblewrap,
    sandbox_of,
)
from prudent.service.worker.work_process import LAST_WORDS, LimitExceeded, WorkProcess

pytestmark = pytest.mark.timeout(600)
needs_bubblewrap = pytest.mark.skipif(not has_bubblewrap(), reason="needs bubblewrap")
SECRETS = {
    "PRUDENT_SMTP_PASSWORD": "s3cret-mail",
    "PRUDENT_SMTP_USER": "s3cret-sender",
    "PRUDENT_DATABASE_URL": "postgresql://me:s3cret-base@127.0.0.1/none",
    "AWS_SECRET_ACCESS_KEY": "s3cret-cloud",
    "GITHUB_TOKEN": "s3cret-code",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can reach; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory(prefix="prudent-wall-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()


@pytest.fixture
def settings(folder: Path) -> Settings:
    found = Settings(folder / "home", command_file_mb=2.0, command_cpu_s=3000.0, command_processes=700)
    found.create()
    make_token(found.home)
    (found.home / "data" / "rows.txt").write_text("rows")
    with Store(found.database):
        pass
    found.create()  # as the next start does
    return found


def _task(settings: Settings, command: str) -> RunTask:
    document = {"command": command, "parameters": {"n": [1]}, "goal": "minimise time_s", "max_trials": 1}
    return RunTask("r", "tune", document, settings.folder_of("r"))


def _hand(settings: Settings) -> WorkProcess:
    wall = sandbox_of(settings)
    assert wall is not None
    folders = settings.data_folders
    terms = ProcessOptions(
        1, 600.0, folders, policy_for(settings, folders), settings.home / "warm", settings.home
    )
    return WorkProcess(replace(terms, memory_mb=settings.run_memory_mb), wall, settings.folder_of("r"))


def _last(hand: WorkProcess) -> list[ProcessMessage]:
    said: list[ProcessMessage] = []
    until_s = time.monotonic() + 240
    while not said or not isinstance(said[-1], LAST_WORDS):
        assert time.monotonic() < until_s, said
        hand.keep_alive()
        message = hand.receive(0.5)
        said += [message] if message is not None else []
    return said


def _attack(settings: Settings) -> str:
    """What a hostile commander would try; everything it finds is put into the run's own folder."""
    home, python = settings.home, sys.executable
    return "; ".join(
        [
            "cd $PRUDENT_HOME/..",
            "env > env.txt",
            "cat /proc/[0-9]*/environ > environs.txt 2>/dev/null",
            f"cat {home}/operator.token {home}/session.key {home}/prudent.db > stolen.txt 2>/dev/null",
            f"ls {home} > home.txt 2>/dev/null",
            f"{python} -m prudent.cli.main users add evil --role admin --home {home} > evil.txt 2>&1",
            f"echo open > {home}/mode 2>/dev/null",
            f"cat {home}/data/rows.txt > rows.txt",
            f"echo x > {home}/data/written.txt 2>/dev/null",
            "cat /proc/self/limits > limits.txt",
            "head -c 5000000 /dev/zero > large.bin 2>/dev/null",
            f"ln -sf {home}/operator.token report.html",
            "id -u > uid.txt",
            "true",
        ]
    )


def _held(settings: Settings) -> Path:
    """Do the attack; answers the run's folder after asserting what holds for every wall."""
    token = (settings.home / "operator.token").read_text().strip()
    with closing(_hand(settings)) as hand:
        hand.start_run(_task(settings, _attack(settings)))
        said = _last(hand)
    assert isinstance(said[-1], DoneMessage), said[-1]
    found = settings.folder_of("r")
    assert (found / "rows.txt").read_text() == "rows", "data are there to be read"
    everything = b"".join(path.read_bytes() for path in found.rglob("*") if artifacts.is_plain(path))
    for secret in (*SECRETS.values(), token):
        assert secret.encode() not in everything
    assert (found / "stolen.txt").read_bytes() == b""
    with Store(settings.database) as store:
        assert store.read(users.all_) == []
    assert not (settings.home / "mode").exists()
    assert not (settings.home / "data" / "written.txt").exists()
    assert (found / "large.bin").stat().st_size <= 2_000_000
    limits = (found / "limits.txt").read_text()
    for name, most in (("Max cpu time", "3000"), ("Max processes", "700"), ("Max file size", "2000000")):
        (line,) = [line for line in limits.splitlines() if line.startswith(name)]
        assert line.split(name)[1].split()[:2] == [most, most]
    assert "unlimited" not in next(line for line in limits.splitlines() if line.startswith("Max data size"))
    assert artifacts.local(str(found), artifacts.REPORT, settings.home / "cache") is None, (
        "no link is followed"
    )
    return found


@needs_bubblewrap
def test_bubblewrap_keeps_a_hostile_command_out(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, "TEAM_KEY": "passed-on"}.items():
        monkeypatch.setenv(name, value)
    found = _held(replace(settings, command_environment=("TEAM_KEY",)))
    assert "TEAM_KEY=passed-on" in (found / "env.txt").read_text(), "the operator passes it"
    assert set((found / "home.txt").read_text().split()) == {"data", "runs"}


def _another_account() -> str:
    """An account that can run this Python, where we are root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    try:
        sandbox_of(Settings(Path("/nonexistent"), run_as="nobody"))
    except BadInput:
        pytest.skip("needs an account that can run this Python")
    return "nobody"


def test_another_account_keeps_a_hostile_command_out(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    name = _another_account()
    found = _held(replace(settings, run_as=name))
    assert int((found / "uid.txt").read_text()) == pwd.getpwnam(name).pw_uid
    assert (found / "home.txt").read_text() == "", "the home can be passed through, not looked into"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_account_passes_through_the_home_and_no_more(settings: Settings) -> None:
    """As above, without Python: that of a developer often lies where no other account can read it."""
    home, folder = settings.home, settings.folder_of("r")
    wall = Sandbox(ACCOUNT, ProcessLimits(1000.0, 60.0, 700, 1.0), home, (home / "data",), account="nobody")
    wall.prepare(folder)
    tried = f"cat {home}/operator.token; ls {home}; ls {home}/runs; echo x > {home}/mode; cat /proc/1/environ"
    seen = f"cat {home}/data/rows.txt > rows.txt; env > env.txt; id -u > uid.txt"
    script = f"({tried}) > stolen.txt 2>/dev/null; {seen}"
    environment = wall.environment(folder, {**os.environ, **SECRETS})
    subprocess.run(["sh", "-c", script], check=True, cwd=folder, env=environment, **wall.options())
    assert (folder / "stolen.txt").read_text() == ""
    assert (folder / "rows.txt").read_text() == "rows"
    assert int((folder / "uid.txt").read_text()) == pwd.getpwnam("nobody").pw_uid
    assert not any(secret in (folder / "env.txt").read_text() for secret in SECRETS.values())
    assert not (home / "mode").exists()
    sleeping = ["sleep", "1000"]
    with subprocess.Popen(sleeping, cwd=folder, env=environment, **wall.options()) as left:
        try:
            wall.clear(folder)
            assert left.wait(60) == -signal.SIGKILL
        finally:
            left.kill()
    wall.close(folder)
    assert (folder.stat().st_uid, stat.S_IMODE(folder.stat().st_mode)) == (0, 0o700), "it is closed again"


@needs_bubblewrap
def test_a_walled_command_is_ended_with_a_last_word(settings: Settings) -> None:
    with closing(_hand(settings)) as hand:
        hand.start_run(_task(settings, "touch $PRUDENT_HOME/../began; exec sleep 1000"))
        until_s = time.monotonic() + 240
        while not (settings.folder_of("r") / "began").exists():
            assert time.monotonic() < until_s
            time.sleep(0.05)
        inside = _processes(settings.folder_of("r"))
        assert inside
        hand.interrupt()
        assert isinstance(_last(hand)[-1], InterruptedMessage)
    until_s = time.monotonic() + 60
    while left := _processes(settings.folder_of("r")):
        assert time.monotonic() < until_s, left
        time.sleep(0.05)


def _watch(hand: WorkProcess) -> None:
    until_s = time.monotonic() + 240
    while time.monotonic() < until_s:
        hand.keep_alive()
        hand.receive(0.2)
        hand.check_limits()


HOG = f"{sys.executable} -c \"import time; kept = bytearray(b'x') * (300 << 20); time.sleep(1000)\""
FILE = "head -c 700000000 /dev/zero > /tmp/large; exec sleep 1000"


@needs_bubblewrap
@pytest.mark.parametrize(
    ("of_commands_mb", "hogs", "least_mb"), [(550.0, f"{HOG} & {HOG}", 550), (None, FILE, 600)]
)
def test_a_walled_run_keeps_both_limits_of_memory(
    settings: Settings, of_commands_mb: float | None, hogs: str, least_mb: int
) -> None:
    """Each process the lesser of both; what all hold together is seen from outside of the wall."""
    settings = replace(settings, memory_mb=600.0, command_memory_mb=of_commands_mb, command_file_mb=1000.0)
    folder = settings.folder_of("r")
    command = f"cat /proc/self/limits > $PRUDENT_HOME/../limits.txt; {hogs}"
    with closing(_hand(settings)) as hand:
        hand.start_run(_task(settings, command))
        with pytest.raises(LimitExceeded, match="600 MB"):
            _watch(hand)
    limits = (folder / "limits.txt").read_text().splitlines()
    (line,) = [line for line in limits if line.startswith("Max data size")]
    assert line.split()[3:5] == [str(least_mb << 20)] * 2
    until_s = time.monotonic() + 60
    while left := _processes(folder):
        assert time.monotonic() < until_s, left
        time.sleep(0.05)


@needs_bubblewrap
def test_a_command_that_starts_too_many_processes_is_ended(settings: Settings) -> None:
    """Also for root, for whom the kernel's own limit of processes does not hold; none of them is left."""
    command = "setsid sleep 1000 & n=0; while [ $n -lt 60 ]; do sleep 1000 & n=$((n+1)); done; wait"
    with closing(_hand(replace(settings, command_processes=40))) as hand:
        hand.start_run(_task(settings, command))
        with pytest.raises(LimitExceeded, match="more than the 40 processes"):
            _watch(hand)
        until_s = time.monotonic() + 60
        while left := _processes(settings.folder_of("r")):
            assert time.monotonic() < until_s, left
            time.sleep(0.05)


@needs_bubblewrap
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="needs groups of processes by session")
def test_sessions_that_a_command_begins_give_way_too(settings: Settings) -> None:
    """Each would have as much of the processor as the service that answers."""
    folder = settings.folder_of("r")
    with closing(_hand(settings)) as hand:
        hand.start_run(_task(settings, "setsid sleep 1000 & wait"))
        until_s = time.monotonic() + 240
        while not _sleeping(folder):
            assert time.monotonic() < until_s
            hand.keep_alive()
            hand.receive(0.05)
        until_s = time.monotonic() + 60
        while any(f"nice {WORK_NICE}" not in text for text in _groups(hand.pid)):
            assert time.monotonic() < until_s, _groups(hand.pid)
            hand.check_limits()
            time.sleep(0.05)
        assert len(set(_groups(hand.pid))) >= 2, "the command began a session of its own"


def _groups(pid: int) -> list[str]:
    found = []
    for each in process_tree(pid):
        with suppress(OSError):
            found.append(Path(f"/proc/{each}/autogroup").read_text().strip())
    return found


def _sleeping(folder: Path) -> bool:
    for pid in _processes(folder):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001000\x00":
                return True
    return False


def test_the_setting_that_is_in_the_way_is_named(settings: Settings) -> None:
    terms = ProcessOptions(1, 600.0, (), policy_for(settings, ()), settings.home, memory_mb=700.0)
    assert terms.narrowest == (700.0, "memory_mb")
    assert replace(terms, limits=ProcessLimits(650.0, 60.0, 700, 1.0)).narrowest == (
        650.0,
        "command_memory_mb",
    )
    assert replace(terms, limits=ProcessLimits(750.0, 60.0, 700, 1.0)).narrowest == (700.0, "memory_mb")


def _processes(folder: Path) -> list[str]:
    """Those that have the folder in their environment or command, seen from outside."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in text and int(process.name) != os.getpid():
            found.append(process.name)
    return found


def test_what_is_compiled_comes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba says where it would look: in the sandbox it finds there what the service has compiled."""
    caching = pytest.importorskip("numba.core.caching")
    package = tmp_path / "prudent"
    (package / "workflows" / "__pycache__").mkdir(parents=True)
    (package / "workflows" / "__pycache__" / "engine.run-1.py311.nbi").write_text("compiled")
    monkeypatch.setattr(sandbox.prudent, "__file__", str(package / "__init__.py"))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    sandbox.copy_compiled(tmp_path / "home")
    (found,) = (tmp_path / "home" / ".cache" / "numba").iterdir()
    wanted = caching._CacheLocator.get_suitable_cache_subpath(str(package / "workflows" / "engine.py"))
    assert (found.name, [path.read_text() for path in found.iterdir()]) == (wanted, ["compiled"])


class _Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("touch /tmp/prudent-owned",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(_Evil()),
        pickle.dumps(DoneMessage()),
        b"",
        b"[]",
        b'"text"',
        b"[" * 100_000,
        b'{"kind": "Task", "said": {}}',
        b'{"kind": "Done", "said": {"more": 1}}',
        b'{"kind": "Done", "said": {"models": [{"rank": 1}]}}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_message_is_not_even_built(data: bytes) -> None:
    """A command may get hold of the line to the worker, which is outside of the wall."""
    with pytest.raises(MalformedMessage):
        decode_message(data)
    assert not Path("/tmp/prudent-owned").exists()


def test_messages_are_read() -> None:
    made = ExportedModel(1, "k-means", 0.5, "silhouette", 0.5, "1-k-means")
    ended = TrialEndMessage(1, "a", {"x": [1, {"y": 2.0}], "é": None}, "finished", score=1.5)
    last = (
        DoneMessage((made,), "the budget"),
        FailedMessage("too large", worn=True),
        PostponedMessage("full"),
        InterruptedMessage(),
    )
    for said in (ProgressMessage(0.5, 3.0), ended, *last, NoteMessage("a", {"b": 1})):
        assert decode_message(encode_message(said)) == said
    odd = decode_message(
        encode_message(
            TrialEndMessage(1, "a", {"x": np.float64(0.5), "n": np.int64(3)}, "failed", float("nan"))
        )
    )
    assert isinstance(odd, TrialEndMessage)
    assert odd.configuration == {"x": 0.5, "n": 3}


@pytest.mark.parametrize(
    ("kind", "document", "programs"),
    [
        ("train", {"domain": "regression"}, False),
        ("tune", {"table": "runs.csv"}, False),
        ("tune", {"command": "make"}, True),
        ("tune", {"function": "os:system"}, True),
        ("schedule", {"fleet": "m3.medium"}, False),
        ("schedule", {"execute": {}}, True),
        ("schedule", {"execute": {"retries": 2}}, True),
        ("schedule", {"execute": {"replay": 0.1}}, False),
    ],
)
def test_which_runs_are_walled(kind: str, document: dict[str, Any], programs: bool, tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/a.db") as store:
        run, _ = store.write(runs.insert, NewRun(kind, "kim", document, "rest", "hash"))
    assert runs_programs(run) is programs


def test_without_either_there_is_no_wall(tmp_path: Path) -> None:
    assert sandbox_of(Settings(tmp_path, bubblewrap=False)) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [("nobody-of-this-name", "no account"), ("root", "can do what the service can")],
)
def test_an_account_that_would_be_no_wall_is_refused(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        sandbox_of(Settings(tmp_path, run_as=name))


@pytest.mark.parametrize("bubblewrap", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "PRUDENT_DATABASE_URL",
        "PRUDENT_SMTP_PASSWORD_FILE",
        "PRUDENT_WEBHOOK_SECRET",
        "PGPASSWORD",
        "PGPASSFILE",
    ],
)
def test_no_secret_of_the_service_is_passed_to_commands(name: str, bubblewrap: bool, tmp_path: Path) -> None:
    """Refused also without a wall: one may be installed any day."""
    url = "postgresql://me@host/db"
    settings = Settings(tmp_path, database_url=url, bubblewrap=bubblewrap, command_environment=("TZ", name))
    with pytest.raises(BadInput, match=f"passes {name} to commands.*leave it out"):
        sandbox_of(settings)


@pytest.mark.parametrize(
    "value", ["postgresql://me:s3%23cret@host/db", "s3#cret", "postgresql://other:s3%23cret@host/x", "hush"]
)
def test_nor_under_another_name(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_DB", value)
    url = "postgresql://me:s3%23cret@host/db"
    settings = Settings(tmp_path, database_url=url, smtp_password="hush", command_environment=("TEAM_DB",))
    with pytest.raises(BadInput, match="passes TEAM_DB to commands") as refused:
        sandbox_of(settings)
    assert value not in str(refused.value)


def test_credentials_of_commands_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their database may be PostgreSQL where the service's is not."""
    monkeypatch.setenv("PGPASSWORD", "theirs")
    monkeypatch.setenv("TEAM_DB", "")
    sandbox_of(
        Settings(tmp_path, smtp_password="hush", command_environment=("PGPASSWORD", "TEAM_DB", "NONE"))
    )


def test_a_start_that_would_pass_a_secret_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text("command_environment: [PRUDENT_DATABASE_URL]\n")
    words = ["--home", str(tmp_path / "home"), "--config", str(tmp_path / "s.yaml")]
    for start in ("serve", "worker"):
        assert run([start, *words]) == 2
        assert "passes PRUDENT_DATABASE_URL to commands" in capsys.readouterr().err


def test_no_link_in_the_folder_of_a_run_is_written_through(settings: Settings) -> None:
    """A command may leave one for the next worker that takes the run up."""
    folder = settings.folder_of("r")
    folder.mkdir()
    (folder / "private").symlink_to(settings.home)
    Sandbox(BUBBLEWRAP, ProcessLimits(1000.0, 60.0, 700, 1.0), settings.home).prepare(folder)
    assert not (folder / "private").is_symlink()
    assert not (settings.home / "home").exists()
    assert (settings.home / "operator.token").exists()
    (folder / "private" / "home").rename(folder / "private" / "old")
    (folder / "private" / "home").symlink_to(settings.home)
    (folder / "private" / "leases").mkdir()
    Sandbox(BUBBLEWRAP, ProcessLimits(1000.0, 60.0, 700, 1.0), settings.home).prepare(folder)
    assert not (folder / "private" / "home").is_symlink()
    assert (settings.home / "operator.token").exists()
    assert (folder / "private" / "leases").is_dir(), "what was rented is not forgotten"


@needs_bubblewrap
def test_files_of_secrets_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "smtp").write_text("hush\n")
    (tmp_path / "s.yaml").write_text("smtp_password_file: smtp\n")
    settings = load({"home": tmp_path / "home"}, tmp_path / "s.yaml", {})
    assert (settings.smtp_password, settings.secret_files) == ("hush", (tmp_path / "smtp",))
    wall: Sandbox | None = sandbox_of(settings)
    assert wall is not None
    words = wall.command(["cat", str(tmp_path / "smtp")], tmp_path / "run")
    (tmp_path / "run").mkdir()
    settings.create()
    assert words[words.index(str(tmp_path / "smtp")) - 1] == "/dev/null"
    assert b"hush" not in subprocess.run(words, capture_output=True, check=False).stdout
