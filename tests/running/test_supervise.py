"""Whatever a command leaves behind makes the run fail and is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("supervise.py")


def supervise(tmp_path: Path, code: str, patience_s: float = 0.5) -> subprocess.CompletedProcess[str]:
    short = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import supervise; "
    short += f"supervise.PATIENCE_S = {patience_s}; sys.exit(supervise.main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", short, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=120,
        check=False,
    )


def test_a_clean_command_passes_and_leaves_no_trace(tmp_path: Path) -> None:
    done = supervise(tmp_path, "import tempfile; tempfile.TemporaryDirectory().cleanup()", patience_s=30)
    assert (done.returncode, list(tmp_path.iterdir())) == (0, []), done.stdout + done.stderr


def test_the_commands_own_failure_is_passed_on(tmp_path: Path) -> None:
    assert supervise(tmp_path, "raise SystemExit(5)").returncode == 5


def test_a_detached_process_that_listens_is_found_and_ended(tmp_path: Path) -> None:
    serve = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
    serve += "print(1, flush=True); time.sleep(600)"
    start = (
        f"import subprocess, sys; serve = [sys.executable, '-c', {serve!r}]; "
        "p = subprocess.Popen(serve, start_new_session=True, stdout=subprocess.PIPE); "
        "p.stdout.readline(); print('pid', p.pid)"
    )
    done = supervise(tmp_path, start)
    pid = int(done.stdout.split("pid ")[1].split()[0])
    assert done.returncode == 1
    assert f"process {pid}" in done.stdout
    assert "listening on 127.0.0.1:" in done.stdout
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_ends_by_itself_in_time_is_no_trouble(tmp_path: Path) -> None:
    start = "import subprocess; subprocess.Popen(['sleep', '0.3'], start_new_session=True)"
    assert supervise(tmp_path, start, patience_s=60).returncode == 0


@pytest.mark.parametrize("where", ["None", "os.path.dirname(tempfile.gettempdir())"])
def test_a_folder_that_stays_is_named(tmp_path: Path, where: str) -> None:
    code = f"import os, tempfile; print(tempfile.mkdtemp(prefix='spark-', dir={where}))"
    done = supervise(tmp_path, code)
    assert done.returncode == 1
    assert f"folder {done.stdout.split()[0]}" in done.stdout


def test_a_folder_in_which_another_program_works_is_not_the_runs(tmp_path: Path) -> None:
    beside, begin, made = (tmp_path / name for name in ("spark-of-another", "begin", "made"))
    for path in (begin, made):
        os.mkfifo(path)
    code = f"open({str(begin)!r}, 'w').close(); open({str(made)!r}).close()"
    waiting = f"import os, sys; open({str(begin)!r}).close(); os.mkdir(sys.argv[1]); "
    waiting += f"open({str(made)!r}, 'w').close(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", waiting, str(beside)], stdin=subprocess.PIPE) as other:
        done = supervise(tmp_path, code)
        assert other.stdin is not None
        other.stdin.close()
    assert (done.returncode, beside.is_dir()) == (0, True), done.stdout
