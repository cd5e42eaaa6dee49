"""Which format a workflow is in, told by what is in the file, not by its name."""

from __future__ import annotations

import re
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.workflows.formats import dax, nextflow, pegasus, snakemake, wfformat
from prudent.workflows.workflow import Workflow

FORMATS = (
    "a Pegasus workflow (YAML or DAX), a WfFormat file (JSON), a Nextflow trace, or the folder where "
    "Snakemake ran"
)

_PEGASUS = re.compile(r"^(x-pegasus|pegasus|jobs):", re.MULTILINE)


def read(path: Path, dag: Path | None = None) -> Workflow:
    """The workflow in a file or folder of any known format; `dag` is the drawing beside a Nextflow trace."""
    if path.is_dir():
        return snakemake.read(path)
    text = read_text(path, "workflow")
    opening = text.lstrip("\ufeff \t\r\n")
    if opening.startswith("<"):
        return dax.parse(text, name=path.stem)
    if opening.startswith("{"):
        return wfformat.parse(text, name=path.stem)
    if nextflow.is_trace(opening):
        if dag is None:
            raise BadInput(
                f'The trace "{path}" does not say what runs before what; make a workflow of it and of '
                "the DAG that Nextflow writes with -with-dag: "
                "`prudent workflow convert trace.txt workflow.json --dag dag.mmd`."
            )
        return nextflow.parse(text, path.stem, read_text(dag, "DAG"))
    if snakemake.is_summary(opening):
        return snakemake.read_summary(path, text)
    if _PEGASUS.search(opening):
        return pegasus.parse(text, name=path.stem)
    raise BadInput(f'"{path}" is in no format that is known here; give {FORMATS}.')


def read_text(path: Path, what: str) -> str:
    """The text of a file, or one sentence about what is wrong with it."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f'"{path}" is not text; give {FORMATS}.') from None
    except OSError as error:
        raise BadInput(f'Cannot read {what} "{path}" ({error.strerror}); check the path.') from None
