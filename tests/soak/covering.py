"""Which tests execute which line: found once by running them under coverage, then read from a file.

As a script it runs pytest with its arguments, in the folder of the copy:

    python covering.py OUT SOURCES... -- PYTEST_ARGUMENTS...

Each test is a context of coverage, in the processes that it starts too. Tests that fail or are skipped on the
code as it is cannot judge a mutant and are left out.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fork_server import PYTEST
from mutants import Mutant, Source, compilers_in, is_compiled

CONTEXT = "PRUDENT_MUTATION_TEST"
"""The variable that tells a test's processes the name of the test."""


@dataclass(frozen=True)
class Covering:
    """What the tests of a part execute, and how long each takes on the code as it is."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]
    """File, line, tests."""

    failed: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        numbers = {test: number for number, test in enumerate(self.seconds)}
        said = asdict(self)
        said["lines"] = {
            file: {line: [numbers[test] for test in tests] for line, tests in lines.items()}
            for file, lines in self.lines.items()
        }
        return json.dumps(said)

    @classmethod
    def from_json(cls, text: str) -> Covering:
        said = json.loads(text)
        tests = list(said["seconds"])
        lines = {
            file: {int(line): [tests[number] for number in numbers] for line, numbers in lines.items()}
            for file, lines in said["lines"].items()
        }
        return cls(said["seconds"], lines, said["failed"])


@dataclass(frozen=True)
class Chosen:
    """The tests that judge a mutant, in their order, and whether one was seen to execute its line."""

    tests: tuple[str, ...]
    seconds: tuple[float, ...]
    """What each takes on the code as it is."""
    executed: bool
    compiled: bool = False


class Choice:
    """Chooses the tests of a mutant: those that execute its statement.

    A line that runs at import is executed by every test that calls something in its file. Compiled code
    cannot be traced: its tests are those of the nearest modules that import it and can be. Where no test
    executes a line, those of its file are tried all the same: a killed process tells coverage nothing.
    """

    def __init__(self, root: Path, parts: Mapping[str, Covering], files: Iterable[str]) -> None:
        self.root, self.parts = root, parts
        self.files = tuple(files)
        self._sources: dict[str, Source] = {}
        self.compilers = frozenset().union(*(compilers_in(self._source(file).tree) for file in self.files))
        self.compiled = frozenset(file for file in self.files if self._has_compiled(file))
        self._importers = self._find_importers()

    def tests(self, part: str, mutant: Mutant, most_s: float, unseen_s: float) -> Chosen:
        source = self._source(mutant.file)
        function = source.function(mutant.line)
        compiled = mutant.file in self.compiled and (
            function is None or is_compiled(function, self.compilers)
        )
        if function is None or compiled:
            found = self._of_file(mutant.file) or self._of_importers(mutant.file)
            if compiled:
                found |= self._of_importers(mutant.file)
            executed = bool(found)
        else:
            found = self._of_lines(mutant.file, source.statement(mutant.line))
            executed = bool(found)
            found = found or self._of_file(mutant.file)
        tests: list[tuple[str, float]] = []
        left_s = most_s if executed else unseen_s
        for test, taken in self._in_order(part, found):
            if taken > left_s and tests:
                break
            tests.append((test, taken))
            left_s -= taken
        return Chosen(
            tuple(test for test, _ in tests), tuple(taken for _, taken in tests), executed, compiled
        )

    def some(self, number: int) -> list[str]:
        """A few fast tests of every part."""
        return [
            test for part in self.parts for test, _ in self._in_order(part, self.parts[part].seconds)[:number]
        ]

    def _in_order(self, part: str, tests: Iterable[str]) -> list[tuple[str, float]]:
        """The part's own tests first, the fastest of them first."""
        found = {
            test: (name != part, covering.seconds[test])
            for name, covering in self.parts.items()
            for test in tests
            if test in covering.seconds
        }
        return [(test, taken) for test, (_, taken) in sorted(found.items(), key=lambda one: (one[1], one[0]))]

    def _of_lines(self, file: str, lines: Iterable[int]) -> set[str]:
        wanted = list(lines)
        return {
            test
            for covering in self.parts.values()
            for line in wanted
            for test in covering.lines.get(file, {}).get(line, ())
        }

    @cache  # noqa: B019
    def _of_file(self, file: str) -> set[str]:
        inside = {
            line
            for covering in self.parts.values()
            for line in covering.lines.get(file, {})
            if self._source(file).function(line) is not None
        }
        return self._of_lines(file, inside)

    def _of_importers(self, file: str) -> set[str]:
        seen, todo = {file}, [file]
        while todo:
            importers = set().union(*(self._importers.get(one, set()) for one in todo)) - seen
            found = set().union(*(self._of_file(one) for one in importers)) if importers else set()
            if found:
                return found
            seen |= importers
            todo = list(importers)
        return set()

    def _source(self, file: str) -> Source:
        if file not in self._sources:
            self._sources[file] = Source((self.root / file).read_text(encoding="utf-8"))
        return self._sources[file]

    def _has_compiled(self, file: str) -> bool:
        walked = ast.walk(self._source(file).tree)
        return any(is_compiled(node, self.compilers) for node in walked)

    def _find_importers(self) -> dict[str, set[str]]:
        modules = {_module(file): file for file in self.files}
        found: dict[str, set[str]] = defaultdict(set)
        for file in self.files:
            for node in ast.walk(self._source(file).tree):
                names = []
                if isinstance(node, ast.ImportFrom) and node.module:
                    names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
                elif isinstance(node, ast.Import):
                    names = [one.name for one in node.names]
                for name in names:
                    if name in modules:
                        found[modules[name]].add(file)
        return found


