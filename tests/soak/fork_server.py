"""Runs tests, each time in a fork of a process that has the heavy packages imported, but nothing of ours.

    python fork_server.py

reads a JSON object a line: `tests` (names, in their order), `limit_s`, `numba_cache`; and answers with one:
`outcome` (`passed`, `failed`, `stopped` at the limit, `broken` before a test could fail), the `test` that
failed, and `seconds`. A fork imports the package anew, so that it sees the file as it is now. What a test
leaves running is ended: its processes are told apart by a variable that the server was started with.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MARK = "PRUDENT_MUTATION_JOB"
PYTEST = tuple(f"-p no:{name}" for name in ("cacheprovider", "xdist", "cov", "randomly"))
"""One process, the order that is asked for, and nothing written down."""
HEAVY = (
    "numpy",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.spatial",
    "scipy.special",
    "scipy.stats.qmc",
    "numba",
    "yaml",
    "pydantic",
    "hypothesis.stateful",
    "hypothesis.strategies",
    "rich.progress",
    "onnx",
    "httpx",
    "fastapi.testclient",
)


class Judge:
    """A pytest plugin: only some tests, in their order; notes the first that fails."""

    def __init__(self, tests: Sequence[str], answer: Path) -> None:
        self.order = {test: place for place, test in enumerate(tests)}
        self.answer = answer

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order), key=lambda item: self.order[item.nodeid]
        )

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._note(f"collecting {report.nodeid}")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._note(report.nodeid)

    def _note(self, test: str) -> None:
        if not self.answer.exists():
            self.answer.write_text(test)


def run(tests: Sequence[str], limit_s: float, numba_cache: str, work: Path) -> dict[str, Any]:
    """Run the tests in a fork and wait for it."""
    answer = work / "answer"
    answer.unlink(missing_ok=True)
    begun = time.monotonic()
    fork = os.fork()
    if fork == 0:
        _in_fork(tests, numba_cache, answer)
    code = _code_by(fork, begun + limit_s)
    if code is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(fork, signal.SIGKILL)
        os.waitpid(fork, 0)
    end_leftovers(os.environ[MARK], {os.getpid()})
    failed = answer.read_text() if answer.exists() else ""
    # No test found is not a failure: the mutant may have renamed a test's case.
    passed = code in (0, 5) and not failed
    outcome = "stopped" if code is None else "passed" if passed else "failed" if failed else "broken"
    return {"outcome": outcome, "test": failed, "seconds": round(time.monotonic() - begun, 3)}


def _code_by(fork: int, until: float) -> int | None:
    """The exit code of a fork; None if it is still running then."""
    while time.monotonic() < until:
        done, status = os.waitpid(fork, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


def _in_fork(tests: Sequence[str], numba_cache: str, answer: Path) -> None:
    code = 70
    try:
        os.setsid()
        output = os.open(answer.with_name("output"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ["NUMBA_CACHE_DIR"] = numba_cache
        if "numba" in sys.modules:
            sys.modules["numba"].config.CACHE_DIR = numba_cache
        code = _pytest(tests, answer)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _pytest(tests: Sequence[str], answer: Path) -> int:
    import pytest

    _never_shrink()
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    # Plugins that are imported already cannot be rewritten, and need not be.
    early = ("-x", "-W", "ignore::pytest.PytestAssertRewriteWarning")
    return int(pytest.main([*files, *early, *PYTEST], plugins=[Judge(tests, answer)]))


def _never_shrink() -> None:
    """The smallest example that fails is of no use here; profiles that tests make inherit this."""
    hypothesis = sys.modules.get("hypothesis")
    if hypothesis is not None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("no shrinking", phases=phases, database=None)
        hypothesis.settings.load_profile("no shrinking")


def end_leftovers(mark: str, but: set[int]) -> None:
    """End every process that was started with the mark."""
    wanted = f"{MARK}={mark}".encode()
    for process in _processes():
        if process in but:
            continue
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _processes() -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _import_heavy() -> None:
    """Import what the sources and tests import, as far as it takes long, and the plugins of pytest."""
    text = "".join(
        path.read_text(encoding="utf-8") for place in ("src", "tests") for path in Path(place).rglob("*.py")
    )
    for name in HEAVY:
        if re.search(rf"^ *(import|from) {name.partition('.')[0]}\b", text, re.MULTILINE):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    if "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ:
        for plugin in importlib.metadata.entry_points(group="pytest11"):
            with contextlib.suppress(Exception):
                plugin.load()


def _main() -> None:
    _import_heavy()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work = Path(os.environ["TMPDIR"]).parent
    print(json.dumps({"outcome": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        said = json.loads(line)
        print(json.dumps(run(**said, work=work)), file=answers, flush=True)


if __name__ == "__main__":
    _main()
