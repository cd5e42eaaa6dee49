"""Copies of the repository in which files are changed and tests run; the user's own is never touched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from covering import Chosen
from fork_server import MARK, end_leftovers
from mutants import Mutant, mutated

TRIED_FIRST = 25
COMPILING_S = 300.0


class Copy:
    """A copy of the repository with a server that runs tests in it; both go at the end."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder, self.tree = folder, folder / "tree"
        self.mark = folder.as_posix()
        _copy_tree(root, self.tree)
        for name in ("tmp", "home", "numba"):
            (folder / name).mkdir()
        # By contents, not by time: a mutant may be as long as the original and as old to the second.
        _compile_by_contents(self.tree)
        self._server: subprocess.Popen[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        own = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST", "COV_", "COVERAGE_")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(own)},
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join([str(self.tree / "src"), str(Path(__file__).parent)]),
            "NUMBA_CACHE_DIR": str(self.folder / "numba"),
            "TMPDIR": str(self.folder / "tmp"),
            "HOME": str(self.folder / "home"),
        }

    def judge(self, mutant: Mutant, chosen: Chosen) -> tuple[str, str, float]:
        """Change the file, run the tests, put it back; the outcome, the test that failed, the seconds."""
        path = self.tree / mutant.file
        text = path.read_text(encoding="utf-8")
        changed = mutated(text, mutant)
        assert changed is not None
        age = path.stat().st_mtime_ns
        # numba looks whether the file of a function is the same, not those of what it calls: it would
        # take what was compiled without the mutant. So a mutant of compiled code begins with nothing.
        cache = self.folder / ("numba-of-mutant" if chosen.compiled else "numba")
        cache.mkdir(exist_ok=True)
        try:
            path.write_text(changed, encoding="utf-8")
            outcome, test, seconds = self._run(chosen, str(cache))
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(age, age))
            if chosen.compiled:
                shutil.rmtree(cache, ignore_errors=True)
        if outcome == "broken":
            # Nothing can be imported, or Python itself crashed: through the mutant, or without it too?
            self.check(chosen.tests)
            outcome = "failed"
        return outcome, test, seconds

    def check(self, tests: Sequence[str]) -> None:
        """Some tests must pass on the code as it is, or nothing that fails on a mutant means anything."""
        said = self.run(tests, 600.0)
        if said["outcome"] != "passed":
            output = (self.folder / "output").read_text()[-3000:]
            raise Ended(f"Tests fail without a mutant too ({said}):\n{output}")

    def _run(self, chosen: Chosen, cache: str) -> tuple[str, str, float]:
        """The fastest few tests in a process of their own: most mutants need no more."""
        taken = 0.0
        for some in (slice(TRIED_FIRST), slice(TRIED_FIRST, None)):
            if tests := chosen.tests[some]:
                limit_s = 60 + 10 * sum(chosen.seconds[some]) + COMPILING_S * chosen.compiled
                said = self.run(tests, limit_s, cache)
                taken += said["seconds"]
                if said["outcome"] != "passed":
                    return said["outcome"], said["test"], taken
        return ("survived" if chosen.executed else "unseen"), "", taken

    def run(self, tests: Sequence[str], limit_s: float, cache: str = "") -> dict[str, Any]:
        """Run some tests on the copy as it is now."""
        self._ask(
            {"tests": list(tests), "limit_s": limit_s, "numba_cache": cache or str(self.folder / "numba")}
        )
        try:
            return self._answer()
        finally:
            for left in (self.folder / "tmp").iterdir():
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)

    def _ask(self, said: dict[str, Any]) -> None:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
                cwd=self.tree,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self.folder / "server.log").open("w"),
                text=True,
                start_new_session=True,
            )
            self._answer()
        assert self._server.stdin is not None
        print(json.dumps(said), file=self._server.stdin, flush=True)

    def _answer(self) -> dict[str, Any]:
        assert self._server is not None
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise Ended((self.folder / "server.log").read_text()[-2000:])
        said: dict[str, Any] = json.loads(line)
        return said

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        end_leftovers(self.mark, {os.getpid()})


class Ended(RuntimeError):
    """Tests can no longer be run."""


def _copy_tree(root: Path, copy: Path) -> None:
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    top = (root / ".git").exists() and listed.returncode == 0
    if not top:
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
        return
    for name in listed.stdout.decode().split("\0"):
        if name and (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)


def _compile_by_contents(tree: Path) -> None:
    command = ["compileall", "-q", "--invalidation-mode", "checked-hash", str(tree / "src")]
    subprocess.run([sys.executable, "-m", *command], check=False)


@contextlib.contextmanager
def copies_of(root: Path, number: int) -> Iterator[list[Copy]]:
    """Copies of the repository, which are removed in any case."""
    folder = Path(tempfile.mkdtemp(prefix="prudent-mutation-"))
    copies: list[Copy] = []
    try:
        for index in range(number):
            (folder / str(index)).mkdir()
            copies.append(Copy(root, folder / str(index)))
        yield copies
    finally:
        # A second Ctrl-C must not leave anything behind.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for copy in copies:
            copy.close()
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGINT, before)