def _module(file: str) -> str:
    return file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def contents_stamp(root: Path, folders: Sequence[str]) -> str:
    """A stamp of what the files below some folders contain, committed or not; but for this script's own."""
    digest = hashlib.sha256()
    for folder in folders:
        place = root / folder
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if path.is_file() and Path(__file__).parent not in path.parents:
                digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def collect(
    copy: Path, sources: Sequence[str], tests: Sequence[str], environment: Mapping[str, str], log: Path
) -> Covering:
    """Run tests in a copy of the repository; what each of them executes of the sources."""
    there = [test for test in tests if (copy / test).exists()]
    with tempfile.TemporaryDirectory(dir=environment.get("TMPDIR")) as folder, log.open("w") as output:
        out = Path(folder)
        command = [sys.executable, str(Path(__file__)), str(out), *sources, "--", *there]
        done = subprocess.run(
            command, cwd=copy, env=dict(environment), stdout=output, stderr=subprocess.STDOUT, check=False
        )
        found = _read(out, copy) if (out / "tests.json").exists() else None
    if found is None or not found.seconds:
        raise SystemExit(f"No test of {', '.join(there)} passes (exit code {done.returncode}); see {log}.")
    return found


def _read(out: Path, copy: Path) -> Covering:
    from coverage import CoverageData

    said = json.loads((out / "tests.json").read_text())
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted(out.glob("data*")):
        data = CoverageData(basename=str(path), suffix=False)
        data.read()
        for measured in data.measured_files():
            file = Path(measured).resolve().relative_to(copy.resolve()).as_posix()
            for line, contexts in data.contexts_by_lineno(measured).items():
                lines[file][line] |= {test for test in contexts if test in said["seconds"]}
    plain = {
        file: {line: sorted(tests) for line, tests in sorted(found.items()) if tests}
        for file, found in sorted(lines.items())
    }
    return Covering(said["seconds"], plain, said["failed"])


class _Watch:
    """A pytest plugin that tells coverage which test is running, and notes how long each takes."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = defaultdict(float)
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.get_closest_marker("soak") is None]

    def pytest_runtest_protocol(self, item: Any) -> None:
        os.environ[CONTEXT] = item.nodeid
        self.coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def tests(self) -> dict[str, Any]:
        good = self.passed - self.failed
        taken = {test: round(taken, 3) for test, taken in self.seconds.items() if test in good}
        return {"seconds": taken, "failed": sorted(self.failed)}


def _main(out: Path, sources: Sequence[str], arguments: Sequence[str]) -> int:
    import coverage
    import pytest

    settings = out / "coveragerc"
    named = "\n    ".join(str(Path(source).resolve()) for source in sources)
    settings.write_text(
        f"[run]\nparallel = true\ndata_file = {out}/data\ncontext = ${{{CONTEXT}-}}\n"
        f"patch =\n    fork\n    _exit\nsigterm = true\nsource =\n    {named}\n"
    )
    os.environ["COVERAGE_PROCESS_START"] = str(settings)
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    watched = coverage.Coverage(config_file=str(settings), messages=False)
    os.register_at_fork(after_in_child=_go_on)
    watched.start()
    watch = _Watch(watched)
    done = pytest.main([*arguments, *PYTEST], plugins=[watch])
    watched.stop()
    watched.save()
    (out / "tests.json").write_text(json.dumps(watch.tests()))
    return int(done)


def _go_on() -> None:
    """In a forked process coverage begins anew: it is still the same test."""
    import coverage

    current = coverage.Coverage.current()
    if current is not None and CONTEXT in os.environ:
        current.switch_context(os.environ[CONTEXT])


def _split(arguments: Sequence[str]) -> Iterator[list[str]]:
    at = list(arguments).index("--")
    yield list(arguments[:at])
    yield list(arguments[at + 1 :])


if __name__ == "__main__":
    (folder, *measured), rest = _split(sys.argv[1:])
    sys.exit(_main(Path(folder), measured, rest))
