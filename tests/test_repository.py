"""Promises about the repository as a whole: quick to start, light to install, layered, clean."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import prudent

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
BIN = Path(sys.executable).parent

# Packages whose import name is not the name they are installed by.
IMPORT_NAMES = {"pyyaml": "yaml"}
# What may only be imported where it is used: each costs a user of `--version` a good part of a second.
HEAVY = {
    "numba", "scipy", "sklearn", "plotly", "pandas", "jinja2",
    "torch", "pyspark", "onnx", "onnxruntime", "pyarrow", "fastavro", "boto3",
}  # fmt: skip
# Modules that are imported only through a door which tells what to install if that fails.
BEHIND_A_DOOR = {
    "service/": {"dbos", "fastapi", "sqlalchemy", "starlette", "uvicorn"},
    "cloud/providers/ec2": {"botocore"},
    "cloud/providers/ssh": {"asyncssh"},
}
# Loading these runs whatever the file says.
UNSAFE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def repository_files() -> tuple[Path, ...]:
    """What a clone would hold: tracked files, and new ones that are not ignored."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    """The top package of every absolute import under a node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def imports_on_loading(tree: ast.Module) -> Iterator[str]:
    """Imports that happen when the module is imported: not in functions, not for type checkers only."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            continue
        yield from imports(statement)


def imported_by(*words: str) -> tuple[str, set[str]]:
    """What Python prints with these words, and the modules that it imports on the way."""
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


def test_the_version_is_told_at_once() -> None:
    """How long that takes is a question of what is imported: little more than Python needs for nothing."""
    told, loaded = imported_by(str(BIN / "prudent"), "--version")
    assert told == f"prudent {prudent.__version__}\n"
    more = loaded - imported_by("-c", "pass")[1]
    ours = {"prudent", "prudent._version", "prudent.cli", "prudent.cli.main"}
    assert ours <= more
    assert {name.partition(".")[0] for name in more - ours} <= sys.stdlib_module_names
    assert len(more) < 60


@pytest.mark.parametrize("module", ["prudent", "prudent.cli.main"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", code]
    loaded = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert not HEAVY & {name.partition(".")[0] for name in loaded}


def test_every_public_name_exists() -> None:
    missing = [name for name in prudent.__all__ if not hasattr(prudent, name)]
    assert not missing


def test_modules_need_only_the_base_install_to_be_imported() -> None:
    named = [
        re.split(r"[^\w-]", line, maxsplit=1)[0].lower() for line in project()["project"]["dependencies"]
    ]
    base = {IMPORT_NAMES.get(name, name) for name in named} | {"prudent"} | sys.stdlib_module_names
    beyond = {}
    for path in SOURCES:
        place = path.relative_to(ROOT / "src" / "prudent").as_posix()
        doors = {name for start, names in BEHIND_A_DOOR.items() if place.startswith(start) for name in names}
        if more := set(imports_on_loading(tree_of(path))) - base - doors:
            beyond[place] = more
    assert not beyond


def test_nothing_loads_what_could_run_code() -> None:
    unsafe = {path.name: found for path in SOURCES if (found := UNSAFE & set(imports(tree_of(path))))}
    assert not unsafe


def test_folders_and_modules_are_nouns_of_the_domain() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "misc", "manager"}
    assert not [path for path in SOURCES if vague & set(path.relative_to(ROOT / "src").with_suffix("").parts)]


def test_the_layers_are_those_of_the_design() -> None:
    contracts = project()["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    order = [name for line in layers for name in re.findall(r"prudent\.(\w+)", line)]
    assert order == ["cli", "service", "reports", "training", "workflows", "tuning", "cloud", "core"]
    folders = {path.name for path in (ROOT / "src" / "prudent").iterdir() if (path / "__init__.py").is_file()}
    assert folders <= set(order), "a folder outside the layers is checked by nobody"


def test_imports_that_go_up_or_sideways_are_refused(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "src" / "prudent", tmp_path / "prudent", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    wrong = [("core", "cloud"), ("tuning", "cli"), ("workflows", "tuning"), ("tuning", "workflows")]
    for below, above in wrong:
        with (tmp_path / "prudent" / below / "__init__.py").open("a") as module:
            module.write(f"\nimport prudent.{above}\n")
    command = [str(BIN / "lint-imports"), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    checked = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert checked.returncode != 0
    for below, above in wrong:
        assert f"prudent.{below} -> prudent.{above}" in checked.stdout


def test_no_file_names_a_machine_or_a_person() -> None:
    # Written in pieces so that this very file does not contain them.
    places = [
        "/wo" + "rk/",
        "/ro" + "ot/",
        "/ho" + "me/",
        "/Us" + "ers/",
        "C:" + "\\\\",
        "file:" + "///op" + "t",
        "py" + "env",
    ]
    guilty = {}
    for path in repository_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        # Only where a path begins: a folder of ours may have the same name.
        found = [place for place in places if re.search(r"(?<![\w.-])" + re.escape(place), text)]
        if found:
            guilty[str(path.relative_to(ROOT))] = found
    assert not guilty


def test_no_file_is_too_large_to_clone_lightly() -> None:
    large = {path.name: path.stat().st_size for path in repository_files() if path.stat().st_size > 1_000_000}
    assert not large


def test_ci_runs_what_the_readme_says_and_nothing_more() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[-1] == "make test"
    assert len([line for line in commands if not line.startswith(("set ", "cd "))]) == 1


def test_make_says_what_is_missing_in_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\ncase \"$2\" in *print*) echo 'Python 3.9';; *) exit 1;; esac\n")
    old.chmod(0o755)
    command = ["make", "-C", str(ROOT), "test", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "MAKEFLAGS": ""}
    )
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1
    assert "needs Python 3.11 or later" in said[0]
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_the_files_a_visitor_looks_for_are_there(name: str) -> None:
    assert (ROOT / name).read_text().strip()


def test_the_changelog_knows_this_version() -> None:
    assert f"## {prudent.__version__}" in (ROOT / "CHANGELOG.md").read_text()


# How Python opens a port, and the row of docs/explanation/security.md that tells of it.
OPENS_A_PORT = re.compile(
    r"\.listen\(\w|create_server\(|start_server\(|TCPServer\(|HTTPServer\(|init_process_group\(|\bListener\("
    r"|Cluster\(scheduler=|import SparkSession"
)
PORTS = {
    "cli/serve.py": "pages and REST",
    "service/web/connections.py": "pages and REST",
    "service/store/store.py": "",  # SQLAlchemy's events
    "workflows/execute/plan_follower.py": "",  # who hears what workers report
    "cloud/clusters/cluster_host.py": "a knock",
    "training/engines/spark/perceptron_group.py": "torch: gloo",
    "training/engines/spark/progress.py": "torch: progress",
    "training/engines/spark/spark_session.py": "Spark driver, blocks",
    "cloud/clusters/dask_node.py": "Dask scheduler",
}


def test_every_port_is_written_down() -> None:
    """Who opens it, where, who may speak to it; and that gloo is not encrypted."""
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    base = ROOT / "src" / "prudent"
    opens = {path.relative_to(base).as_posix() for path in SOURCES if OPENS_A_PORT.search(path.read_text())}
    assert opens == set(PORTS), "a module that opens a port names its row here"
    for row in filter(None, PORTS.values()):
        assert len([cell for cell in rows[row].split("|") if cell.strip()]) == 4, row
    (said,) = re.findall(r"^## Gloo is not encrypted\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    for word in ("**Where:**", "**Who may speak to it:**", "**Remedy:**"):
        assert word in said
