"""What happens on a worker, without Dask: commands, their guard, prints of files, the journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud import process_guard as guards
from prudent.cloud.process_guard import process_guard
from prudent.core.errors import BadInput
from prudent.workflows import Activation, File, Workflow
from prudent.workflows.execute.command import ActivationRequest, run_activation, stop_run
from prudent.workflows.execute.journal import ExecutionJournal
from prudent.workflows.execute.resume import command_digest, rerun_reasons
from prudent.workflows.execute.work_folder import (
    change_stamps,
    fingerprint_of,
    fingerprints_of,
    missing_programs,
    same_content,
)

Dead = Callable[[int], bool]


@pytest.fixture(scope="module", autouse=True)
def guarded() -> Iterator[None]:
    """The guard of this process's commands ends with these tests."""
    yield
    process_guard().close()
    guards._guards.clear()


def order(folder: Path, script: str, run: str = "r", **said: Any) -> ActivationRequest:
    return ActivationRequest(
        run, "a", 1, "v1", 0, str(folder), str(folder / "logs" / "a.1"), ("sh", "-c", script), **said
    )


class TestCarryOut:
    def test_it_tells_when_it_begins_and_how_it_ended(self, tmp_path: Path) -> None:
        (tmp_path / "in").write_text("x")
        told: list[dict[str, Any]] = []
        began_s = time.monotonic()
        ended = run_activation(
            order(tmp_path, "sleep 0.1; cp in out", inputs=("in",), outputs=("out",)), told.append
        )
        assert [fact["fact"] for fact in told] == ["started"]
        assert ended["outcome"] == "done"
        assert 0.1 <= ended["took_s"] <= time.monotonic() - began_s
        assert ended["inputs"]["in"]["size"] == ended["outputs"]["out"]["size"] == 1
        json.dumps(ended)

    @pytest.mark.parametrize(
        ("script", "error"),
        [
            ("exit 7", "exit code 7"),
            ("kill -9 $$", "signal 9"),
            ("exec /no/such/program", "exit code 127"),
            ("true", 'did not write its output "out"'),
        ],
    )
    def test_every_way_to_fail_is_told(self, tmp_path: Path, script: str, error: str) -> None:
        ended = run_activation(order(tmp_path, script, outputs=("out",)), lambda fact: None)
        assert ended["outcome"] == "failed"
        assert error in ended["error"]

    def test_the_end_of_a_long_stderr_is_kept(self, tmp_path: Path) -> None:
        script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1"
        ended = run_activation(order(tmp_path, script), lambda fact: None)
        assert ended["stderr"].endswith("line 2999")
        assert len(ended["stderr"]) <= 4000
        assert (tmp_path / "logs" / "a.1.err").read_text().startswith("line 0\n")

    def test_folders_for_outputs_are_made(self, tmp_path: Path) -> None:
        ended = run_activation(
            order(tmp_path, "touch deep/er/out", outputs=("deep/er/out",)), lambda fact: None
        )
        assert ended["outcome"] == "done"

    def test_an_input_that_is_not_on_the_worker(self, tmp_path: Path) -> None:
        ended = run_activation(order(tmp_path, "true", inputs=("gone",)), lambda fact: None)
        assert 'its input "gone" is not in' in ended["error"]

    def test_an_output_rewritten_with_the_same_content_is_new(self, tmp_path: Path) -> None:
        (tmp_path / "in").write_text("x")
        (tmp_path / "out").write_text("x")
        again = order(tmp_path, "cp -p in out", inputs=("in",), outputs=("out",))
        assert run_activation(again, lambda fact: None)["outcome"] == "done"

    def test_what_a_command_leaves_behind_is_ended(self, tmp_path: Path, dead: Dead) -> None:
        run_activation(order(tmp_path, "sleep 765 & echo $! > pid"), lambda fact: None)
        assert dead(int((tmp_path / "pid").read_text()))

    def test_a_command_that_takes_too_long_is_ended_with_its_children(
        self, tmp_path: Path, dead: Dead
    ) -> None:
        for longest_s in (0.3, 1.2, 5.0, 20.0):  # a busy computer may not come to the children in time
            slow = order(tmp_path, "sleep 987 & echo $! > child; mv child pid; wait", timeout_s=longest_s)
            ended = run_activation(slow, lambda fact: None)
            assert ended["error"] == f"it was ended after {longest_s:g} s, the longest it may take"
            if (tmp_path / "pid").exists():
                break
        assert dead(int((tmp_path / "pid").read_text()))

    def test_a_stopped_run_ends_what_runs_and_begins_nothing(self, tmp_path: Path) -> None:
        ended: list[dict[str, Any]] = []
        slow = order(tmp_path, "touch here; sleep 60", run="stopped")
        thread = threading.Thread(target=lambda: ended.append(run_activation(slow, lambda fact: None)))
        thread.start()
        while not (tmp_path / "here").exists():
            time.sleep(0.01)
        stop_run("stopped")
        thread.join(60)
        assert ended[0]["error"] == "the run was stopped"
        late = run_activation(order(tmp_path, "touch late", run="stopped"), lambda fact: None)
        assert late["outcome"] == "failed"
        assert not (tmp_path / "late").exists()

    def test_programs_that_are_missing(self) -> None:
        assert missing_programs(["sh", "no-such-program", "./made-later"]) == ["no-such-program"]


