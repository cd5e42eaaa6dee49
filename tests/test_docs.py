"""The documentation is true: its links lead somewhere, and its code does what it says.

On a page, blocks run from top to bottom in one empty folder and one process, and each page in its own. These
processes, and the commands `prudent` and `python` of a page, are forks of one that has loaded the packages
(`forked_commands.py`). The blocks:

- `python` blocks share one interpreter; with `>>>` prompts the answers are compared too;
- `sh` blocks run in bash, and `console` blocks are a command after `$` with the output it must print
  (`...` stands for anything);
- a block whose first line is only a file name in a comment (`# job.yaml`) is saved under that name;
- a `csv` or `text` block is prose, unless the line before it is `<!-- file: runs.csv -->`;
- `<!-- not run: why -->` before a block leaves it out, with the reason in plain sight.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>file|not run): (?P<note>.+?) -->\n)?^```(?P<kind>[a-z]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SAVED_AS = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page, and what is to be done with it."""

    kind: str
    code: str
    line: int
    save_as: str | None
    left_out_because: str | None


def blocks(text: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(text):
        mark, note, code = match["mark"], match["note"], match["code"]
        named = _SAVED_AS.match(code)
        name = note if mark == "file" else named["name"] if named else None
        reason = note if mark == "not run" else None
        line = text.count("\n", 0, match.start("code"))
        found.append(Block(match["kind"], code, line, name, reason))
    return found


class Reader:
    """Somebody who follows a page literally, in a folder of their own."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "a_page"}
        self.ran = 0

    def follow(self, block: Block) -> None:
        if block.left_out_because:
            return
        if block.save_as:
            target = self.folder / block.save_as
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code)
        elif block.kind == "python":
            self._python(block)
        elif block.kind == "sh":
            self._shell(block.code, block.line)
        elif block.kind == "console":
            self._console(block)

    def _python(self, block: Block) -> None:
        self.ran += 1
        if ">>>" not in block.code:
            code = compile("\n" * block.line + block.code, str(self.page), "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, self.names)
            return
        test = doctest.DocTestParser().get_doctest(
            block.code, self.names, self.page.name, str(self.page), block.line
        )
        said = io.StringIO()
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.write, clear_globs=False)
        self.names.update(test.globs)
        assert not said.getvalue(), said.getvalue()

    def _console(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
            command, _, wanted = part.partition("\n")
            got = self._shell(command, block.line)
            if wanted.strip():
                same = doctest.OutputChecker().check_output(wanted, got, FLAGS)
                assert same, f"{self.page.name}:{block.line}: `{command}` printed\n{got}\nnot\n{wanted}"

    def _shell(self, script: str, line: int) -> str:
        self.ran += 1
        # `make` inside `make test` would never end: that the target exists and would run is checked instead.
        script = re.sub(r"^make (?=\w)", f"make -n -C '{ROOT}' ", script, flags=re.MULTILINE)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        said = f"{self.page.name}:{line}: exit code {done.returncode}\n{script}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said
        return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a `prudent` and a `python` that start at once."""
    start = runpy.run_path(str(ROOT / "tests" / "forked_commands.py"))["serving"]
    with start(tmp_path_factory.mktemp("programs")) as folder:
        yield folder


def reader_environment(programs: Path) -> dict[str, str]:
    """A plain terminal of 100 columns in which `prudent` and `python` are this environment's."""
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}


