"""Mutation testing: would the tests notice if a line of the code were wrong?

    python tests/soak/mutation.py --sample 300 --seed 7

changes one small thing at a time in a copy of the repository (what, and what never, is in `mutants.py`), runs
the tests that execute the changed line (`covering.py`), the fastest first, and counts the change as caught as
soon as one of them fails or does not end. What no test notices survives. It is listed: no test asserts it.

The sample is drawn from all parts in proportion to their number of mutants; one seed gives one sample.
Coverage and results are kept in `build/mutation`, stamped with what the sources and tests contain: after
Ctrl-C the same command goes on where it stopped. A survivor has seen tests that take a minute on the code as
it is, and no more. A test that failed on a mutant must pass once more on the code as it is, at the end, or
what it caught does not count.

It exits with 1 if less than 85 % are caught.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import random
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from copies import Copy, copies_of
from covering import Choice, Covering, collect, contents_stamp
from mutants import Mutant, Source, compilers_in, difference, mutants_of, mutated

ENOUGH = 0.85
MOST_S = 60.0
"""Tests that take longer together, on the code as it is, are not all tried."""
UNSEEN_S = 10.0
"""The same where no test was seen to execute the line."""


@dataclass(frozen=True)
class Part:
    """A package, and the tests that are there to guard it."""

    name: str
    sources: str
    tests: tuple[str, ...]


PARTS = (
    Part("core", "src/prudent/core", ("tests/core", "src/prudent/core")),
    Part("tuning", "src/prudent/tuning", ("tests/tuning", "src/prudent/tuning")),
    Part("leases", "src/prudent/cloud/leases", ("tests/cloud/leases", "src/prudent/cloud/leases")),
    Part(
        "security", "src/prudent/service/security", ("tests/service/security", "src/prudent/service/security")
    ),
)


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    part: str
    outcome: str
    """`failed` (a test), `stopped` at the limit, `survived`, `unseen` (no test executes the line)."""
    test: str
    diff: str
    seconds: float

    @property
    def caught(self) -> bool:
        return self.outcome in ("failed", "stopped")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Result:
        said = json.loads(text)
        return cls(**{**said, "mutant": Mutant(**said["mutant"])})


def draw(
    root: Path, parts: Sequence[Part], sample: int, seed: int
) -> tuple[dict[str, int], list[tuple[Part, Mutant]]]:
    """How many mutants each part has, and a sample of them in proportion."""
    rng = random.Random(seed)
    files = {part: files_of(root, part) for part in parts}
    texts = [(root / file).read_text(encoding="utf-8") for found in files.values() for file in found]
    compilers = frozenset().union(*(compilers_in(Source(text).tree) for text in texts))
    found = {
        part: [one for file in files[part] for one in mutants_of(root, file, rng, compilers)]
        for part in parts
    }
    total = sum(map(len, found.values()))
    drawn: list[tuple[Part, Mutant]] = []
    wanted = 0.0
    for part, mutants in found.items():
        wanted += min(sample, total) * len(mutants) / total
        rng.shuffle(mutants)
        share = round(wanted) - len(drawn)
        good = (
            one for one in mutants if mutated((root / one.file).read_text(encoding="utf-8"), one) is not None
        )
        drawn += [(part, one) for one, _ in zip(good, range(share), strict=False)]
    rng.shuffle(drawn)
    return {part.name: len(mutants) for part, mutants in found.items()}, drawn


def files_of(root: Path, part: Part) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in (root / part.sources).rglob("*.py"))


class Soak:
    """One run: its copies, what is known of coverage, and the results so far."""

    def __init__(
        self, root: Path, parts: Sequence[Part], options: argparse.Namespace, say: Callable[[str], None]
    ):
        self.root, self.parts, self.options, self.say = root, parts, options, say
        self.kept: Path = options.kept or root / "build" / "mutation"
        self.kept.mkdir(parents=True, exist_ok=True)
        self.stamp = contents_stamp(root, ["src", "tests", "pyproject.toml"])
        self.sizes, self.drawn = draw(root, parts, options.sample, options.seed)
        names = "-".join(part.name for part in parts)
        self.work = self.kept / f"{names}-{options.sample}-{options.seed}-{self.stamp}.jsonl"
        if options.fresh:
            self.work.unlink(missing_ok=True)
        self.results = self._read_results()

    def _read_results(self) -> dict[str, Result]:
        if not self.work.exists():
            return {}
        # The last line may be half written.
        found = {}
        for line in self.work.read_text().splitlines():
            with contextlib.suppress(ValueError):
                result = Result.from_json(line)
                found[result.mutant.name] = result
        return found

    def remaining(self) -> list[tuple[Part, Mutant]]:
        return [(part, one) for part, one in self.drawn if one.name not in self.results]

    def choice(self, copy: Copy) -> Choice:
        """Which tests to run for which mutant, from coverage that is measured now or was before."""
        # Also what the parts that are left out now may need later.
        sources = sorted({part.sources for part in (*self.parts, *(() if self.options.part else PARTS))})
        files = [file for part in self.parts for file in files_of(self.root, part)]
        return Choice(
            self.root, {part.name: self._covering(part, sources, copy) for part in self.parts}, files
        )

    def _covering(self, part: Part, sources: Sequence[str], copy: Copy) -> Covering:
        tests = (path.relative_to(self.root) for path in sorted((self.root / "tests").rglob("*.py")))
        helpers = [path.as_posix() for path in tests if not path.name.startswith("test_")]
        stamp = contents_stamp(self.root, ["src", "pyproject.toml", *part.tests, *helpers])
        path = self.kept / f"covering-{part.name}-{stamp}.json"
        if not path.exists():
            self.say(f"running the tests of {part.name} once, to see which lines they execute")
            found = collect(
                copy.tree, sources, part.tests, copy.environment, self.kept / f"covering-{part.name}.log"
            )
            path.write_text(found.to_json())
        covering = Covering.from_json(path.read_text())
        for test in covering.failed:
            self.say(f"[yellow]fails on the code as it is, so it judges nothing: {test}")
        return covering

    def note(self, result: Result) -> None:
        self.results[result.mutant.name] = result
        with self.work.open("a") as file:
            file.write(result.to_json() + "\n")

    def mine(self) -> list[Result]:
        return [self.results[one.name] for _, one in self.drawn if one.name in self.results]


def work(soak: Soak, copies: Sequence[Copy], choice: Choice, told: Callable[[], None]) -> None:
    """Judge what is left, in every copy at once."""
    todo: queue.SimpleQueue[tuple[Part, Mutant]] = queue.SimpleQueue()
    for one in soak.remaining():
        todo.put(one)
    lock = threading.Lock()
    wrong: list[BaseException] = []

    def judge_all(copy: Copy) -> None:
        with contextlib.suppress(queue.Empty):
            while not wrong:
                part, mutant = todo.get_nowait()
                text = (soak.root / mutant.file).read_text(encoding="utf-8")
                diff = difference(text, mutated(text, mutant) or "")
                chosen = choice.tests(part.name, mutant, MOST_S, UNSEEN_S)
                try:
                    outcome, test, seconds = copy.judge(mutant, chosen)
                except Exception as error:  # noqa: BLE001
                    wrong.append(error)
                    return
                with lock:
                    soak.note(Result(mutant, part.name, outcome, test, diff, seconds))
                    told()

    threads = [threading.Thread(target=judge_all, args=(copy,), daemon=True) for copy in copies]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except KeyboardInterrupt as stop:
        wrong.append(stop)
        for copy in copies:
            copy.close()
        for thread in threads:
            thread.join()
    if wrong:
        raise wrong[0]


def unreliable(results: Sequence[Result], copy: Copy) -> set[str]:
    """Tests that caught a mutant and fail on the code as it is too, now that they are run once more."""
    left = sorted({result.test for result in results if "::" in result.test})
    found: set[str] = set()
    while left:
        said = copy.run(left, 3600.0)
        if said["outcome"] == "passed":
            break
        if said["test"] not in left:
            found |= set(left)
            break
        found.add(said["test"])
        left = left[left.index(said["test"]) + 1 :]
    return found


def summary(soak: Soak) -> dict[str, Any]:
    """What was caught, by part and in all, and what survived."""
    results = soak.mine()
    parts = {}
    for part in soak.parts:
        own = [one for one in results if one.part == part.name]
        caught = sum(one.caught for one in own)
        parts[part.name] = {"mutants": soak.sizes[part.name], "tried": len(own), "caught": caught}
    caught = sum(one.caught for one in results)
    return {
        "stamp": soak.stamp,
        "seed": soak.options.seed,
        "tried": len(results),
        "caught": caught,
        "share": caught / len(results) if results else 0.0,
        "parts": parts,
        "survivors": [
            {
                "where": f"{one.mutant.file}:{one.mutant.line}",
                "operator": one.mutant.operator.removeprefix("core/"),
                "diff": one.diff,
                "outcome": one.outcome,
            }
            for one in sorted(results, key=lambda one: one.mutant)
            if not one.caught
        ],
    }


def show(said: dict[str, Any], console: Any) -> None:
    """The shares as a table, and the survivors."""
    from rich.table import Table

    notes = {
        "unseen": "  (no test executes it)",
        "unreliable": "  (caught only by a test that fails by chance)",
    }
    for one in said["survivors"]:
        note = notes.get(one["outcome"], "")
        console.print(f"[bold]{one['where']}[/]  {one['operator']}[dim]{note}", highlight=False)
        console.print(one["diff"], markup=False, highlight=False)
    table = Table("part", "mutants", "tried", "caught", "share")
    rows = [
        *said["parts"].items(),
        ("all", {**said, "mutants": sum(p["mutants"] for p in said["parts"].values())}),
    ]
    for name, row in rows:
        share = f"{row['caught'] / row['tried']:.0%}" if row["tried"] else ""
        table.add_row(name, str(row["mutants"]), str(row["tried"]), str(row["caught"]), share)
    console.print(table)


def run(root: Path, parts: Sequence[Part], options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(soft_wrap=True)
    soak = Soak(root, parts, options, lambda text: console.print(text, highlight=False))
    columns = (
        TextColumn("mutants"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[green]{task.fields[caught]} caught[/] [red]{task.fields[survived]} survived"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with copies_of(root, options.jobs if soak.remaining() else 1) as copies:
        if soak.remaining():
            choice = soak.choice(copies[0])
            for copy in copies:
                copy.check(choice.some(20))
            with Progress(*columns, console=console) as progress:
                bar = progress.add_task("", total=len(soak.drawn), caught=0, survived=0)

                def told() -> None:
                    caught = sum(one.caught for one in soak.mine())
                    done = len(soak.mine())
                    progress.update(bar, completed=done, caught=caught, survived=done - caught)

                told()
                work(soak, copies, choice, told)
        _doubt(soak, copies[0])
    said = summary(soak)
    show(said, console)
    out = options.out or soak.kept / "result.json"
    out.write_text(json.dumps(said, indent=2) + "\n")
    console.print(f"written to {out}", highlight=False)
    if said["share"] < ENOUGH:
        console.print(f"[red]{said['share']:.0%} are caught, and {ENOUGH:.0%} should be.")
        return 1
    return 0


def _doubt(soak: Soak, copy: Copy) -> None:
    """What only an unreliable test caught is not caught."""
    doubtful = unreliable(soak.mine(), copy)
    for result in soak.mine():
        if result.test in doubtful:
            soak.note(Result(**{**vars(result), "outcome": "unreliable"}))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=300, help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=7, help="of the sample (7)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (2)")
    parser.add_argument("--only", choices=[part.name for part in PARTS], action="append", help="one part")
    parser.add_argument("--fresh", action="store_true", help="forget the results so far")
    parser.add_argument("--out", type=Path, help="where the result is written (build/mutation/result.json)")
    parser.add_argument("--kept", type=Path, help="the folder of what is kept between runs (build/mutation)")
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parents[2], help="the repository"
    )
    parser.add_argument(
        "--part",
        nargs=2,
        action="append",
        metavar=("SOURCES", "TESTS"),
        help="other folders than Prudent's own",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    parts: Sequence[Part] = [part for part in PARTS if not options.only or part.name in options.only]
    if options.part:
        parts = [Part(Path(sources).name, sources, (tests,)) for sources, tests in options.part]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(options.root.resolve(), parts, options)
    except KeyboardInterrupt:
        print("Stopped; the same command goes on from here.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