def test_a_killed_worker_takes_its_commands_with_it(tmp_path: Path, dead: Dead) -> None:
    """The guard ends the whole group, also children that the command started."""
    code = (
        "import sys; from pathlib import Path\n"
        "from prudent.workflows.execute.command import ActivationRequest, run_activation\n"
        "here = sys.argv[1]\n"
        "script = 'sleep 654 & echo $! > child; echo $$ > pid; wait'\n"
        "script = ('sh', '-c', script)\n"
        "run_activation(ActivationRequest('r', 'a', 1, 'v', 0, here, here + '/a', script), print)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert worker.poll() is None
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert dead(int((tmp_path / "pid").read_text()))
    assert dead(int((tmp_path / "child").read_text()))


def test_threads_that_begin_at_once_share_one_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would end with its last user's reference, and kill the commands that it watches."""
    met = threading.Barrier(4)

    class Slow:
        alive = True

        def __init__(self) -> None:
            time.sleep(0.2)

        def close(self) -> None: ...

    monkeypatch.setattr(guards, "_guards", {})
    monkeypatch.setattr(guards, "ProcessGuard", Slow)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: (met.wait(), found.append(process_guard()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


class TestPrints:
    def test_content_counts_not_time(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_text("one")
        before = fingerprint_of(path)
        os.utime(path, (1, 1))
        touched = fingerprint_of(path)
        path.write_text("two")
        changed = fingerprint_of(path)
        assert before is not None
        assert touched is not None
        assert changed is not None
        assert same_content(before, touched)
        assert not same_content(before, changed)

    def test_what_is_not_there_has_none(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        assert set(fingerprints_of(str(tmp_path), ["gone", "folder"])) == {"folder"}
        assert set(change_stamps(str(tmp_path), ["gone", "folder"])) == {"folder"}


class TestJournal:
    def test_two_cannot_write_at_the_same_time(self, tmp_path: Path) -> None:
        with ExecutionJournal(tmp_path / "j"), pytest.raises(BadInput, match="Another run is writing"):
            ExecutionJournal(tmp_path / "j")
        ExecutionJournal(tmp_path / "j").close()

    @pytest.mark.parametrize("text", ["", "{}\n", '{"fact": "run", "version": 99}\n', "[1]\n{}\n"])
    def test_what_is_no_journal(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "j").write_text(text)
        with pytest.raises(BadInput):
            ExecutionJournal.read(tmp_path / "j")


class TestWhyAgain:
    WORKFLOW = Workflow(
        "w",
        (
            Activation("a", command=("x",), outputs=(File("ab"),)),
            Activation("b", command=("y",), inputs=(File("ab"),), outputs=(File("out"),)),
        ),
    )

    def ended(self, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
        one = {"size": 1, "mtime_ns": 1, "digest": "d"}
        facts = {
            "a": {"outcome": "done", "command": command_digest(("x",)), "outputs": {"ab": one}},
            "b": {
                "outcome": "done",
                "command": command_digest(("y",)),
                "inputs": {"ab": one},
                "outputs": {"out": one},
            },
        }
        return {name: {**fact, **changes.get(name, {})} for name, fact in facts.items()}

    def why(self, facts: dict[str, Any], *seen: str) -> dict[str, str]:
        one = {"size": 1, "mtime_ns": 1, "digest": "d"}
        return rerun_reasons(
            self.WORKFLOW, facts, lambda names: {name: one for name in names if name in seen}
        )

    def test_all_as_it_was(self) -> None:
        assert self.why(self.ended(), "ab", "out") == {}

    def test_a_parent_that_runs_again_takes_its_children_along(self) -> None:
        facts = self.ended(a={"command": "other"})
        assert self.why(facts, "ab", "out") == {
            "a": "its command has changed",
            "b": '"a", which it depends on, runs again',
        }

    def test_outputs_that_nobody_declared_then(self) -> None:
        assert self.why(self.ended(b={"outputs": {}}), "ab", "out") == {
            "b": 'output "out" was not declared then'
        }

    def test_commands_are_told_apart_by_their_words(self) -> None:
        assert command_digest(("a b",)) != command_digest(("a", "b"))