def still_at_work(folder: Path, patience_s: float = 60.0) -> list[str]:
    """The commands of processes that work in a folder; those that are ending have time to end."""
    until_s = time.monotonic() + patience_s
    while True:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cwd").readlink().is_relative_to(folder):
                    found.append((process / "cmdline").read_text(errors="replace").replace("\0", " "))
        if not found or time.monotonic() > until_s:
            return found
        time.sleep(0.05)


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def identify(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.timeout(900)  # against one that never ends; the slowest takes some 15 s where nobody else works
@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path, programs: Path) -> None:
    command = [programs / "python", __file__, str(page)]
    done = subprocess.run(
        command, cwd=tmp_path, env=reader_environment(programs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not still_at_work(tmp_path), "what the page started must have ended"
    if page.parent.name == "tutorial" or page.name == "README.md":
        assert int(done.stdout) > 0, "a tutorial without code that runs teaches nothing"


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text()
    found = blocks(text)
    assert len(found) * 2 == len(re.findall(r"^```", text, re.MULTILINE)), (
        "a fence is not closed, or indented"
    )
    nameless = [block.line for block in found if not block.kind]
    assert not nameless, f"{page.name}: say the language of the blocks at lines {nameless}"


@pytest.mark.parametrize("page", [path for path in sorted(ROOT.glob("*.md")) if path.is_file()], ids=identify)
def test_links_of_the_front_pages_lead_somewhere(page: Path) -> None:
    targets = [match["target"] for match in _LINK.finditer(page.read_text())]
    lost = [target for target in targets if "://" not in target and not (ROOT / target).exists()]
    assert not lost


def ways_of_a_request() -> dict[str, str]:
    """The ways that design.md tells, each with what it says of it."""
    design = (DOCS / "explanation" / "design.md").read_text()
    section = re.search(r"^## The way of a request\n(.*?)^## ", design, re.MULTILINE | re.DOTALL)
    assert section is not None
    _, *parts = section[1].split("\n### ")
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


@pytest.mark.parametrize("way", ways_of_a_request())
def test_the_files_and_modules_on_the_way_of_a_request_are_there(way: str) -> None:
    said = ways_of_a_request()[way]
    source = ROOT / "src" / "prudent"
    listed = re.search(r"^Files: (.*?)\n\n", said, re.MULTILINE | re.DOTALL)
    assert listed is not None
    files = re.findall(r"`([^`]+)`", listed[1])
    assert [file for file in files if not (source / file).is_file()] == []
    assert 8 <= len(files) <= 12
    named = {name.replace(".", "/") for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", said)}
    assert [
        name for name in named if not (source / f"{name}.py").is_file() and not (source / name).is_dir()
    ] == []
    assert said.count("```mermaid\nsequenceDiagram\n") == 1


def test_only_broken_links_and_pages_that_nobody_can_reach_fail_the_build(tmp_path: Path) -> None:
    """All in one build: each is a warning, one is enough, and what is really there warns of nothing."""
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write(
            "\n[gone](how-to/nowhere.md) [moved](reference/goal.md#no-such-heading) [root](/x/goal.md)\n"
        )
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert done.stderr.count("WARNING") == 4, done.stderr
    assert (tmp_path / "site" / "tutorial" / "first-study" / "index.html").is_file()
    for flaw in ("how-to/nowhere.md", "#no-such-heading", "/x/goal.md", "lost.md"):
        assert flaw in done.stderr


class TestReader:
    """The reader itself notices what is wrong: otherwise the tests above could not fail."""

    def follow(self, text: str, folder: Path) -> Reader:
        reader = Reader(ROOT / "README.md", folder)
        for block in blocks(text):
            reader.follow(block)
        return reader

    def test_python_blocks_share_names(self, tmp_path: Path) -> None:
        reader = self.follow("```python\na = 1\n```\n\n```python\n>>> a + 1\n2\n```\n", tmp_path)
        assert reader.ran == 2

    def test_a_wrong_answer_is_noticed(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match="Expected"):
            self.follow("```python\n>>> 1 + 1\n3\n```\n", tmp_path)

    def test_a_failing_command_is_noticed(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match="exit code 3"):
            self.follow("```sh\nexit 3\n```\n", tmp_path)

    def test_wrong_output_is_noticed(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match="printed"):
            self.follow("```console\n$ echo one\ntwo\n```\n", tmp_path)

    def test_a_named_block_is_saved_and_used(self, tmp_path: Path) -> None:
        text = "```yaml\n# job.yaml\nname: x\n```\n\n```console\n$ tail -1 job.yaml\nname: x\n```\n"
        assert self.follow(text, tmp_path).ran == 1

    def test_a_block_left_out_needs_its_reason(self, tmp_path: Path) -> None:
        assert self.follow("<!-- not run: needs an account -->\n```sh\nexit 3\n```\n", tmp_path).ran == 0


def follow_page(page: Path) -> int:
    """Follow a page in the current folder; answers how many blocks ran."""
    sys.path[0] = ""  # modules that the page saves are found as a script in that folder would find them
    reader = Reader(page, Path.cwd())
    for block in blocks(page.read_text()):
        reader.follow(block)
    return reader.ran


if __name__ == "__main__":
    print(follow_page(Path(sys.argv[1])))
